//! Lists the files of the Python package, which tasks of skein's specifications get.

use std::{
    env,
    error::Error,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

fn main() -> Result<(), Box<dyn Error>> {
    let root =
        PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../../python").canonicalize()?;
    println!("cargo::rerun-if-changed={}", root.join("ydl").display());
    let mut files = Vec::new();
    list(&root.join("ydl"), &mut files)?;
    files.sort();
    let mut code = "&[\n".to_owned();
    for path in files {
        let name = path.strip_prefix(&root)?;
        writeln!(code, "    ({name:?}, include_bytes!({path:?})),")?;
    }
    code += "]\n";
    fs::write(PathBuf::from(env::var("OUT_DIR")?).join("python_package.rs"), code)?;
    Ok(())
}

/// Collects the modules below a directory.
fn list(dir: &Path, files: &mut Vec<PathBuf>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            list(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "py") {
            files.push(path);
        }
    }
    Ok(())
}
