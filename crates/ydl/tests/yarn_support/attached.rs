//! Jobs that wait for a word of the test, and a client that follows one.

use super::{Desk, Ran, wait_for};
use std::{
    fs,
    io::{BufRead, BufReader, Read},
    process::{Child, Command},
    sync::{Arc, Mutex},
    thread::JoinHandle,
};

/// A job of so many tasks that write a line to `$SHARED/began` and wait for `$SHARED/go`.
pub fn waiting(desk: &Desk, instances: u32, more: &str) -> String {
    let script = format!(
        "SHARED={}; echo $YDL_INDEX >> $SHARED/began; until [ -e $SHARED/go ]; do sleep 0.1; done",
        desk.path().display()
    );
    let script = serde_json::to_string(&script).expect("a string");
    format!(
        "roles: {{worker: {{instances: {instances}, memory: 64 MiB, shell: {script}}}}}\n{more}\n"
    )
}

pub fn wait_began(desk: &Desk, count: usize) {
    wait_for(&format!("{count} programs"), || {
        let text = fs::read_to_string(desk.path().join("began")).unwrap_or_default();
        (text.lines().count() >= count).then_some(())
    });
}

pub fn go(desk: &Desk) {
    fs::write(desk.path().join("go"), "").expect("a file");
}

/// An attached submit whose words are read as they come.
pub struct Attached {
    child: Child,
    said: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl Attached {
    /// Submits, and waits until the job has an id.
    pub fn submit(desk: &Desk, yaml: &str) -> (Attached, String) {
        desk.write("job.yaml", yaml);
        let mut child = desk.start(&["submit", "job.yaml"]);
        let stderr = child.stderr.take().expect("a pipe");
        let said = Arc::new(Mutex::new(String::new()));
        let kept = Arc::clone(&said);
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines() {
                let line = line.expect("text");
                *kept.lock().expect("the words") += &format!("{line}\n");
            }
        });
        let attached = Attached { child, said, reader: Some(reader) };
        let id = wait_for("that a job is submitted", || {
            let said = attached.said.lock().expect("the words");
            let (before, _) = said.split_once(" submitted to queue ")?;
            before.split_whitespace().last().map(str::to_owned)
        });
        (attached, id)
    }

    /// What it has said so far.
    pub fn said(&self) -> String {
        self.said.lock().expect("the words").clone()
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args([name, &pid]).status();
        assert!(status.expect("it can be sent").success());
    }

    pub fn finish(mut self) -> Ran {
        let mut out = String::new();
        let mut stdout = self.child.stdout.take().expect("a pipe");
        stdout.read_to_string(&mut out).expect("text");
        let status = self.child.wait().expect("its end");
        let reader = self.reader.take().expect("finished once");
        reader.join().expect("all its words");
        Ran {
            code: status.code().unwrap_or(-1),
            out,
            err: self.said.lock().expect("the words").clone(),
        }
    }
}

/// A test that fails leaves no client that waits for a cluster which is gone.
impl Drop for Attached {
    fn drop(&mut self) {
        // It is dead, or was waited for.
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}
