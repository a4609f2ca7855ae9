//! Packs byte code next to its source, so that imports are fast on the node.
//!
//! A `.pyc` file records the modification time and length of its source; Python uses it only if both match. In an archive all
//! files have one modification time, so that time is written into the byte code. Sources without matching byte code are
//! compiled by the environment's own interpreter, never inside the environment. Byte code of the user's own code is cached: one
//! changed line then means one file to compile.

use super::{
    archive::cores,
    plan::{EntryKind, Plan, ends},
    stable_file::FileStamp,
};
use ring::digest::{SHA256, digest};
use std::{
    fs::{self, File},
    io::{self, Read, Write},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Size of the header of a `.pyc`: magic, flags, then time and length of the source or its hash.
const HEADER_BYTES: usize = 16;

/// Compiles the files in lines of `[source, target, name]`. Files for another version of Python fail to compile.
const COMPILE: &str = "import sys, json, py_compile
timed = py_compile.PycInvalidationMode.TIMESTAMP
for line in sys.stdin.buffer:
    source, target, name = json.loads(line)
    try:
        py_compile.compile(source, target, name, doraise=True, invalidation_mode=timed)
    except (OSError, py_compile.PyCompileError, ValueError, RecursionError, MemoryError):
        pass
";

/// Source without byte code.
#[derive(Clone, Debug)]
pub(super) struct MissingByteCode {
    name: PathBuf,
    from: PathBuf,
    stamp: FileStamp,
    /// Destination of the byte code.
    code: PathBuf,
}

/// Compiler and its working directories.
#[derive(Clone, Copy, Debug)]
pub(super) struct Compiler<'a> {
    pub python: &'a Path,
    /// Stamp of the interpreter: another one writes other byte code.
    pub python_stamp: FileStamp,
    /// Working directory that no other process uses.
    pub work_dir: &'a Path,
    /// Cache directory of byte code, if any.
    pub cache_dir: Option<&'a Path>,
}

/// Sets the source's modification time in byte code.
pub(super) fn set_time(bytes: &mut [u8], when: u32) {
    if let Some(time) = bytes.get_mut(8..12) {
        time.copy_from_slice(&when.to_le_bytes());
    }
}

/// Keeps the byte code that matches its source and drops the rest. Returns the sources without byte code. `tag` is the
/// interpreter's part of the names, such as `cpython-311`. Optimised byte code is dropped: it is only used by `python -O`, and
/// each source of a standard library has two such files.
pub(super) fn match_sources(plan: &mut Plan, tag: &str) -> Vec<MissingByteCode> {
    let cached = |name: &PathBuf| {
        ends(name, ".pyc") && name.parent().is_some_and(|dir| dir.ends_with("__pycache__"))
    };
    let all: Vec<PathBuf> = plan.entries.keys().filter(|name| cached(name)).cloned().collect();
    for name in all {
        let Some(entry) = plan.entries.get(&name) else {
            continue;
        };
        let source = source_of(&name, tag).filter(|_| !is_optimised(&name));
        let source = source.and_then(|source| plan.entries.get(&source));
        let kind = match (&entry.kind, source.map(|source| &source.kind)) {
            (EntryKind::File { from, stamp }, Some(EntryKind::File { stamp: source, .. })) => {
                matches_source(from, source).map(|timed| match timed {
                    true => EntryKind::ByteCode { from: from.clone(), stamp: *stamp },
                    false => entry.kind.clone(),
                })
            }
            // Compiled below.
            _ => None,
        };
        match (kind, plan.entries.get_mut(&name)) {
            (Some(kind), Some(entry)) => entry.kind = kind,
            _ => drop(plan.entries.remove(&name)),
        }
    }
    missing(plan, tag)
}

fn is_optimised(name: &Path) -> bool {
    let name = name.file_name().unwrap_or_default();
    name.to_string_lossy().contains(".opt-")
}

/// Returns the source of byte code: `a/__pycache__/b.cpython-311.opt-1.pyc` belongs to `a/b.py`.
fn source_of(name: &Path, tag: &str) -> Option<PathBuf> {
    let file = name.file_name()?.to_str()?.strip_suffix(".pyc")?;
    let file = match file.rsplit_once(".opt-") {
        Some((file, _)) => file,
        None => file,
    };
    let stem = file.strip_suffix(tag)?.strip_suffix('.')?;
    let dir = name.parent()?.parent()?;
    Some(dir.join(format!("{stem}.py")))
}

