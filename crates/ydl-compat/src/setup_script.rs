//! Shell script that prepares a task's directory before its program starts.
//!
//! The directory contains links to the job's files, which all tasks share, and to mounted disks. The script runs again after a
//! restart of the task. So it never writes or removes anything behind a link.

use super::text::shell_quoted;

/// Fails if a directory above a mount is a link.
const NO_LINK: &str = "no_link() { [ ! -L \"$1\" ] || { echo \"$0: $1 is a link, so nothing is mounted below it\" >&2; false; }; }";
/// Removes links to files that an archive replaces, as tar does, and fails if it would write into a linked directory.
const REMOVE_LINKS: &str = "remove_links() { while IFS= read -r it; do it=${it#./}; top=${it%%/*}; [ -L \"$top\" ] || continue; \
                    if [ \"$it\" != \"$top\" ] && [ -d \"$top\" ]; then \
                    echo \"$0: $1 contains $it, but $top is a file of the job\" >&2; return 1; fi; rm -f \"./$top\"; done; }";
const LIST: &str =
    "import sys, zipfile; print(*zipfile.ZipFile(sys.argv[1]).namelist(), sep=\"\\n\")";

/// Steps, each of which must succeed.
#[derive(Clone, Debug, Default)]
pub(crate) struct SetupScript {
    functions: Vec<&'static str>,
    /// Steps that undo an earlier run, so that a restart begins like the first start.
    undo: Vec<String>,
    steps: Vec<String>,
}

impl SetupScript {
    /// Adds a step.
    pub(crate) fn step(&mut self, step: String) {
        self.steps.push(step);
    }

    /// Unpacks an archive in the task's directory.
    pub(crate) fn unpack(&mut self, name: &str) -> Result<(), String> {
        let path = shell_quoted(&format!("./{name}"));
        // `unzip` may be missing on nodes.
        let (list, unpack) = match () {
            () if name.ends_with(".zip") => (
                format!("{{ unzip -Z1 {path} 2>/dev/null || python3 -c '{LIST}' {path}; }}"),
                format!("{{ unzip -qo {path} || python3 -m zipfile -e {path} .; }}"),
            ),
            () if name.contains(".tar") || name.ends_with(".tgz") => {
                (format!("tar -tf {path}"), format!("tar -xf {path}"))
            }
            () => return Err(format!("`{name}` is neither a `.zip` nor a `.tar…`")),
        };
        self.define(REMOVE_LINKS);
        self.step(format!("{list} | remove_links {} && {unpack}", shell_quoted(name)));
        Ok(())
    }

    /// Replaces `target`, below the task's directory, by a link.
    pub(crate) fn link(&mut self, source: &str, target: &str) {
        let relative = |path: &str| shell_quoted(&format!("./{path}"));
        let parents = target.match_indices('/').map(|(at, _)| &target[..at]);
        let parents: Vec<_> = parents.collect();
        let checks = parents.iter().map(|path| format!("no_link {}", relative(path)));
        let mut step: Vec<_> = checks.collect();
        if !step.is_empty() {
            self.define(NO_LINK);
        }
        let (link, to) = (relative(target), shell_quoted(source));
        let mut undo = step.clone();
        undo.push(format!("{{ [ ! -L {link} ] || rm -f {link}; }}"));
        self.undo.push(undo.join(" && "));
        let parent = parents.last();
        step.extend(parent.map(|path| format!("mkdir -p {}", relative(path))));
        step.push(format!("rm -rf {link} && ln -s {to} {link}"));
        self.step(step.join(" && "));
    }

    fn define(&mut self, function: &'static str) {
        if !self.functions.contains(&function) {
            self.functions.push(function);
        }
    }

