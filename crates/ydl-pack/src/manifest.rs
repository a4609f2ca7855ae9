//! What a packed environment says of itself, to whoever puts it together again.

use serde::{Deserialize, Serialize};

/// What the environment, or the directory of its layers, is called in a container.
pub const ENVIRONMENT: &str = "environment";
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
    /// Where it was, by every name that something in it has for that place.
    #[serde(default)]
    pub was_at: Vec<String>,
    /// Texts in it that name that place, and must name the new one where it arrives.
    #[serde(default)]
    pub naming: Vec<String>,
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
    /// Whether something else finds libraries of the environment only if it is told where.
    pub told_packages: bool,
    /// Whether the environment is the installation itself with everything around it, as conda's are.
    pub whole: bool,
    /// Whether it also sees the packages of the interpreter's own installation.
    pub system_packages: bool,
}

impl Manifest {
    /// The one there is.
    pub const FORMAT: u32 = 1;
}

/// A text that names one path, with another in its place; nothing if it does not name it. What only begins with the same
/// letters is another path.
pub fn renamed(text: &str, from: &str, to: &str) -> Option<String> {
    let mut found = None::<String>;
    let mut done = 0;
    for (at, _) in text.match_indices(from) {
        let end = at + from.len();
        let next = text[end..].chars().next();
        if next.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.')) {
            continue;
        }
        let new = found.get_or_insert_default();
        new.push_str(&text[done..at]);
        new.push_str(to);
        done = end;
    }
    let mut new = found?;
    new.push_str(&text[done..]);
    Some(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_renamed_and_its_neighbours_are_not() {
        let to = |text| renamed(text, "/home/me/env", "/x");
        assert_eq!(
            to("prefix=/home/me/env\n-L/home/me/env/lib '/home/me/env'").as_deref(),
            Some("prefix=/x\n-L/x/lib '/x'")
        );
        assert_eq!(to("/home/me/env2 /home/me/env-old /home/me/env.bak"), None);
        assert_eq!(to("/home/me/env2:/home/me/env").as_deref(), Some("/home/me/env2:/x"));
        assert_eq!(to(""), None);
    }
}
