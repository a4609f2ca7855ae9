//! Tests that change their process, or kill its children.

use std::process::{Command, Stdio};

/// Runs the body of a test in its own process, which is this test program with this test only.
/// `prepare` changes how that process is started.
///
/// # Panics
/// Panics if the body fails, or if `test` is not the full name of the test.
pub fn run_in_own_process(
    test: &str,
    body: impl AsyncFnOnce(),
    prepare: impl FnOnce(Command) -> Command,
) {
    const TEST_VARIABLE: &str = "YDL_TEST_BODY";
    if std::env::var(TEST_VARIABLE).as_deref() == Ok(test) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        return runtime.enable_all().build().expect("a runtime").block_on(body());
    }
    let program = std::env::current_exe().expect("the path of this program");
    let mut command = Command::new(program);
    command.args([test, "--exact", "--nocapture"]).env(TEST_VARIABLE, test);
    let output = prepare(command).stdin(Stdio::null()).output().expect("the test can be started");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{test}: {}\n{stderr}", output.status);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(stdout.contains("1 passed"), "{test} is not the name of this test: {stdout}");
}
