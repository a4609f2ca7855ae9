//! Supported Hadoop versions and their features.

use crate::error::{Error, ErrorKind};
use std::{fmt, str::FromStr};

/// A Hadoop release, ordered by age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum Version {
    V2_10_2,
    V3_3_6,
    V3_4_2,
    V3_5_0,
}

impl Version {
    /// All versions, oldest first.
    pub const ALL: [Version; 4] =
        [Version::V2_10_2, Version::V3_3_6, Version::V3_4_2, Version::V3_5_0];

    /// The default version.
    pub const NEWEST: Version = Version::V3_5_0;

    /// Returns the version number.
    pub fn name(self) -> &'static str {
        match self {
            Version::V2_10_2 => "2.10.2",
            Version::V3_3_6 => "3.3.6",
            Version::V3_4_2 => "3.4.2",
            Version::V3_5_0 => "3.5.0",
        }
    }

    /// Returns true if the version has placement constraints and node attributes, both added in 3.2.
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
    type Err = Error;

    fn from_str(text: &str) -> Result<Version, Error> {
        let found = Version::ALL.into_iter().find(|v| v.name() == text);
        found.ok_or_else(|| {
            let known = Version::ALL.map(Version::name).join(", ");
            Error::new(ErrorKind::InvalidRequest, format!("unsupported Hadoop version `{text}`"))
                .hint(format!("supported versions: {known}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_parses_from_its_display_form() {
        for version in Version::ALL {
            assert_eq!(version.to_string().parse::<Version>().unwrap(), version);
        }
        let wrong = "3.5".parse::<Version>().unwrap_err();
        assert_eq!(wrong.kind, ErrorKind::InvalidRequest);
        assert!(wrong.to_string().contains("2.10.2, 3.3.6, 3.4.2, 3.5.0"));
    }
}
