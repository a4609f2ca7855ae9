//! Jobs that wait for the test, and clients that follow a job.

use super::{Workspace, wait_for};
use crate::CommandOutput;
use std::{
    fs,
    io::{BufRead, BufReader, Read},
    process::{Child, Command},
    sync::{Arc, Mutex},
    thread::JoinHandle,
};

/// Returns a job file with tasks that write a line to `$SHARED/began` and wait for `$SHARED/go`. `keys` are
/// further keys of the job. Nodes that enforce memory limits count the pages of the unoptimised binary in both the agent and
/// the shim, which need 64 MiB together.
pub fn waiting_job(workspace: &Workspace, instances: u32, keys: &str) -> String {
    let script = format!(
        "SHARED={}; echo $YDL_INDEX >> $SHARED/began; until [ -e $SHARED/go ]; do sleep 0.1; done",
        workspace.path().display()
    );
    let script = serde_json::to_string(&script).expect("a string");
    format!(
        "roles: {{worker: {{instances: {instances}, memory: 128 MiB, shell: {script}}}}}\n{keys}\n"
    )
}

/// Waits until this many tasks of a [`waiting_job`] run.
pub fn wait_started(workspace: &Workspace, count: usize) {
    wait_for(&format!("{count} programs"), || {
        let text = fs::read_to_string(workspace.path().join("began")).unwrap_or_default();
        (text.lines().count() >= count).then_some(())
    });
}

/// Lets the tasks of a [`waiting_job`] end.
pub fn release(workspace: &Workspace) {
    fs::write(workspace.path().join("go"), "").expect("a file");
}

/// An attached `ydl submit` whose stderr is read while it runs. Dropping it kills the client.
#[derive(Debug)]
pub struct AttachedSubmit {
    child: Child,
    stderr: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl AttachedSubmit {
    /// Submits a job, and waits for its id.
    pub fn start(workspace: &Workspace, yaml: &str) -> (AttachedSubmit, String) {
        workspace.write("job.yaml", yaml);
        let mut child = workspace.start(&["submit", "job.yaml"]);
        let pipe = child.stderr.take().expect("a pipe");
        let stderr = Arc::new(Mutex::new(String::new()));
        let buffer = Arc::clone(&stderr);
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(pipe).lines() {
                let line = line.expect("text");
                *buffer.lock().expect("the buffer") += &format!("{line}\n");
            }
        });
        let attached = AttachedSubmit { child, stderr, reader: Some(reader) };
        let id = wait_for("the submission of a job", || {
            let stderr = attached.stderr();
            let (before, _) = stderr.split_once(" submitted to queue ")?;
            before.split_whitespace().last().map(str::to_owned)
        });
        (attached, id)
    }

    /// Returns the stderr so far.
    pub fn stderr(&self) -> String {
        self.stderr.lock().expect("the buffer").clone()
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args([name, &pid]).status();
        assert!(status.expect("it can be sent").success());
    }

    pub fn finish(mut self) -> CommandOutput {
        let mut stdout = String::new();
        let mut pipe = self.child.stdout.take().expect("a pipe");
        pipe.read_to_string(&mut stdout).expect("text");
        let status = self.child.wait().expect("the client ends");
        let reader = self.reader.take().expect("finished once");
        reader.join().expect("the reader ends");
        CommandOutput { code: status.code().unwrap_or(-1), stdout, stderr: self.stderr() }
    }
}

impl Drop for AttachedSubmit {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}
