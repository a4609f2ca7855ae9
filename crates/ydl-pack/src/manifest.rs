//! Manifest of a packed environment, read by the agent that restores it.

use serde::{Deserialize, Serialize};

/// Name of the environment, or of the directory of its layers, in a container.
pub const ENVIRONMENT: &str = "environment";
/// File of the layer `local` that contains the manifest.
pub const MANIFEST: &str = "environment.json";
/// Layer with a bundled interpreter.
pub const INTERPRETER: &str = "interpreter";
/// Layer with third-party packages.
pub const PACKAGES: &str = "packages";
/// Layer with the user's own code.
pub const LOCAL: &str = "local";

/// Manifest of a packed environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the format.
    pub format: u32,
    /// Required machine type as printed by `uname -m`; `None` without binaries.
    pub machine: Option<String>,
    /// Required version of the C library.
    pub glibc: Option<(u32, u32)>,
    /// File that requires that version.
    pub glibc_file: Option<String>,
    /// The interpreter; `None` for a directory with `bin` in it and nothing else.
    pub python: Option<Python>,
    /// Original paths of the environment.
    #[serde(default)]
    pub original_paths: Vec<String>,
    /// Text files that contain an original path and are rewritten when the environment is restored.
    #[serde(default)]
    pub texts_with_path: Vec<String>,
}

/// Interpreter of an environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Python {
    /// Required minor version, such as `3.11`.
    pub minor: String,
    /// Full version, such as `3.11.7`, if known.
    pub version: String,
    /// Path on the machine that packed it.
    pub executable: String,
    /// The interpreter is in a layer of its own.
    pub bundled: bool,
    /// The interpreter finds its library only through `LD_LIBRARY_PATH`.
    pub needs_library_path: bool,
    /// Other files find libraries of the environment only through `LD_LIBRARY_PATH`.
    pub packages_need_library_path: bool,
    /// The environment is a complete installation, as made by conda.
    pub whole: bool,
    /// The packages of the interpreter's own installation are visible.
    pub system_packages: bool,
}

impl Manifest {
    /// Current version.
    pub const FORMAT: u32 = 1;
}

/// Replaces the path `from` in a text. Returns `None` if the text does not contain it; longer paths with the same prefix do not
/// count.
pub fn replace_path(text: &str, from: &str, to: &str) -> Option<String> {
    let mut replaced = None::<String>;
    let mut copied = 0;
    for (at, _) in text.match_indices(from) {
        let end = at + from.len();
        let next = text[end..].chars().next();
        if next.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.')) {
            continue;
        }
        let new = replaced.get_or_insert_default();
        new.push_str(&text[copied..at]);
        new.push_str(to);
        copied = end;
    }
    let mut new = replaced?;
    new.push_str(&text[copied..]);
    Some(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_replaced_and_longer_ones_are_not() {
        let to = |text| replace_path(text, "/home/me/env", "/x");
        assert_eq!(
            to("prefix=/home/me/env\n-L/home/me/env/lib '/home/me/env'").as_deref(),
            Some("prefix=/x\n-L/x/lib '/x'")
        );
        assert_eq!(to("/home/me/env2 /home/me/env-old /home/me/env.bak"), None);
        assert_eq!(to("/home/me/env2:/home/me/env").as_deref(), Some("/home/me/env2:/x"));
        assert_eq!(to(""), None);
    }
}
