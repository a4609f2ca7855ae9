//! Python environments of the examples. Scripts of the repository create and cache them.

use crate::repository;
use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

/// Returns the environment of the MXNet example, which `make demo` uses as well.
pub fn mxnet_environment() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| example_environment("mxnet"))
}

/// Returns the environment of a framework's example.
pub fn example_environment(framework: &str) -> PathBuf {
    requirements_environment(&format!("examples/{framework}-digits/requirements.txt"))
}

/// Returns the environment of a requirements file, whose path is relative to the repository.
pub fn requirements_environment(requirements: &str) -> PathBuf {
    path_from_script("scripts/python-env", &[requirements])
}

/// Returns the directory with MXNet's environment in its other forms; `scripts/python-fixtures` lists them.
pub fn packed_mxnet_environments() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| path_from_script("scripts/python-fixtures", &[]))
}

/// Runs a script of the repository and returns the path that it prints.
fn path_from_script(script: &str, arguments: &[&str]) -> PathBuf {
    let output = Command::new(repository().join(script))
        .args(arguments)
        .current_dir(repository())
        .output()
        .expect("a script of the repository can be started");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "`{script}` failed: {stderr}");
    PathBuf::from(String::from_utf8(output.stdout).expect("a path").trim())
}