/// Returns whether byte code matches its source: `true` by time and length, `false` by an unchecked hash.
fn matches_source(from: &Path, source: &FileStamp) -> Option<bool> {
    let mut header = [0; HEADER_BYTES];
    File::open(from).ok()?.read_exact(&mut header).ok()?;
    let word = |at: usize| {
        let bytes = header.get(at..at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    };
    match word(4)? {
        0 => {
            let fits = word(8)? == source.modified as u32 && word(12)? == source.bytes as u32;
            fits.then_some(true)
        }
        flags => (flags & 1 == 1).then_some(false),
    }
}

fn missing(plan: &Plan, tag: &str) -> Vec<MissingByteCode> {
    let mut missing = Vec::new();
    for (name, entry) in &plan.entries {
        let (EntryKind::File { from, stamp }, true) = (&entry.kind, ends(name, ".py")) else {
            continue;
        };
        let stem = name.file_stem().and_then(|stem| stem.to_str());
        let (Some(dir), Some(stem)) = (name.parent(), stem) else {
            continue;
        };
        let code = dir.join("__pycache__").join(format!("{stem}.{tag}.pyc"));
        // Scripts are not imported.
        if !plan.entries.contains_key(&code) && !name.starts_with("bin") {
            missing.push(MissingByteCode {
                name: name.clone(),
                from: from.clone(),
                stamp: *stamp,
                code,
            });
        }
    }
    missing
}

impl Compiler<'_> {
    /// Compiles the missing byte code on all cores and adds it to the plan.
    pub(crate) fn compile(&self, plan: &mut Plan, missing: &[MissingByteCode]) -> io::Result<()> {
        let mut uncached = Vec::new();
        for (n, source) in missing.iter().enumerate() {
            let cached = self.cache_path(source);
            // A link of its own is not affected by concurrent cleanups or compilations.
            let link = self.work_dir.join(format!("{n}.cached"));
            match &cached {
                Some(cached) if fs::hard_link(cached, &link).is_ok() => add(plan, source, link),
                _ => uncached.push((source, cached)),
            }
        }
        let target = |n: usize| self.work_dir.join(format!("{n}.pyc"));
        let workers = cores().min(uncached.len().div_ceil(8));
        let mut children = Vec::new();
        for worker in 0..workers {
            let list = self.work_dir.join(format!("list-{worker}"));
            let mut lines = io::BufWriter::new(File::create(&list)?);
            for (n, (source, _)) in uncached.iter().enumerate().skip(worker).step_by(workers) {
                // Names that are not UTF-8 get no byte code.
                if let (Some(from), Some(name)) = (source.from.to_str(), source.name.to_str()) {
                    serde_json::to_writer(&mut lines, &(from, target(n), name))?;
                    lines.write_all(b"\n")?;
                }
            }
            lines.flush()?;
            let child = Command::new(self.python)
                .args(["-I", "-S", "-B", "-X", "utf8", "-W", "ignore", "-c", COMPILE])
                .stdin(File::open(&list)?)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()?;
            children.push(child);
        }
        for mut child in children {
            // A failed compiler leaves files without byte code, which is slower but correct.
            child.wait()?;
        }
        if let Some(dir) = self.cache_dir {
            fs::create_dir_all(dir)?;
        }
        for (n, (source, cached)) in uncached.iter().enumerate() {
            let compiled = target(n);
            if let Some(cached) = cached {
                // An existing file is complete and stays, since another process may be packing it. A file that cannot be
                // cached is compiled again next time.
                let _ = fs::hard_link(&compiled, cached);
            }
            add(plan, source, compiled);
        }
        Ok(())
    }

    /// Returns the path of cached byte code, unique to the source.
    fn cache_path(&self, source: &MissingByteCode) -> Option<PathBuf> {
        let mut key = self.python_stamp.fingerprint().to_vec();
        key.extend(source.stamp.fingerprint());
        key.extend(source.name.as_os_str().as_bytes());
        let key = hex::encode(digest(&SHA256, &key).as_ref());
        Some(self.cache_dir?.join(key))
    }
}

