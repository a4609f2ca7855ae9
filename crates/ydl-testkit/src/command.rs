//! Commands that were run to their end.

use std::{
    io::Read,
    process::{Child, Output},
};

/// Exit code and output of a command.
#[derive(Debug)]
pub struct CommandOutput {
    /// The exit code; -1 after a signal.
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for CommandOutput {
    fn from(output: Output) -> CommandOutput {
        CommandOutput {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Waits for a child that was started with pipes, and returns its output.
pub fn finish(mut child: Child) -> CommandOutput {
    let mut stderr = child.stderr.take().expect("a pipe");
    let reader = std::thread::spawn(move || {
        let mut all = Vec::new();
        stderr.read_to_end(&mut all).expect("stderr can be read");
        all
    });
    let mut output = child.wait_with_output().expect("a child can be waited for");
    output.stderr = reader.join().expect("the reader ends");
    CommandOutput::from(output)
}

/// Asserts that a command was rejected with this message and this hint.
pub fn assert_rejected(output: &CommandOutput, message: &str, hint: &str) {
    assert_eq!(output.code, 2, "{output:#?}");
    assert!(output.stderr.contains(message), "`{message}` is not in {output:#?}");
    assert!(!hint.is_empty() && output.stderr.contains("hint: "), "{output:#?}");
    assert!(output.stderr.contains(hint), "`{hint}` is not in {output:#?}");
}
