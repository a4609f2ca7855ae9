//! Workspace of the tests: a user's directory with a program.

use expect_test::Expect;
use std::{
    fs,
    path::Path,
    process::{Command, Output},
};
use tempfile::TempDir;

/// A user's directory with a program in it.
pub struct CompatWorkspace {
    dir: TempDir,
}

impl CompatWorkspace {
    pub fn new() -> CompatWorkspace {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("train.py"), "print('trained')\n").unwrap();
        CompatWorkspace { dir }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn file(&self, name: &str) -> &CompatWorkspace {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // An empty file is a valid tar archive.
        let bytes: &[u8] = match name.ends_with(".zip") {
            true => b"PK\x05\x06\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
            false => b"",
        };
        fs::write(path, bytes).unwrap();
        self
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(ydl_testkit::ydl());
        command
            .args(args)
            .current_dir(self.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.path())
            .env("USER", "alice")
            .env("XDG_STATE_HOME", self.path().join("state"));
        command
    }

    pub fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Returns the output and the exit code, with the path of the workspace replaced.
    pub fn output_of(&self, args: &[&str]) -> String {
        let output = render(&self.run(args));
        output.replace(&self.path().display().to_string(), "HERE")
    }

    /// Checks the job file that `--show` prints for a command line, and that `ydl submit` accepts it.
    pub fn shows(&self, line: &str, expected: Expect) {
        let mut args: Vec<_> = line.split_whitespace().collect();
        args.insert(1, "--show");
        let shown = self.run(&args);
        let page = self.output_of(&args);
        expected.assert_eq(&page.replace("--show ", ""));
        fs::write(self.path().join("shown.yaml"), &shown.stdout).unwrap();
        let mut again = self.command(&["submit", "--show", "shown.yaml"]);
        // The cluster is not contacted; only its configuration must exist.
        if !line.contains("local") {
            let site = "<configuration><property><name>yarn.resourcemanager.address</name>\
                <value>127.0.0.1:1</value></property></configuration>";
            fs::write(self.path().join("core-site.xml"), site).unwrap();
            fs::write(self.path().join("yarn-site.xml"), site).unwrap();
            again.env("HADOOP_CONF_DIR", self.path());
        }
        let again = again.output().unwrap();
        assert_eq!(again.status.code(), Some(0), "{}", render(&again));
    }
}

pub fn render(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let code = output.status.code().unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    format!("{out}{err}exit {code}\n")
}

/// Runs a command line, which must succeed. Returns its output.
pub fn run_successfully(workspace: &CompatWorkspace, line: &str) -> String {
    let args: Vec<_> = line.split_whitespace().collect();
    let output = workspace.output_of(&args);
    assert!(output.ends_with("exit 0\n"), "{output}");
    output
}
