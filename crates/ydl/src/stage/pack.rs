//! A directory as an archive that is always the same for the same content, whoever packs it when.

use crate::{os::reason, report::Report};
use std::{
    fs::{self, File, Metadata},
    io::{self, Read, Write},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Component, Path, PathBuf},
};
use tar::{Builder, EntryType, Header};

/// Deeper than any sensible directory.
const DEPTH_MAX: usize = 100;
/// An archive of more entries than this takes a node longer to unpack than a job should wait.
const ENTRIES_MAX: usize = 500_000;

/// What goes into the archive of a directory, in its order.
#[derive(Debug)]
pub(super) struct Plan {
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    name: PathBuf,
    mode: u32,
    what: What,
}

#[derive(Debug)]
enum What {
    Directory,
    File { from: PathBuf, was: Stamp },
    Link { to: PathBuf },
}

/// By which a file is known to be the same still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub bytes: u64,
    changed: (i64, i64),
    inode: (u64, u64),
}

impl Stamp {
    pub fn of(about: &Metadata) -> Stamp {
        Stamp {
            bytes: about.len(),
            changed: (about.ctime(), about.ctime_nsec()),
            inode: (about.dev(), about.ino()),
        }
    }
}

impl Plan {
    /// Looks through a directory. Links inside it stay links; links that lead out of it to files become those files,
    /// because what they lead to is not on the nodes. What is neither file, directory nor link is nobody's data.
    pub fn of(root: &Path) -> Result<Plan, Report> {
        let real = root.canonicalize().map_err(|error| unread(root, &error))?;
        let mut plan = Plan {
            entries: Vec::new(),
        };
        plan.add_directory(&real, &real, Path::new(""), 0)?;
        Ok(plan)
    }

    fn add_directory(
        &mut self,
        root: &Path,
        dir: &Path,
        name: &Path,
        depth: usize,
    ) -> Result<(), Report> {
        if depth > DEPTH_MAX {
            let what = format!("cannot pack `{}`: it is nested too deep", dir.display());
            return Err(Report::bad_input(what));
        }
        let listing = fs::read_dir(dir).map_err(|error| unread(dir, &error))?;
        let mut names = Vec::new();
        for entry in listing {
            names.push(entry.map_err(|error| unread(dir, &error))?.file_name());
        }
        names.sort();
        for one in names {
            if self.entries.len() >= ENTRIES_MAX {
                let what = format!(
                    "cannot pack `{}`: it has more than {ENTRIES_MAX} files",
                    root.display()
                );
                let hint = "leave out what the job does not need, or name what it needs one by one";
                return Err(Report::bad_input(what).hint(hint));
            }
            self.add(root, &dir.join(&one), name.join(&one), depth)?;
        }
        Ok(())
    }

    fn add(&mut self, root: &Path, path: &Path, name: PathBuf, depth: usize) -> Result<(), Report> {
        let about = fs::symlink_metadata(path).map_err(|error| unread(path, &error))?;
        let mode = about.permissions().mode() & 0o777;
        if about.is_dir() {
            // Whoever unpacks it must be able to write into it.
            let entry = Entry {
                name: name.clone(),
                mode: mode | 0o700,
                what: What::Directory,
            };
            self.entries.push(entry);
            return self.add_directory(root, path, &name, depth + 1);
        }
        let what = if about.is_symlink() {
            match self.led_to(root, path)? {
                Some(what) => what,
                None => return Ok(()),
            }
        } else if about.is_file() {
            let from = path.to_path_buf();
            let was = Stamp::of(&about);
            What::File { from, was }
        } else {
            return Ok(());
        };
        let mode = match &what {
            What::Link { .. } => 0o777,
            _ if about.is_symlink() => {
                fs::metadata(path)
                    .map_err(|error| unread(path, &error))?
                    .permissions()
                    .mode()
                    & 0o777
            }
            _ => mode,
        };
        self.entries.push(Entry { name, mode, what });
        Ok(())
    }

    /// What a link stands for; nothing if it leads nowhere.
    fn led_to(&self, root: &Path, path: &Path) -> Result<Option<What>, Report> {
        let Ok(target) = path.canonicalize() else {
            return Ok(None);
        };
        if let Ok(inside) = target.strip_prefix(root) {
            let from = path.parent().and_then(|dir| dir.strip_prefix(root).ok());
            let to = relative(from.unwrap_or(Path::new("")), inside);
            return Ok(Some(What::Link { to }));
        }
        let about = fs::metadata(&target).map_err(|error| unread(path, &error))?;
        if about.is_dir() {
            let what = format!(
                "cannot pack `{}`: it leads out of the directory to `{}`",
                path.display(),
                target.display()
            );
            let hint = "put the directory itself there, or name it as a file of its own";
            return Err(Report::bad_input(what).hint(hint));
        }
        let was = Stamp::of(&about);
        Ok(about.is_file().then_some(What::File { from: target, was }))
    }

    /// Writes the archive. A file that is not what it was when the plan was made is an error.
    pub fn write(&self, out: impl Write) -> io::Result<()> {
        let mut archive = Builder::new(out);
        for entry in &self.entries {
            let mut header = Header::new_gnu();
            header.set_mode(entry.mode);
            header.set_mtime(0);
            header.set_uid(0);
            header.set_gid(0);
            match &entry.what {
                What::Directory => {
                    header.set_entry_type(EntryType::Directory);
                    header.set_size(0);
                    archive.append_data(&mut header, &entry.name, io::empty())?;
                }
                What::Link { to } => {
                    header.set_entry_type(EntryType::Symlink);
                    header.set_size(0);
                    archive.append_link(&mut header, &entry.name, to)?;
                }
                What::File { from, was } => {
                    header.set_entry_type(EntryType::Regular);
                    header.set_size(was.bytes);
                    let file = Same::open(from, *was)?;
                    archive.append_data(&mut header, &entry.name, file)?;
                }
            }
        }
        archive.finish()
    }
}

