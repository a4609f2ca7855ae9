//! Programs of real frameworks, one per task.

use std::{
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Returns the Python of an environment. `requirements` is relative to the repository root.
pub fn python(requirements: &str) -> PathBuf {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let output = Command::new(format!("{root}/scripts/python-env"))
        .arg(format!("{root}/{requirements}"))
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let path = String::from_utf8(output.stdout).unwrap();
    PathBuf::from(path.trim()).join("bin/python")
}

/// Running programs. Killed when dropped.
#[derive(Default)]
pub struct Programs(Vec<(String, Child)>);

impl Programs {
    pub fn start(&mut self, task: &str, command: &mut Command) {
        let child = command.stdout(Stdio::piped()).spawn().unwrap();
        self.0.push((task.to_owned(), child));
    }

    /// Waits for a program to end and removes it.
    pub fn end_of(&mut self, task: &str) -> ExitStatus {
        let at = self.0.iter().position(|(name, _)| name == task).unwrap();
        wait(&mut self.0[at]);
        let (_, mut child) = self.0.remove(at);
        child.wait().unwrap()
    }

    pub fn kill(&mut self, task: &str) {
        let (_, child) = self.0.iter_mut().find(|(name, _)| name == task).unwrap();
        child.kill().unwrap();
    }

    /// Waits for all programs and returns their status and output, by task.
    pub fn outputs(mut self) -> Vec<(String, ExitStatus, String)> {
        self.0.iter_mut().for_each(wait);
        self.0.sort_by(|(one, _), (other, _)| one.cmp(other));
        let ended = std::mem::take(&mut self.0).into_iter().map(|(task, child)| {
            let output = child.wait_with_output().unwrap();
            let printed = String::from_utf8(output.stdout).unwrap();
            (task, output.status, printed.trim().to_owned())
        });
        ended.collect()
    }
}

fn wait((task, child): &mut (String, Child)) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "{task} is still running");
        thread::sleep(Duration::from_millis(5));
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        for (_, child) in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
