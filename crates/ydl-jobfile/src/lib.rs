//! Reads job files and reports every error with its location.
//!
//! A file, `--set` overrides and flags become one located tree, which one reader walks. So all of them have the same
//! keys, checks and messages.

mod tree;
mod units;
mod words;

mod keys;
mod nearest;
mod printer;
mod python;
mod reference;

mod cluster;
mod data;
mod diagnostic;
mod environment;
mod fields;
mod files;
mod formats;
mod image;
mod load;
mod mlflow;
mod overrides;
mod read;
mod roles;
mod tensorboard;

pub use diagnostic::{Diagnostic, Diagnostics, Location};
pub use environment::named_environment;
pub use load::{Source, load, valid_name};
pub use nearest::nearest;
pub use overrides::Flags;
pub use printer::{print_tree, show};
pub use python::python_keys;
pub use reference::reference_page;
pub use tree::{Key, Node, Value};
pub use units::{size_mib, span};
pub use words::split_words;
