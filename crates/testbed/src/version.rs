//! The Hadoop versions a cluster can have, and what the older ones lack.

use crate::failure::{Failure, Kind};
use std::{fmt, str::FromStr};

/// A Hadoop release. Ordered: a later one is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum Version {
    V2_10_2,
    V3_3_6,
    V3_4_2,
    V3_5_0,
}

impl Version {
    /// All of them, oldest first.
    pub const ALL: [Version; 4] =
        [Version::V2_10_2, Version::V3_3_6, Version::V3_4_2, Version::V3_5_0];

    /// The one to take when it does not matter.
    pub const NEWEST: Version = Version::V3_5_0;

    /// As Maven and people write it.
    pub fn name(self) -> &'static str {
        match self {
            Version::V2_10_2 => "2.10.2",
            Version::V3_3_6 => "3.3.6",
            Version::V3_4_2 => "3.4.2",
            Version::V3_5_0 => "3.5.0",
        }
    }

    /// Whether masters can send scheduling requests with placement constraints, and nodes can have
    /// attributes: both came with 3.2.
    pub fn has_placement_constraints(self) -> bool {
        self >= Version::V3_3_6
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Version {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Version, Failure> {
        let found = Version::ALL.into_iter().find(|v| v.name() == text);
        found.ok_or_else(|| {
            let known = Version::ALL.map(Version::name).join(", ");
            Failure::new(Kind::Wrong, format!("there is no Hadoop `{text}` here"))
                .hint(format!("the versions are {known}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_as_it_is_written() {
        for version in Version::ALL {
            assert_eq!(version.to_string().parse::<Version>().unwrap(), version);
        }
        let wrong = "3.5".parse::<Version>().unwrap_err();
        assert_eq!(wrong.kind, Kind::Wrong);
        assert!(wrong.to_string().contains("2.10.2, 3.3.6, 3.4.2, 3.5.0"));
    }
}
