//! The job file: what a person writes, read with care and answered with the place of every mistake.
//!
//! A file, `--set` overrides and flags all become one located tree, which one reader walks; so each of them
//! has the same keys, the same checks and the same messages.

mod tree;
mod units;
mod words;

mod keys;
mod nearest;
mod reference;

mod boards;
mod cluster;
mod data;
mod diagnostic;
mod fields;
mod files;
mod image;
mod load;
mod overrides;
mod read;
mod roles;
mod tracking;

mod write;

pub use diagnostic::{Diagnostic, Diagnostics, Location};
pub use files::named_environment as environment;
pub use load::{Source, clean as name_of, load};
pub use nearest::nearest;
pub use overrides::Flags;
pub use reference::page;
pub use tree::{Key, Node, Value};
pub use units::{size_mib, span};
pub use words::split as words;
pub use write::{show, written};