    /// Returns the script, which ends by starting the program in its arguments, or `None` without steps.
    pub(crate) fn text(&self) -> Option<String> {
        if self.steps.is_empty() {
            return None;
        }
        let mut text = String::new();
        for function in &self.functions {
            text += &format!("{function}; ");
        }
        let steps = self.undo.iter().chain(&self.steps);
        let steps: Vec<_> = steps.map(String::as_str).collect();
        Some(format!("{text}{} && exec \"$@\"", steps.join(" && ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink, path::Path, process::Command};

    /// Runs a script in a directory. Returns true if its program was started, and its stderr.
    fn run(script: &SetupScript, dir: &Path) -> (bool, String) {
        let text = script.text().unwrap();
        let output = Command::new("/bin/sh")
            .args(["-c", &text, "command", "true"])
            .current_dir(dir)
            .output()
            .unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    fn run_program(program: &str, words: &[&str], dir: &Path) {
        let status = Command::new(program).args(words).current_dir(dir).status();
        assert!(status.unwrap().success(), "{program} {words:?}");
    }

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn files_behind_links_are_neither_removed_nor_written() {
        let (disk, work) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (disk, work) = (disk.path(), work.path());
        let user_file = disk.join("sub/mine");
        write(&user_file, "mine");
        let source = disk.display().to_string();
        // A link above a mount.
        symlink(disk, work.join("data")).unwrap();
        let mut script = SetupScript::default();
        script.link(&source, "data/sub");
        let (started, stderr) = run(&script, work);
        assert!(!started && stderr.contains("command: ./data is a link"), "{stderr}");
        assert_eq!(fs::read_to_string(&user_file).unwrap(), "mine");
        // A mount replaces existing files, also in a second run and if an archive contains files of that name.
        fs::remove_file(work.join("data")).unwrap();
        write(&work.join("packed/data/sub/mine"), "packed");
        run_program("tar", &["-cf", "../code.tar", "data/sub/mine"], &work.join("packed"));
        let mut script = SetupScript::default();
        script.unpack("code.tar").unwrap();
        script.link(&source, "data");
        script.link(&source, "deep/er/place");
        for _ in 0..2 {
            let (started, stderr) = run(&script, work);
            assert!(started, "{stderr}");
            assert_eq!(fs::read_link(work.join("data")).unwrap(), disk);
            assert_eq!(fs::read_link(work.join("deep/er/place")).unwrap(), disk);
            assert_eq!(fs::read_to_string(&user_file).unwrap(), "mine");
        }
    }

    #[test]
    fn archives_replace_links_to_files_and_leave_linked_directories_unchanged() {
        let (job, work) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (job, work) = (job.path(), work.path());
        write(&job.join("train.py"), "shared");
        write(&job.join("lib/a.py"), "shared");
        for name in ["train.py", "lib"] {
            symlink(job.join(name), work.join(name)).unwrap();
        }
        let packed = work.join("packed");
        write(&packed.join("train.py"), "packed");
        write(&packed.join("lib/a.py"), "packed");
        run_program("tar", &["-czf", "../one.tar.gz", "./train.py"], &packed);
        run_program("tar", &["-cf", "../both.tar", "train.py", "lib"], &packed);
        let zip = ["-m", "zipfile", "-c"];
        run_program("python3", &[&zip[..], &["../one.zip", "train.py"]].concat(), &packed);
        run_program("python3", &[&zip[..], &["../both.zip", "lib"]].concat(), &packed);
        let unpacked = |name: &str| {
            let mut script = SetupScript::default();
            script.unpack(name).unwrap();
            run(&script, work)
        };
        for name in ["one.tar.gz", "one.zip"] {
            let (started, stderr) = unpacked(name);
            assert!(started, "{stderr}");
            let text = fs::read_to_string(work.join("train.py")).unwrap();
            assert_eq!(text, "packed", "{name}");
            fs::remove_file(work.join("train.py")).unwrap();
            symlink(job.join("train.py"), work.join("train.py")).unwrap();
        }
        for name in ["both.tar", "both.zip"] {
            let (started, stderr) = unpacked(name);
            let expected = format!("command: {name} contains lib/");
            assert!(!started && stderr.contains(&expected), "{stderr}");
        }
        for name in ["train.py", "lib/a.py"] {
            assert_eq!(fs::read_to_string(job.join(name)).unwrap(), "shared");
        }
        let (started, _) = unpacked("none.tar");
        assert!(!started, "a missing archive is an error");
        assert!(SetupScript::default().unpack("code.rar").is_err());
    }
}
