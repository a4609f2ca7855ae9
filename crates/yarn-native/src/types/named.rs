//! Enums with a number on the wire and a Hadoop name.

/// Error for a text that is none of an enum's names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} `{text}`: expected one of {names}")]
pub struct BadName {
    text: String,
    what: &'static str,
    names: String,
}

impl BadName {
    pub(crate) fn new(text: &str, what: &'static str, names: &[&str]) -> Self {
        Self { text: text.chars().take(200).collect(), what, names: names.join(", ") }
    }
}

/// Defines the enum with its wire conversions, `Display` and `FromStr`.
macro_rules! named {
    (
        $(#[$meta:meta])*
        pub enum $name:ident: $proto:ident, $what:literal {
            $( $(#[$doc:meta])* $variant:ident = $wire:ident $text:literal, )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum $name {
            $( $(#[$doc])* $variant, )*
        }

        // Some enums are only received, others only sent.
        #[allow(dead_code)]
        impl $name {
            pub(crate) fn of(number: i32) -> Result<Self, $crate::types::InvalidMessage> {
                match $proto::try_from(number) {
                    $( Ok($proto::$wire) => Ok(Self::$variant), )*
                    _ => Err($crate::types::InvalidMessage(concat!("the ", $what))),
                }
            }

            pub(crate) fn proto(self) -> $proto {
                match self {
                    $( Self::$variant => $proto::$wire, )*
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(match self {
                    $( Self::$variant => $text, )*
                })
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::types::BadName;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $( $text => Ok(Self::$variant), )*
                    _ => Err($crate::types::BadName::new(text, $what, &[$( $text ),*])),
                }
            }
        }
    };
}

pub(crate) use named;
