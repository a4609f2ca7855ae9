//! SASL qualities of protection.

use std::fmt;
use std::str::FromStr;

/// Quality of protection, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Quality {
    /// Authentication only.
    Authentication,
    /// Authentication and integrity.
    Integrity,
    /// Authentication, integrity and confidentiality.
    Privacy,
}

impl Quality {
    /// All qualities, strongest first.
    pub const STRONGEST_FIRST: [Self; 3] = [Self::Privacy, Self::Integrity, Self::Authentication];

    /// Chooses the first wanted quality that is offered; with none wanted, the strongest offered.
    pub(crate) fn choose(wanted: &[Self], offered: &[Self]) -> Option<Self> {
        let order = if wanted.is_empty() { &Self::STRONGEST_FIRST } else { wanted };
        order.iter().copied().find(|quality| offered.contains(quality))
    }

    /// Returns the name used by DIGEST-MD5.
    pub(crate) fn digest_name(self) -> &'static str {
        match self {
            Self::Authentication => "auth",
            Self::Integrity => "auth-int",
            Self::Privacy => "auth-conf",
        }
    }

    pub(crate) fn from_digest_name(name: &str) -> Option<Self> {
        Self::STRONGEST_FIRST.into_iter().find(|quality| quality.digest_name() == name)
    }

    /// Returns the bit in the layer mask of SASL's GSSAPI mechanism.
    pub(crate) fn gssapi_bit(self) -> u8 {
        match self {
            Self::Authentication => 1,
            Self::Integrity => 2,
            Self::Privacy => 4,
        }
    }
}

impl fmt::Display for Quality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Authentication => "authentication",
            Self::Integrity => "integrity",
            Self::Privacy => "privacy",
        })
    }
}

/// Error for an unknown quality of protection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown quality of protection `{0}`: expected `authentication`, `integrity` or `privacy`")]
pub struct UnknownQuality(String);

impl FromStr for Quality {
    type Err = UnknownQuality;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let word = text.trim();
        Self::STRONGEST_FIRST
            .into_iter()
            .find(|quality| quality.to_string().eq_ignore_ascii_case(word))
            .ok_or_else(|| UnknownQuality(word.to_owned()))
    }
}

/// Formats a list for messages: `privacy, integrity`, or `none`.
pub(crate) fn comma_separated(qualities: &[Quality]) -> String {
    if qualities.is_empty() {
        return "none".to_owned();
    }
    let words: Vec<String> = qualities.iter().map(Quality::to_string).collect();
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::Quality::{Authentication, Integrity, Privacy};
    use super::*;

    #[test]
    fn client_order_takes_precedence_over_strength() {
        let all = [Authentication, Integrity, Privacy];
        assert_eq!(Quality::choose(&[], &all), Some(Privacy));
        assert_eq!(Quality::choose(&[Authentication, Privacy], &all), Some(Authentication));
        assert_eq!(Quality::choose(&[Integrity, Privacy], &[Privacy]), Some(Privacy));
        assert_eq!(Quality::choose(&[Privacy], &[Authentication]), None);
    }

    #[test]
    fn configuration_names_are_parsed() {
        assert_eq!(" Privacy ".parse(), Ok(Privacy));
        assert!("secret".parse::<Quality>().is_err());
    }
}
