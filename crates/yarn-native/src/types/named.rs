//! Enums whose values have a number on the wire and a name that people know.

/// A text that names none of the values it could.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no {what}; it is one of {names}")]
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

/// Writes the enum, its way from and to the wire, `Display` and `FromStr`.
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

        // Some values only come, and some only go.
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
