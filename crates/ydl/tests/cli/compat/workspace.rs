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
            .env("HOME", self.path().join(".home"))
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
        // The cluster is not contacted; only its configuration must exist.
        let on_cluster = |args: &[&str]| match line.contains("local") {
            true => self.command(args),
            false => self.cluster_command(args),
        };
        let shown = on_cluster(&args).output().unwrap();
        let page = render(&shown).replace(&self.path().display().to_string(), "HERE");
        expected.assert_eq(&page.replace("--show ", ""));
        let file = self.path().join("shown.yaml");
        fs::write(&file, &shown.stdout).unwrap();
        let again = on_cluster(&["submit", "--show", "shown.yaml"]).output().unwrap();
        assert_eq!(again.status.code(), Some(0), "{}", render(&again));
        fs::remove_file(file).unwrap();
    }

    /// Returns a command with the configuration of a cluster that does not exist.
    pub fn cluster_command(&self, args: &[&str]) -> Command {
        let site = "<configuration><property><name>yarn.resourcemanager.address</name>\
            <value>127.0.0.1:1</value></property></configuration>";
        let dir = self.path().join(".hadoop");
        fs::create_dir_all(&dir).unwrap();
        for name in ["core-site.xml", "yarn-site.xml"] {
            fs::write(dir.join(name), site).unwrap();
        }
        let mut command = self.command(args);
        command.env("HADOOP_CONF_DIR", dir);
        command
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
