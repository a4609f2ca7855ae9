//! Shell script that prepares a task's directory before its program starts.
//!
//! That directory is full of links: to the job's files, which all tasks share, and to disks that the user has mounted. A
//! task may do all of it again there, after a restart. So nothing here writes or removes anything behind a link.

use super::sheet::quoted;

/// Fails where a directory on the way to a mount is a link.
const NO_LINK: &str = "no_link() { [ ! -L \"$1\" ] || { echo \"$0: $1 is a link: nothing is mounted behind it\" >&2; false; }; }";
/// Makes room for the names of an archive: links to single files go, as tar has it; behind those to directories nothing is put.
const ROOM: &str = "room() { while IFS= read -r it; do it=${it#./}; top=${it%%/*}; [ -L \"$top\" ] || continue; \
                    if [ \"$it\" != \"$top\" ] && [ -d \"$top\" ]; then \
                    echo \"$0: $1 has $it, and $top is one of the job's files\" >&2; return 1; fi; rm -f \"./$top\"; done; }";
const LIST: &str =
    "import sys, zipfile; print(*zipfile.ZipFile(sys.argv[1]).namelist(), sep=\"\\n\")";

/// The steps, each of which must succeed.
#[derive(Clone, Debug, Default)]
pub struct Script {
    functions: Vec<&'static str>,
    /// Steps that undo an earlier run, so that a restart begins like the first start.
    undo: Vec<String>,
    steps: Vec<String>,
}

impl Script {
    /// One more step.
    pub fn step(&mut self, step: String) {
        self.steps.push(step);
    }

    /// Unpacks an archive that lies in the task's directory.
    pub fn unpack(&mut self, name: &str) -> Result<(), String> {
        let own = quoted(&format!("./{name}"));
        // Not every node has `unzip`.
        let (list, unpack) = match () {
            () if name.ends_with(".zip") => (
                format!("{{ unzip -Z1 {own} 2>/dev/null || python3 -c '{LIST}' {own}; }}"),
                format!("{{ unzip -qo {own} || python3 -m zipfile -e {own} .; }}"),
            ),
            () if name.contains(".tar") || name.ends_with(".tgz") => {
                (format!("tar -tf {own}"), format!("tar -xf {own}"))
            }
            () => return Err(format!("`{name}` is neither a `.zip` nor a `.tar…`")),
        };
        self.needs(ROOM);
        self.step(format!("{list} | room {} && {unpack}", quoted(name)));
        Ok(())
    }

    /// Puts a link in place of what is at `target`, below the task's directory.
    pub fn link(&mut self, source: &str, target: &str) {
        let place = |path: &str| quoted(&format!("./{path}"));
        let above = target.match_indices('/').map(|(at, _)| &target[..at]);
        let above: Vec<_> = above.collect();
        let way = above.iter().map(|path| format!("no_link {}", place(path)));
        let mut way: Vec<_> = way.collect();
        if !way.is_empty() {
            self.needs(NO_LINK);
        }
        let (own, to) = (place(target), quoted(source));
        let mut undo = way.clone();
        undo.push(format!("{{ [ ! -L {own} ] || rm -f {own}; }}"));
        self.undo.push(undo.join(" && "));
        let parent = above.last();
        way.extend(parent.map(|path| format!("mkdir -p {}", place(path))));
        way.push(format!("rm -rf {own} && ln -s {to} {own}"));
        self.step(way.join(" && "));
    }

    fn needs(&mut self, function: &'static str) {
        if !self.functions.contains(&function) {
            self.functions.push(function);
        }
    }

    /// The whole of it, which ends with the program whose words follow; nothing where there is nothing to do.
    pub fn text(&self) -> Option<String> {
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

    /// Runs it in a directory; whether it came to its program, and what it said.
    fn run(script: &Script, dir: &Path) -> (bool, String) {
        let text = script.text().unwrap();
        let ran = Command::new("/bin/sh")
            .args(["-c", &text, "door", "true"])
            .current_dir(dir)
            .output()
            .unwrap();
        (ran.status.success(), String::from_utf8_lossy(&ran.stderr).into_owned())
    }

    fn made(program: &str, words: &[&str], dir: &Path) {
        let made = Command::new(program).args(words).current_dir(dir).status();
        assert!(made.unwrap().success(), "{program} {words:?}");
    }

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn what_lies_behind_a_link_is_neither_removed_nor_written() {
        let (disk, work) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (disk, work) = (disk.path(), work.path());
        let mine = disk.join("sub/mine");
        write(&mine, "mine");
        let source = disk.display().to_string();
        // A link that came from elsewhere, on the way to a mount.
        symlink(disk, work.join("data")).unwrap();
        let mut script = Script::default();
        script.link(&source, "data/sub");
        let (came, said) = run(&script, work);
        assert!(!came && said.contains("door: ./data is a link"), "{said}");
        assert_eq!(fs::read_to_string(&mine).unwrap(), "mine");
        // A mount is a link, whatever was there; a second time, too, although an archive has something of that name.
        fs::remove_file(work.join("data")).unwrap();
        write(&work.join("packed/data/sub/mine"), "theirs");
        made("tar", &["-cf", "../code.tar", "data/sub/mine"], &work.join("packed"));
        let mut script = Script::default();
        script.unpack("code.tar").unwrap();
        script.link(&source, "data");
        script.link(&source, "deep/er/place");
        for _ in 0..2 {
            let (came, said) = run(&script, work);
            assert!(came, "{said}");
            assert_eq!(fs::read_link(work.join("data")).unwrap(), disk);
            assert_eq!(fs::read_link(work.join("deep/er/place")).unwrap(), disk);
            assert_eq!(fs::read_to_string(&mine).unwrap(), "mine");
        }
    }

    #[test]
    fn archives_replace_links_to_files_and_put_nothing_into_the_job_s_directories() {
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
        made("tar", &["-czf", "../one.tar.gz", "./train.py"], &packed);
        made("tar", &["-cf", "../both.tar", "train.py", "lib"], &packed);
        let zip = ["-m", "zipfile", "-c"];
        made("python3", &[&zip[..], &["../one.zip", "train.py"]].concat(), &packed);
        made("python3", &[&zip[..], &["../both.zip", "lib"]].concat(), &packed);
        let unpacked = |name: &str| {
            let mut script = Script::default();
            script.unpack(name).unwrap();
            run(&script, work)
        };
        for name in ["one.tar.gz", "one.zip"] {
            let (came, said) = unpacked(name);
            assert!(came, "{said}");
            let text = fs::read_to_string(work.join("train.py")).unwrap();
            assert_eq!(text, "packed", "{name}");
            fs::remove_file(work.join("train.py")).unwrap();
            symlink(job.join("train.py"), work.join("train.py")).unwrap();
        }
        for name in ["both.tar", "both.zip"] {
            let (came, said) = unpacked(name);
            let told = format!("door: {name} has lib/");
            assert!(!came && said.contains(&told), "{said}");
        }
        for name in ["train.py", "lib/a.py"] {
            assert_eq!(fs::read_to_string(job.join(name)).unwrap(), "shared");
        }
        let (came, _) = unpacked("none.tar");
        assert!(!came, "what is not there is no archive");
        assert!(Script::default().unpack("code.rar").is_err());
    }
}