/// A file that must be what it was, from its first byte to its last.
#[derive(Debug)]
pub(super) struct Same {
    file: File,
    path: PathBuf,
    was: Stamp,
    left: u64,
}

impl Same {
    pub fn open(path: &Path, was: Stamp) -> io::Result<Same> {
        let file = File::open(path).map_err(|error| {
            let what = format!("cannot read `{}`: {}", path.display(), reason(&error));
            io::Error::other(what)
        })?;
        let same = Same {
            file,
            path: path.to_path_buf(),
            was,
            left: was.bytes,
        };
        same.check()?;
        Ok(same)
    }

    fn check(&self) -> io::Result<()> {
        match Stamp::of(&self.file.metadata()?) == self.was {
            true => Ok(()),
            false => Err(self.changed()),
        }
    }

    fn changed(&self) -> io::Error {
        io::Error::other(format!(
            "`{}` changed while it was read",
            self.path.display()
        ))
    }
}

impl Read for Same {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(self.left.min(usize::MAX as u64) as usize);
        if most == 0 {
            return self.check().map(|()| 0);
        }
        let read = self.file.read(&mut buffer[..most])?;
        if read == 0 {
            return Err(self.changed());
        }
        self.left -= read as u64;
        Ok(read)
    }
}

/// The way from one directory below a root to something else below it.
fn relative(from: &Path, to: &Path) -> PathBuf {
    let parts = |path: &'_ Path| -> Vec<PathBuf> {
        let normal = path
            .components()
            .filter(|one| matches!(one, Component::Normal(_)));
        normal.map(|one| PathBuf::from(one.as_os_str())).collect()
    };
    let (from, to) = (parts(from), parts(to));
    let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
    let mut way: PathBuf = from[common..].iter().map(|_| "..").collect();
    way.extend(&to[common..]);
    match way.as_os_str().is_empty() {
        true => PathBuf::from("."),
        false => way,
    }
}

fn unread(path: &Path, error: &io::Error) -> Report {
    let what = format!("cannot read `{}`: {}", path.display(), reason(error));
    Report::bad_input(what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn packed(dir: &Path) -> Vec<u8> {
        let mut bytes = Vec::new();
        Plan::of(dir)
            .expect("a plan")
            .write(&mut bytes)
            .expect("an archive");
        bytes
    }

    fn fill(dir: &Path, names: &[&str]) {
        fs::create_dir_all(dir.join("sub")).expect("a directory");
        for name in names {
            fs::write(dir.join(name), format!("this is {name}")).expect("a file");
        }
        symlink("sub", dir.join("alias")).expect("a link");
    }

    #[test]
    fn the_same_content_is_the_same_archive() {
        let scratch = tempfile::tempdir().expect("a directory");
        let (one, two) = (scratch.path().join("one"), scratch.path().join("two"));
        fill(&one, &["b", "a", "sub/c"]);
        fill(&two, &["sub/c", "a", "b"]);
        assert_eq!(
            packed(&one),
            packed(&two),
            "whatever the order and the time"
        );
        fs::set_permissions(two.join("a"), fs::Permissions::from_mode(0o755)).expect("a mode");
        assert_ne!(packed(&one), packed(&two), "but not whatever the mode");
    }

    #[test]
    fn what_is_unpacked_is_what_was_packed() {
        let scratch = tempfile::tempdir().expect("a directory");
        let dir = scratch.path().join("in");
        fill(&dir, &["a", "sub/c"]);
        let long = "x".repeat(200);
        fs::write(dir.join("sub").join(&long), "long").expect("a file");
        fs::write(scratch.path().join("out-there"), "outside").expect("a file");
        symlink("../out-there", dir.join("followed")).expect("a link");
        symlink(dir.join("a"), dir.join("sub/up")).expect("a link");
        symlink("nowhere", dir.join("dangling")).expect("a link");
        let out = scratch.path().join("out");
        tar::Archive::new(packed(&dir).as_slice())
            .unpack(&out)
            .expect("unpacked");
        let read = |name: &str| fs::read_to_string(out.join(name)).expect("a file");
        assert_eq!(read("sub/c"), "this is sub/c");
        assert_eq!(read("alias/c"), "this is sub/c");
        assert_eq!(read("followed"), "outside");
        assert!(!out.join("followed").is_symlink());
        assert_eq!(
            fs::read_link(out.join("sub/up")).expect("a link"),
            Path::new("../a")
        );
        assert_eq!(read(&format!("sub/{long}")), "long");
        assert!(!out.join("dangling").is_symlink());
    }

    #[test]
    fn a_link_out_to_a_directory_is_refused() {
        let scratch = tempfile::tempdir().expect("a directory");
        let dir = scratch.path().join("in");
        fill(&dir, &[]);
        fs::create_dir(scratch.path().join("elsewhere")).expect("a directory");
        symlink("../elsewhere", dir.join("away")).expect("a link");
        let report = Plan::of(&dir).expect_err("refused");
        assert!(
            report.what.contains("leads out of the directory"),
            "{report}"
        );
    }

    #[test]
    fn a_file_that_changes_while_it_is_read_is_refused() {
        let scratch = tempfile::tempdir().expect("a directory");
        fill(scratch.path(), &["a"]);
        let plan = Plan::of(scratch.path()).expect("a plan");
        fs::write(scratch.path().join("a"), "something longer than before").expect("a file");
        let error = plan.write(io::sink()).expect_err("refused");
        assert!(
            error.to_string().contains("changed while it was read"),
            "{error}"
        );
    }
}
