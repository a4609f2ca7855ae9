//! What a packed environment says of itself, to whoever puts it together again.

use serde::{Deserialize, Serialize};

/// The file in the layer `local` that holds it.
pub const MANIFEST: &str = "environment.json";
/// The layer with the interpreter, where one travels.
pub const INTERPRETER: &str = "interpreter";
/// The layer with what others wrote.
pub const PACKAGES: &str = "packages";
/// The layer with what the user wrote.
pub const LOCAL: &str = "local";

/// What a packed environment says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Of this description.
    pub format: u32,
    /// What it was made for, as `uname -m` says it; nothing if nothing in it asks for a machine.
    pub machine: Option<String>,
    /// The newest version of the C library that something in it needs.
    pub glibc: Option<(u32, u32)>,
    /// Which file needs that.
    pub glibc_file: Option<String>,
    /// Its interpreter; without one it is a directory with `bin` in it and nothing else.
    pub python: Option<Python>,
}

/// The interpreter of an environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Python {
    /// What must be the same, such as `3.11`.
    pub minor: String,
    /// All of it, such as `3.11.7`, where it is known.
    pub version: String,
    /// Where it was on the machine that packed it.
    pub executable: String,
    /// Whether it is in a layer of its own.
    pub carried: bool,
    /// Whether it finds its own library only if it is told where.
    pub told_libraries: bool,
    /// Whether other programs lie beside it that belong to the environment, as in conda's.
    pub tools: bool,
    /// Whether it also sees the packages of the interpreter's own installation.
    pub system_packages: bool,
}

impl Manifest {
    /// The one there is.
    pub const FORMAT: u32 = 1;
}