/// Adds compiled byte code to the plan. A source that failed to compile has none.
fn add(plan: &mut Plan, source: &MissingByteCode, from: PathBuf) {
    if let Ok(metadata) = fs::metadata(&from) {
        let stamp = FileStamp::of(&metadata);
        plan.put(source.code.clone(), 0o644, EntryKind::ByteCode { from, stamp });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_code_is_matched_to_its_source() {
        let of = |name: &str| source_of(Path::new(name), "cpython-311");
        assert_eq!(of("a/__pycache__/b.cpython-311.pyc"), Some("a/b.py".into()));
        assert_eq!(of("a/__pycache__/b.cpython-311.opt-2.pyc"), Some("a/b.py".into()));
        assert_eq!(of("__pycache__/x.y.cpython-311.pyc"), Some("x.y.py".into()));
        assert_eq!(of("a/__pycache__/b.cpython-39.pyc"), None);
    }

    #[test]
    fn concurrent_compilations_of_one_source_do_not_interfere() {
        let dir = tempfile::tempdir().expect("a directory");
        let (tree, cache_dir) = (dir.path().join("tree"), dir.path().join("cache"));
        fs::create_dir(&tree).expect("a directory");
        fs::write(tree.join("mine.py"), "word = 1\n").expect("a source");
        let python = super::super::build::find_program("python3").expect("a Python");
        let python_stamp = FileStamp::of(&fs::metadata(&python).expect("a file"));
        let compile = |name: &str| {
            let work_dir = dir.path().join(name);
            fs::create_dir(&work_dir).expect("a directory");
            let mut plan = Plan::of(&tree).expect("a plan");
            let missing = match_sources(&mut plan, "cpython-311");
            let compiler = Compiler {
                python: &python,
                python_stamp,
                work_dir: &work_dir,
                cache_dir: Some(&cache_dir),
            };
            compiler.compile(&mut plan, &missing).expect("byte code");
            plan
        };
        let archive = |plan: &Plan| {
            let mut bytes = Vec::new();
            plan.write(&mut bytes).expect("an archive");
            bytes
        };
        let one = compile("one");
        // The second compilation starts with an empty cache, the third finds the second's byte code.
        fs::remove_dir_all(&cache_dir).expect("a cache");
        let two = compile("two");
        let three = compile("three");
        fs::remove_dir_all(&cache_dir).expect("a cache");
        let first = archive(&one);
        assert_eq!(archive(&two), first);
        assert_eq!(archive(&three), first, "cached byte code is the same");
        assert!(first.windows(13).any(|part| part == b"__pycache__/m"));
    }

    #[test]
    fn only_matching_byte_code_is_kept() {
        let dir = tempfile::tempdir().expect("a directory");
        let cache = dir.path().join("__pycache__");
        fs::create_dir(&cache).expect("a directory");
        for name in ["fits", "old", "hashed", "bare"] {
            fs::write(dir.path().join(format!("{name}.py")), "x = 1\n").expect("a source");
        }
        let modified =
            FileStamp::of(&fs::metadata(dir.path().join("fits.py")).expect("a file")).modified;
        let code = |name: &str, flags: u32, time: u32| {
            let mut bytes = vec![1, 2, 3, 4];
            for word in [flags, time, 6] {
                bytes.extend(word.to_le_bytes());
            }
            fs::write(cache.join(format!("{name}.cpython-311.pyc")), bytes).expect("byte code");
        };
        code("fits", 0, modified as u32);
        code("old", 0, 77);
        code("hashed", 3, 123);
        code("orphan", 0, 5);
        let fits = cache.join("fits.cpython-311.pyc");
        fs::copy(fits, cache.join("fits.cpython-311.opt-1.pyc")).expect("byte code");
        fs::write(cache.join("fits.cpython-39.pyc"), "other").expect("byte code");
        let mut plan = Plan::of(dir.path()).expect("a plan");
        let missing = match_sources(&mut plan, "cpython-311");
        let missing: Vec<_> =
            missing.iter().map(|source| source.name.display().to_string()).collect();
        assert_eq!(missing, ["bare.py", "old.py"]);
        let kept: Vec<_> = plan.entries.keys().filter(|name| ends(name, ".pyc")).collect();
        assert_eq!(kept.len(), 2, "{kept:?}");
    }
}
