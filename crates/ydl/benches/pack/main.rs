//! The environment of the MXNet example, packed by ydl, venv-pack and pex in the same run, and its cost on a node.
//!
//! `cargo bench -p ydl --bench pack -- pack` measures only packing, `-- node` only a real cluster. The argument `once` runs
//! everything once, to check that the benchmark works.

#[path = "../yarn/figures.rs"]
#[allow(dead_code)] // Shared with the benchmark `yarn`.
mod figures;
mod node;

use figures::{line, load, median, now_ns, ratio, seconds};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

const YDL: &str = env!("CARGO_BIN_EXE_ydl");
/// Runs of what takes seconds, and of what takes milliseconds.
const SLOW_RUNS: usize = 5;
const QUICK_RUNS: usize = 25;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |word: &str| arguments.iter().any(|argument| argument == word);
    let all = !has("pack") && !has("node");
    let bench = Bench::new(has("once"));
    if all || has("pack") {
        bench.pack();
    }
    if all || has("node") {
        node::measure(&bench);
    }
}

/// The environment in every form, and a directory for the archives.
#[derive(Debug)]
pub struct Bench {
    pub environment: PathBuf,
    pub kinds: PathBuf,
    pub once: bool,
    dir: tempfile::TempDir,
}

impl Bench {
    fn new(once: bool) -> Bench {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let run = |script: &str, arguments: &[&str]| {
            let mut command = Command::new(root.join(script));
            command.args(arguments).current_dir(&root).stderr(Stdio::inherit());
            let output = command.output().expect("a script of the project");
            assert!(output.status.success(), "`{script}` failed");
            PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())
        };
        Bench {
            environment: run("scripts/python-env", &["examples/mxnet-digits/requirements.txt"]),
            kinds: run("scripts/python-fixtures", &[]),
            once,
            dir: tempfile::tempdir().expect("a directory"),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn runs(&self, usual: usize) -> usize {
        match self.once {
            true => 1,
            false => usual,
        }
    }

    fn tool(&self, name: &str) -> Command {
        Command::new(self.kinds.join("tools").join(name))
    }

    /// Returns `ydl pack` with that cache.
    fn ydl(&self, cache: &str, interpreter: &str) -> Command {
        let mut command = Command::new(YDL);
        command.env("XDG_CACHE_HOME", self.path(cache));
        command.arg("pack").arg(&self.environment);
        command.args(["--json", "--interpreter", interpreter]);
        command
    }

    fn venv_pack(&self) -> Command {
        let mut command = self.tool("venv-pack");
        command.arg("-p").arg(&self.environment).arg("-f");
        command.arg("-o").arg(self.path("venv.tar.gz"));
        command
    }

    fn pex(&self, root: &str) -> Command {
        let mut command = self.tool("pex");
        let wheels = self.kinds.join("wheels");
        command.env("PEX_ROOT", self.path(root));
        command.arg("--python").arg(self.environment.join("bin/python"));
        command.arg("--no-pypi").arg("--find-links").arg(wheels);
        command.arg("-r").arg(self.kinds.join("requirements.txt"));
        command.arg("-o").arg(self.path("job.pex"));
        command
    }

    fn bytes(&self, name: &str) -> u64 {
        fs::metadata(self.path(name)).map_or(0, |metadata| metadata.len())
    }

    /// Returns the bytes of the archives in that cache.
    fn packed(&self, cache: &str) -> u64 {
        let all = fs::read_dir(self.path(cache).join("ydl/packed"));
        let all = all.into_iter().flatten().flatten();
        let archives = all.filter(|entry| entry.path().extension().is_some_and(|it| it == "gz"));
        archives.filter_map(|entry| Some(entry.metadata().ok()?.len())).sum()
    }

    /// Measures packing. All files are in the page cache, so that no disk is measured.
    fn pack(&self) {
        let (files, bytes) = size(&self.environment);
        println!("-- packing {files} files of {} MB, load {}", bytes / 1_000_000, load());
        timed(&mut self.ydl("first", "auto"));
        timed(&mut self.venv_pack());
        timed(&mut self.pex("first-pex"));
        let (mut ydl, mut whole, mut venv_packs, mut pexes) = (vec![], vec![], vec![], vec![]);
        for _ in 0..self.runs(SLOW_RUNS) {
            self.remove("cold");
            ydl.push(timed(&mut self.ydl("cold", "node")));
            self.remove("whole");
            whole.push(timed(&mut self.ydl("whole", "auto")));
            venv_packs.push(timed(&mut self.venv_pack()));
            self.remove("cold-pex");
            pexes.push(timed(&mut self.pex("cold-pex")));
        }
        let ydl = line("cold: ydl, without the interpreter, as the others", "s", &ydl);
        line("cold: ydl, with the interpreter", "s", &whole);
        let venv_pack = line("cold: venv-pack", "s", &venv_packs);
        let pex = line("cold: pex, from wheels", "s", &pexes);
        ratio("speedup over venv-pack", venv_pack, ydl);
        ratio("speedup over pex", pex, ydl);
        let mib = |bytes: u64| bytes as f64 / (1 << 20) as f64;
        println!(
            "packed: ydl {:.1} MiB ({:.1} with the interpreter), venv-pack {:.1}, pex {:.1}\n",
            mib(self.packed("cold")),
            mib(self.packed("whole")),
            mib(self.bytes("venv.tar.gz")),
            mib(self.bytes("job.pex")),
        );
        let (mut ydl, mut pexes) = (vec![], vec![]);
        for _ in 0..self.runs(QUICK_RUNS) {
            ydl.push(timed(&mut self.ydl("whole", "auto")));
        }
        for _ in 0..self.runs(SLOW_RUNS) {
            pexes.push(timed(&mut self.pex("cold-pex")));
        }
        let ydl = line("nothing changed: ydl, with the interpreter", "s", &ydl);
        let pex = line("nothing changed: pex, with built wheels", "s", &pexes);
        let venv_pack = median(&venv_packs);
        println!("{:<62} {venv_pack:>8.3} s", "nothing changed: venv-pack, which packs again");
        ratio("speedup over venv-pack", venv_pack, ydl);
        ratio("speedup over pex", pex, ydl);
        println!("load {}\n", load());
    }

    /// Removes a cache.
    pub fn remove(&self, name: &str) {
        // It may not exist.
        let _ = fs::remove_dir_all(self.path(name));
    }
}

fn timed(command: &mut Command) -> f64 {
    // Pending writes of the previous run would be measured, too.
    rustix::fs::sync();
    let began = now_ns();
    let output = command.stdin(Stdio::null()).output().expect("it can be started");
    let took = seconds(began, now_ns());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
    took
}

/// Returns the number of files in a directory, and their bytes.
fn size(dir: &Path) -> (u64, u64) {
    let mut sum = (0, 0);
    for entry in fs::read_dir(dir).expect("a directory").flatten() {
        let metadata = entry.metadata().expect("a file");
        let more = match metadata.is_dir() {
            true => size(&entry.path()),
            false => (1, metadata.len()),
        };
        sum = (sum.0 + more.0, sum.1 + more.1);
    }
    sum
}
