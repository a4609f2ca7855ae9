//! How well messages are protected once both sides are known.

use std::fmt;
use std::str::FromStr;

/// A quality of protection, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Quality {
    /// Both sides are known; messages travel as they are.
    Authentication,
    /// Messages cannot be changed unnoticed.
    Integrity,
    /// Messages cannot be changed or read.
    Privacy,
}

impl Quality {
    /// All of them, strongest first.
    pub const STRONGEST_FIRST: [Self; 3] = [Self::Privacy, Self::Integrity, Self::Authentication];

    /// The first that is wanted and offered; with nothing wanted, the strongest offered.
    pub(crate) fn choose(wanted: &[Self], offered: &[Self]) -> Option<Self> {
        let order = if wanted.is_empty() { &Self::STRONGEST_FIRST } else { wanted };
        order.iter().copied().find(|quality| offered.contains(quality))
    }

    /// As DIGEST-MD5 spells it.
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

    /// As the layer mask of SASL's GSSAPI spells it.
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

/// A word that is none of `authentication`, `integrity`, `privacy`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no quality of protection; it is `authentication`, `integrity` or `privacy`")]
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

/// A list for people: `privacy, integrity`, or `none`.
pub(crate) fn join(qualities: &[Quality]) -> String {
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
    fn the_clients_order_decides_and_without_one_strength_does() {
        let all = [Authentication, Integrity, Privacy];
        assert_eq!(Quality::choose(&[], &all), Some(Privacy));
        assert_eq!(Quality::choose(&[Authentication, Privacy], &all), Some(Authentication));
        assert_eq!(Quality::choose(&[Integrity, Privacy], &[Privacy]), Some(Privacy));
        assert_eq!(Quality::choose(&[Privacy], &[Authentication]), None);
    }

    #[test]
    fn words_of_the_configuration_are_understood() {
        assert_eq!(" Privacy ".parse(), Ok(Privacy));
        assert!("secret".parse::<Quality>().is_err());
    }
}
