//! What a user has wherever the jobs run: commands that end and say something, and the MXNet example's environment.

use std::{
    io::Read,
    path::{Path, PathBuf},
    process::{Child, Command, Output},
    sync::OnceLock,
};

/// How a command ended and what it said.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Ran {
        Ran {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Waits for a child that was started with pipes.
pub fn finish(mut child: Child) -> Ran {
    let mut stderr = child.stderr.take().expect("a pipe");
    let reader = std::thread::spawn(move || {
        let mut all = Vec::new();
        stderr.read_to_end(&mut all).expect("stderr can be read");
        all
    });
    let mut output = child.wait_with_output().expect("a child can be waited for");
    output.stderr = reader.join().expect("the reader's end");
    Ran::from(output)
}

/// A command that was refused: with this sentence, and what to do about it.
#[allow(dead_code)] // Only those who misuse something use it.
pub fn assert_refused(ran: &Ran, sentence: &str, hint: &str) {
    assert_eq!(ran.code, 2, "{ran:#?}");
    assert!(ran.err.contains(sentence), "`{sentence}` is not in {ran:#?}");
    assert!(!hint.is_empty() && ran.err.contains("hint: "), "{ran:#?}");
    assert!(ran.err.contains(hint), "`{hint}` is not in {ran:#?}");
}

/// The example's environment, made by the script that `make demo` uses.
#[allow(dead_code)] // Only those who run it use it.
pub fn environment() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    let requirements = "examples/mxnet-digits/requirements.txt";
    PATH.get_or_init(|| made("scripts/python-env", &[requirements]))
}

/// The environment of the example of that framework.
#[allow(dead_code)] // Only those who run it use it.
pub fn environment_of(framework: &str) -> PathBuf {
    environment_from(&format!("{framework}-digits/requirements.txt"))
}

/// The environment that this file among the examples asks for.
#[allow(dead_code)] // Only those who run it use it.
pub fn environment_from(requirements: &str) -> PathBuf {
    made("scripts/python-env", &[&format!("examples/{requirements}")])
}

/// MXNet's in every other form; `scripts/python-fixtures` says which.
#[allow(dead_code)] // Only those who pack it use it.
pub fn kinds() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| made("scripts/python-fixtures", &[]))
}

/// What a script of the project makes, and says where.
fn made(script: &str, words: &[&str]) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new(root.join(script))
        .args(words)
        .current_dir(root)
        .output()
        .expect("a script of the project can be started");
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "`{script}` failed: {why}");
    PathBuf::from(String::from_utf8(output.stdout).expect("a path").trim())
}
