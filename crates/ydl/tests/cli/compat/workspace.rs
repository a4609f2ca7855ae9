//! A user's directory, and what doors say there.

use expect_test::Expect;
use std::{
    fs,
    path::Path,
    process::{Command, Output},
};
use tempfile::TempDir;

/// A user's directory with a program in it.
pub struct Desk {
    dir: TempDir,
}

impl Desk {
    pub fn new() -> Desk {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("train.py"), "print('trained')\n").unwrap();
        Desk { dir }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn file(&self, name: &str) -> &Desk {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // A tar with nothing in it is an empty file, too.
        let bytes: &[u8] = match name.ends_with(".zip") {
            true => b"PK\x05\x06\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
            false => b"",
        };
        fs::write(path, bytes).unwrap();
        self
    }

    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(ydl_testkit::ydl());
        command
            .args(words)
            .current_dir(self.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.path())
            .env("USER", "alice")
            .env("XDG_STATE_HOME", self.path().join("state"));
        command
    }

    pub fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// Returns the output and the exit code, with the path of the workspace replaced.
    pub fn said(&self, words: &[&str]) -> String {
        let said = told(&self.run(words));
        said.replace(&self.path().display().to_string(), "HERE")
    }

    /// The job file that a command line stands for. It is one that `ydl submit` takes as it is.
    pub fn shows(&self, line: &str, expected: Expect) {
        let mut words: Vec<_> = line.split_whitespace().collect();
        words.insert(1, "--show");
        let shown = self.run(&words);
        let page = self.said(&words);
        expected.assert_eq(&page.replace("--show ", ""));
        fs::write(self.path().join("shown.yaml"), &shown.stdout).unwrap();
        let mut again = self.command(&["submit", "--show", "shown.yaml"]);
        // Clusters are asked for nothing; only that there is one must be known.
        if !line.contains("local") {
            let site = "<configuration><property><name>yarn.resourcemanager.address</name>\
                <value>127.0.0.1:1</value></property></configuration>";
            fs::write(self.path().join("core-site.xml"), site).unwrap();
            fs::write(self.path().join("yarn-site.xml"), site).unwrap();
            again.env("HADOOP_CONF_DIR", self.path());
        }
        let again = again.output().unwrap();
        assert_eq!(again.status.code(), Some(0), "{}", told(&again));
    }
}

pub fn told(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let code = output.status.code().unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    format!("{out}{err}exit {code}\n")
}

/// Runs a line to its end, which must be a good one; what it said.
pub fn runs(desk: &Desk, line: &str) -> String {
    let words: Vec<_> = line.split_whitespace().collect();
    let said = desk.said(&words);
    assert!(said.ends_with("exit 0\n"), "{said}");
    said
}
