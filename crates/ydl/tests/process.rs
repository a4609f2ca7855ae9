//! The agent's hands with real processes: started, stopped, killed, orphaned.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use ydl::agent::measure::Meter;
use ydl::agent::output::{OutputSpec, Rotation};
use ydl::agent::program::{Program, ProgramSpec, StartError};
use ydl::agent::shim_protocol::ShimExit;
use ydl::agent::{outputs, program};
use ydl::logs::{Chunk, LogReader};
use ydl_os::process::{Identity, Signal};

/// Far more than anything here takes; reached only when something is wrong.
const PATIENCE: Duration = Duration::from_secs(20);

/// A directory for one program, and the program's specification.
struct Place {
    dir: TempDir,
    rotation: Rotation,
}

impl Place {
    fn new() -> Place {
        Place { dir: TempDir::new().unwrap(), rotation: Rotation::default() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn spec(&self, argv: &[&str]) -> ProgramSpec {
        let path = std::env::var("PATH").unwrap();
        ProgramSpec {
            each: Vec::new(),
            argv: argv.iter().map(|argument| argument.to_string()).collect(),
            env: BTreeMap::from([("PATH".into(), path)]),
            cwd: self.dir.path().into(),
            shim: ydl_testkit::ydl(),
            container: None,
            grace: PATIENCE,
        }
    }

    async fn try_start(&self, spec: ProgramSpec) -> Result<Program, StartError> {
        let output = OutputSpec { dir: self.path("logs"), rotation: self.rotation };
        Program::start(spec, output).await
    }

    async fn start(&self, argv: &[&str]) -> Program {
        self.try_start(self.spec(argv)).await.unwrap()
    }

    async fn sh(&self, script: &str) -> Program {
        self.start(&["sh", "-c", script]).await
    }

    async fn run(&self, script: &str) -> ShimExit {
        self.sh(script).await.wait().await
    }

    fn log(&self, stream: &str) -> Vec<u8> {
        let mut reader = LogReader::new(self.path("logs"), stream, 0);
        let mut all = Vec::new();
        while let Chunk::Data { bytes, .. } = reader.read_some().unwrap() {
            all.extend(bytes);
        }
        all
    }

    /// The process whose pid a script writes, with a line end, into the file `name`.
    fn process(&self, name: &str) -> Identity {
        let path = self.path(name);
        until(&format!("a pid in {name}"), || {
            let text = std::fs::read_to_string(&path).ok()?;
            let pid = text.strip_suffix('\n')?.trim().parse().ok()?;
            Identity::of(pid)
        })
    }

    /// Writes a file to be executed, through another process: a descriptor open for writing here
    /// could be inherited by what another test starts just then, and the file would be busy.
    fn script(&self, name: &str, content: &[u8], mode: u32) -> String {
        let mut writer = Command::new("sh")
            .args(["-c", "cat > \"$0\" && chmod \"$1\" \"$0\""])
            .arg(self.path(name))
            .arg(format!("{mode:o}"))
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        writer.stdin.take().unwrap().write_all(content).unwrap();
        assert!(writer.wait().unwrap().success());
        format!("./{name}")
    }
}

/// Waits for a fact.
fn until<T>(what: &str, mut fact: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = fact() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} did not come about");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn until_gone(process: Identity) {
    until(&format!("the end of {process:?}"), || (!process.is_alive()).then_some(()));
}

/// Runs a scene in a process of its own: this test binary again, with this one test.
/// `prepare` changes how that process is started.
fn alone(test: &str, scene: impl AsyncFnOnce(), prepare: impl FnOnce(Command) -> Command) {
    const SCENE: &str = "HANDS_SCENE";
    if std::env::var(SCENE).as_deref() == Ok(test) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        return runtime.block_on(scene());
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture"]).env(SCENE, test);
    let output = prepare(command).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{test}: {}\n{said}", output.status);
    let ran = String::from_utf8_lossy(&output.stdout);
    assert!(ran.contains("1 passed"), "{test} is not the name of this test: {ran}");
}

/// Starts a daemon as daemons do: forked twice, in a session of its own, its parent gone.
const DAEMON: &str = "setsid sh -c 'sleep 1000 & echo $! > daemon' & wait $!";

#[tokio::test]
async fn exit_codes_and_signals_are_told() {
    let place = Place::new();
    let exit = place.run("echo out; echo one >&2; echo two >&2; exit 7").await;
    assert_eq!((exit.code, exit.signal), (Some(7), None));
    assert_eq!(exit.stderr_tail, "one\ntwo");
    assert_eq!(place.log("stdout"), b"out\n");
    assert_eq!(place.log("stderr"), b"one\ntwo\n");
    assert!(exit.peak_memory_bytes > 100_000);

    let exit = place.run("kill -SEGV $$").await;
    assert_eq!((exit.code, exit.signal, exit.shim_lost), (None, Some(11), false));
    assert_eq!(place.run("").await.code, Some(0));
}

#[tokio::test]
async fn the_program_gets_exactly_its_environment_and_nothing_on_stdin() {
    let place = Place::new();
    let mut spec = place.spec(&["/bin/sh", "-c", "pwd -P; cat; exec env", "name", "ünï"]);
    spec.env =
        BTreeMap::from([("B".into(), "two words\nand lines".into()), ("A".into(), "".into())]);
    let mut program = place.try_start(spec).await.unwrap();
    assert_eq!(program.wait().await.code, Some(0));
    let said = String::from_utf8(place.log("stdout")).unwrap();
    let dir = place.dir.path().canonicalize().unwrap();
    let mut lines: Vec<&str> = said.lines().collect();
    // The shell adds this one.
    lines.retain(|line| !line.starts_with("PWD="));
    assert_eq!(lines, [dir.to_str().unwrap(), "A=", "B=two words", "and lines"]);
}

#[tokio::test]
async fn the_program_is_asked_to_stop_before_it_is_killed() {
    let place = Place::new();
    let mut program =
        place.sh("trap 'echo bye; exit 3' TERM; sleep 1000 & echo $! > ready; wait").await;
    let sleeper = place.process("ready");
    let exit = program.stop().await;
    assert_eq!((exit.code, exit.signal), (Some(3), None));
    assert_eq!(place.log("stdout"), b"bye\n");
    assert!(!sleeper.is_alive());
    // Asked again, it says the same.
    assert_eq!(program.stop().await, exit);
}

#[tokio::test]
async fn a_program_that_ignores_sigterm_is_killed_after_its_grace() {
    let place = Place::new();
    let mut program = place.sh("trap '' TERM; echo $$ > ready; while :; do sleep 1000; done").await;
    let shell = place.process("ready");
    assert_eq!(shell.pid, program.pid());
    let exit = program.stop_within(Duration::from_millis(50)).await;
    assert_eq!((exit.code, exit.signal), (None, Some(9)));
    assert!(!shell.is_alive());
}

#[tokio::test]
async fn waiting_may_be_given_up_and_taken_up_again() {
    let place = Place::new();
    let mut program = place.sh("while ! test -e go; do sleep 0.01; done; exit 5").await;
    for _ in 0..3 {
        assert!(tokio::time::timeout(Duration::from_millis(5), program.wait()).await.is_err());
    }
    std::fs::write(place.path("go"), "").unwrap();
    assert_eq!(program.wait().await.code, Some(5));
    assert_eq!(program.wait().await.code, Some(5));
}

#[tokio::test]
async fn a_daemon_does_not_outlive_its_program() {
    let place = Place::new();
    let mut program =
        place.sh(&format!("{DAEMON}; while ! test -e go; do sleep 0.01; done; exit 4")).await;
    let daemon = place.process("daemon");
    assert!(daemon.is_alive());
    std::fs::write(place.path("go"), "").unwrap();
    assert_eq!(program.wait().await.code, Some(4));
    assert!(!daemon.is_alive());
}

#[tokio::test]
async fn a_kill_reaches_daemons_too() {
    let place = Place::new();
    let mut program = place.sh(&format!("{DAEMON}; exec sleep 1000")).await;
    let daemon = place.process("daemon");
    program.kill();
    assert_eq!(program.wait().await.signal, Some(9));
    assert!(!daemon.is_alive());
}

#[tokio::test]
async fn a_dropped_program_is_killed_with_all_it_started() {
    let place = Place::new();
    let program = place.sh(&format!("{DAEMON}; echo $$ > shell; exec sleep 1000")).await;
    let (daemon, shell) = (place.process("daemon"), place.process("shell"));
    drop(program);
    let gone = async {
        while daemon.is_alive() || shell.is_alive() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.unwrap();
}

#[test]
fn a_killed_shim_takes_its_program_along_and_the_agent_takes_the_rest() {
    let scene = async || {
        let place = Place::new();
        let mut program = place.sh(&format!("{DAEMON}; echo $PPID > shim; exec sleep 1000")).await;
        let (daemon, shim) = (place.process("daemon"), place.process("shim"));
        let shell = Identity::of(program.pid()).unwrap();
        assert!(shim.signal(Signal::KILL).unwrap());
        let exit = program.wait().await;
        assert_eq!((exit.code, exit.signal, exit.shim_lost), (None, Some(9), true));
        assert!(!daemon.is_alive() && !shell.is_alive());
        // Reaped as well, not only dead.
        assert_eq!(Identity::of(daemon.pid), None);
        assert_eq!(Identity::of(shell.pid), None);

        // And the next program of this agent is not taken for a stray.
        assert_eq!(place.run("exit 6").await.code, Some(6));
    };
    let test = "a_killed_shim_takes_its_program_along_and_the_agent_takes_the_rest";
    alone(test, scene, |command| command);
}

/// An agent that starts a daemonising program and waits for it. `end` is given the agent, the shim
/// and the program's shell, and brings the agent's end about; then nothing may be left.
fn agent_ended(test: &str, end: impl FnOnce([Identity; 3])) {
    const SCENE: &str = "HANDS_AGENT";
    if let Some(dir) = std::env::var_os(SCENE) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut spec = Place::new().spec(&[
                "sh",
                "-c",
                &format!("{DAEMON}; echo $PPID > shim; echo $$ > shell; exec sleep 1000"),
            ]);
            spec.cwd = dir.clone().into();
            let output =
                OutputSpec { dir: Path::new(&dir).join("logs"), rotation: Rotation::default() };
            let mut program = program::Program::start(spec, output).await.unwrap();
            program.wait().await;
        });
        return;
    }
    let place = Place::new();
    let mut agent = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(SCENE, place.dir.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .process_group(0)
        .spawn()
        .unwrap();
    let [daemon, shim, shell] = ["daemon", "shim", "shell"].map(|name| place.process(name));
    end([Identity::of(agent.id()).unwrap(), shim, shell]);
    agent.wait().unwrap();
    [daemon, shim, shell].into_iter().for_each(until_gone);
}

#[test]
fn nothing_outlives_a_killed_agent() {
    agent_ended("nothing_outlives_a_killed_agent", |[agent, ..]| {
        assert!(agent.signal(Signal::KILL).unwrap());
    });
}

#[test]
fn nothing_outlives_an_agent_killed_with_its_whole_group() {
    agent_ended("nothing_outlives_an_agent_killed_with_its_whole_group", |[agent, ..]| {
        assert!(ydl_os::process::kill_group(agent.pid, Signal::KILL).unwrap());
    });
}

#[test]
fn a_program_dies_with_its_shim_though_the_agent_hangs() {
    let test = "a_program_dies_with_its_shim_though_the_agent_hangs";
    agent_ended(test, |[agent, shim, shell]| {
        assert!(agent.signal(Signal::STOP).unwrap());
        assert!(shim.signal(Signal::KILL).unwrap());
        until_gone(shell);
        assert!(agent.signal(Signal::CONT).unwrap());
    });
}

#[test]
fn programs_leave_no_descriptor_and_no_process_behind() {
    let scene = async || {
        let place = Place::new();
        let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        place.run("").await;
        let before = open();
        for _ in 0..10 {
            place.run("sleep 1000 & exit 0").await;
            place.try_start(place.spec(&["no-such-program"])).await.unwrap_err();
        }
        // The last capture's thread may still be closing its ends.
        until("as few descriptors as before", || (open() <= before).then_some(()));
        let tree = ydl_os::proc_tree::Tree::read().unwrap();
        assert_eq!(tree.descendants(std::process::id()), Vec::<&_>::new());
    };
    alone("programs_leave_no_descriptor_and_no_process_behind", scene, |command| command);
}

#[tokio::test]
async fn why_a_program_cannot_be_executed_is_told_in_different_sentences() {
    let place = Place::new();
    std::fs::create_dir(place.path("folder")).unwrap();
    let mut foreign = vec![0; 64];
    foreign[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    foreign[16] = 2;
    let (other, other_name) =
        if cfg!(target_arch = "x86_64") { (183, "aarch64") } else { (62, "x86_64") };
    foreign[18] = other;
    let here = std::env::consts::ARCH;
    let script = |name: &str, content: &[u8], mode| place.script(name, content, mode);
    let cases = [
        (
            script("plain", b"#!/bin/sh\n", 0o644),
            "`./plain` is not executable: its mode is `0644`".to_owned(),
        ),
        (
            script("foreign", &foreign, 0o755),
            format!("`./foreign` is built for `{other_name}`, and this machine is `{here}`"),
        ),
        (
            script("text", b"echo no first line\n", 0o755),
            "`./text` is neither an executable of this machine nor a script that begins with `#!`"
                .into(),
        ),
        (
            script("empty", b"", 0o755),
            "`./empty` is neither an executable of this machine nor a script that begins with `#!`"
                .into(),
        ),
        (
            script("lost", b"#! /no/such/python -u\n", 0o755),
            "the script `./lost` asks for the interpreter `/no/such/python`, which does not exist"
                .into(),
        ),
        (
            script("windows", b"#!/bin/sh\r\n", 0o755),
            "the script `./windows` asks for the interpreter `/bin/sh\\r`, which does not exist"
                .into(),
        ),
        ("./folder".into(), "`./folder` is a directory, not a program".into()),
        ("./absent".into(), "the program `./absent` does not exist".into()),
        (
            "no-such-program".into(),
            "program `no-such-program` not found in `PATH` (`/bin:`)".into(),
        ),
        // The last part of that PATH is empty: the current directory.
        ("plain".into(), "`./plain` is not executable: its mode is `0644`".into()),
        ("".into(), "the program's name is empty".into()),
        ("a\0b/".into(), "the arguments or the environment of `a\0b/` hold a zero byte".into()),
    ];
    for (program, sentence) in cases {
        let mut spec = place.spec(&[&program]);
        spec.env.insert("PATH".into(), "/bin:".into());
        let error = place.try_start(spec).await.unwrap_err();
        assert_eq!(error.to_string(), sentence);
        assert!(matches!(error, StartError::Program(_)));
    }

    let mut nowhere = place.spec(&["true"]);
    nowhere.cwd = place.path("nowhere");
    let error = place.try_start(nowhere).await.unwrap_err().to_string();
    assert!(error.starts_with("cannot run in the directory"), "{error}");
    assert!(error.ends_with("/nowhere`: no such file or directory"), "{error}");

    let mut huge = place.spec(&["true"]);
    huge.env.insert("HUGE".into(), "x".repeat(200_000));
    let error = place.try_start(huge).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "the environment variable `HUGE` has 200005 bytes, more than the 131072 Linux allows"
    );
}

#[tokio::test]
async fn a_binary_without_its_loader_says_so() {
    let place = Place::new();
    let mut binary = std::fs::read("/bin/true").unwrap();
    let Some(at) = binary.windows(4).position(|window| window == b"/ld-") else {
        // A statically linked system has no loader to lose.
        return;
    };
    binary[at + 1] = b'x';
    let name = place.script("strange", &binary, 0o755);
    let error = place.try_start(place.spec(&[&name])).await.unwrap_err();
    assert!(error.to_string().starts_with("`./strange` needs the loader `/lib"), "{error}");
    assert!(error.hint().is_some());
}

#[tokio::test]
async fn a_program_is_looked_up_in_its_own_path() {
    let place = Place::new();
    std::fs::create_dir(place.path("bin")).unwrap();
    place.script("bin/greet", b"#!/bin/sh\necho greetings from $0\n", 0o755);
    let mut spec = place.spec(&["greet"]);
    spec.env.insert("PATH".into(), "/nowhere:bin".into());
    let mut program = place.try_start(spec).await.unwrap();
    assert_eq!(program.wait().await.code, Some(0));
    assert_eq!(place.log("stdout"), b"greetings from bin/greet\n");
}

#[tokio::test]
async fn an_agent_without_its_shim_blames_the_node() {
    let place = Place::new();
    let mut spec = place.spec(&["true"]);
    spec.shim = place.path("no-ydl-here");
    let error = place.try_start(spec).await.unwrap_err();
    assert!(matches!(error, StartError::Shim { .. }));
    assert_eq!(error.to_string(), "cannot start the program's shim: no such file or directory");
}

#[test]
fn two_hundred_megabytes_in_one_line_cost_no_memory() {
    const OUTPUT: u64 = 200_000_000;
    // Apart from the others, whose programs would be counted, too.
    let scene = async || {
        let mut place = Place::new();
        place.rotation = Rotation { segment_bytes: 1 << 20, newest: 2 };
        let mut meter = Meter::new(std::process::id(), None);
        let before = meter.sample().unwrap().memory_bytes;
        let exit = place.run(&format!("head -c {OUTPUT} /dev/zero | tr '\\0' x >&2")).await;
        assert_eq!((exit.code, exit.stderr_tail.len(), exit.dropped_bytes), (Some(0), 4096, 0));
        let mut reader = LogReader::new(place.path("logs"), "stderr", 0);
        assert_eq!(reader.end().unwrap(), OUTPUT);
        let kept: u64 = std::fs::read_dir(place.path("logs"))
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap().len())
            .sum();
        let Rotation { segment_bytes, newest } = place.rotation;
        assert!(kept <= (1 + newest) * segment_bytes, "{kept}");
        let after = meter.sample().unwrap().memory_bytes;
        assert!(after < before + OUTPUT / 2, "{before} {after}");
    };
    alone("two_hundred_megabytes_in_one_line_cost_no_memory", scene, |command| command);
}

#[tokio::test]
async fn bytes_that_are_no_text_are_kept_as_they_are() {
    let place = Place::new();
    let exit = place.run(r"printf '\377\376\n\000\200'; printf 'bad \377\n' >&2").await;
    assert_eq!(place.log("stdout"), b"\xff\xfe\n\0\x80");
    assert_eq!(exit.stderr_tail, "bad \u{fffd}");
}

#[tokio::test]
async fn memory_and_processor_time_of_the_whole_tree_are_measured() {
    let place = Place::new();
    // Children of the program, not the program itself, use the memory.
    let hungry = "x=$(head -c 30000000 /dev/zero | tr '\\0' x); echo $$ > ready$1; sleep 1000";
    let script = "for i in 1 2; do sh -c \"$0\" hungry $i & done; wait";
    let mut program = place.start(&["sh", "-c", script, hungry]).await;
    place.process("ready1");
    place.process("ready2");
    let mut meter = Meter::new(program.pid(), Some("0"));
    let usage = meter.sample().unwrap();
    assert!(usage.memory_bytes > 60_000_000, "{usage:?}");
    program.kill();
    let exit = program.wait().await;
    assert!((30_000_000..200_000_000).contains(&exit.peak_memory_bytes), "{exit:?}");
    assert!(exit.cpu_ms > 0);
    let after = meter.sample().unwrap();
    assert_eq!(after.memory_bytes, 0);
    assert_eq!(after.memory_peak_bytes, usage.memory_bytes);
    assert_eq!(after.cpu_millis_total, usage.cpu_millis_total);
}

/// Starts a process in which no file can grow beyond 1 MiB: as a full disk, a write fails half-way.
fn small_files(command: Command) -> Command {
    let mut limited = Command::new("sh");
    limited.args(["-c", "trap '' XFSZ; ulimit -S -f 2048; exec \"$0\" \"$@\""]);
    limited.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        limited.env(name, value.unwrap());
    }
    limited
}

#[test]
fn a_program_does_not_notice_that_its_log_cannot_be_written() {
    let scene = async || {
        let place = Place::new();
        let script = "head -c 3000000 /dev/zero; echo done > wrote; \
            while ! test -e go; do sleep 0.01; done; echo after";
        let mut program = place.sh(script).await;
        until("the program's own progress", || place.path("wrote").exists().then_some(()));
        let dropped = 3_000_000 - (1 << 20);
        until("the loss", || (program.output().dropped_bytes == dropped).then_some(()));
        assert_eq!(program.output().trouble.as_deref(), Some("file too large"));

        let hard = rustix::process::getrlimit(rustix::process::Resource::Fsize).maximum;
        let limit = rustix::process::Rlimit { current: hard, maximum: hard };
        rustix::process::setrlimit(rustix::process::Resource::Fsize, limit).unwrap();
        std::fs::write(place.path("go"), "").unwrap();
        let exit = program.wait().await;
        assert_eq!((exit.code, exit.dropped_bytes), (Some(0), dropped));
        let log = place.log("stdout");
        let note =
            format!("\nydl: {dropped} bytes of output are missing here: file too large\nafter\n");
        assert_eq!(String::from_utf8_lossy(&log[1 << 20..]), note);
    };
    alone("a_program_does_not_notice_that_its_log_cannot_be_written", scene, small_files);
}

#[test]
fn a_log_that_ends_on_a_full_disk_says_what_it_lacks() {
    let scene = async || {
        let place = Place::new();
        let mut program = place.sh("head -c 3000000 /dev/zero").await;
        let exit = program.wait().await;
        assert_eq!(exit.dropped_bytes, 3_000_000 - (1 << 20));
        let log = place.log("stdout");
        assert_eq!(log.len(), 1 << 20);
        let end = String::from_utf8_lossy(&log[log.len() - 70..]).into_owned();
        let note = end.trim_start_matches('\0');
        let lacks = exit.dropped_bytes + note.len() as u64;
        let wanted = format!("\nydl: {lacks} bytes of output are missing here: file too large\n");
        assert_eq!(note, wanted);
    };
    alone("a_log_that_ends_on_a_full_disk_says_what_it_lacks", scene, small_files);
}

#[test]
fn an_output_that_does_not_fit_is_named_and_leaves_no_half_file() {
    let scene = async || {
        let place = Place::new();
        std::fs::create_dir(place.path("work")).unwrap();
        // A hole: long without being written.
        let long = std::fs::File::create(place.path("work/long")).unwrap();
        let hard = rustix::process::getrlimit(rustix::process::Resource::Fsize);
        let open = rustix::process::Rlimit { current: hard.maximum, ..hard };
        rustix::process::setrlimit(rustix::process::Resource::Fsize, open).unwrap();
        long.set_len(3 << 20).unwrap();
        rustix::process::setrlimit(rustix::process::Resource::Fsize, hard).unwrap();
        std::fs::write(place.path("work/short"), "s").unwrap();

        let error =
            outputs::copy(&place.path("work"), &[("*".into(), place.path("out"))]).unwrap_err();
        assert_eq!(error.failures.len(), 1);
        assert!(error.to_string().contains("work/long` to `"), "{error}");
        assert!(error.to_string().ends_with("out/long`: file too large"), "{error}");
        // A new directory is there when all of it is, or not at all.
        assert_eq!(error.copied.files, 0);
        let names: Vec<_> = std::fs::read_dir(place.path("."))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names, ["work"]);
    };
    alone("an_output_that_does_not_fit_is_named_and_leaves_no_half_file", scene, small_files);
}

/// A program that runs so many times; each of its processes is told its number.
fn several(place: &Place, processes: usize, script: &str) -> ProgramSpec {
    let own = |local: usize| BTreeMap::from([("LOCAL".to_owned(), local.to_string())]);
    ProgramSpec { each: (0..processes).map(own).collect(), ..place.spec(&["sh", "-c", script]) }
}

#[tokio::test]
async fn a_task_of_several_processes_ends_well_when_all_of_them_have() {
    let place = Place::new();
    // The first is over long before the last.
    let script = "echo this is $LOCAL; echo twice >&2; test $LOCAL = 0 || until test -e go; do sleep 0.02; done; touch done.$LOCAL";
    let mut program = place.try_start(several(&place, 3, script)).await.unwrap();
    until("the end of the first", || place.path("done.0").exists().then_some(()));
    assert!(!place.path("done.1").exists());
    std::fs::write(place.path("go"), "").unwrap();
    let exit = program.wait().await;
    assert_eq!((exit.code, exit.signal), (Some(0), None));
    let said = String::from_utf8(place.log("stdout")).unwrap();
    let mut lines: Vec<_> = said.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["[0] this is 0", "[1] this is 1", "[2] this is 2"]);
    let errors = String::from_utf8(place.log("stderr")).unwrap();
    assert_eq!(errors.matches("] twice\n").count(), 3, "{errors}");
}

#[tokio::test]
async fn the_first_process_that_fails_ends_those_beside_it() {
    let place = Place::new();
    let script = "case $LOCAL in \
        0) trap 'echo asked; exit 0' TERM; echo $$ > zero; while :; do sleep 0.02; done;; \
        1) until test -s zero; do sleep 0.02; done; exit 7;; \
        esac";
    let mut program = place.try_start(several(&place, 2, script)).await.unwrap();
    let zero = place.process("zero");
    let exit = program.wait().await;
    assert_eq!((exit.code, exit.signal), (Some(7), None));
    assert_eq!(place.log("stdout"), b"[0] asked\n");
    assert!(Identity::of(zero.pid) != Some(zero));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_saves_its_work_is_not_asked_again_when_one_beside_it_ends_of_the_request() {
    let place = Place::new();
    // The first saves until it is told that it may end, the other ends of the signal.
    let script = "case $LOCAL in \
        0) trap 'echo asked; touch saving' TERM; echo $$ > pid.0; \
           until test -e go; do sleep 0.02; done; echo saved;; \
        1) echo $$ > pid.1; exec sleep 1000;; \
        esac";
    let mut program = place.try_start(several(&place, 2, script)).await.unwrap();
    place.process("pid.0");
    let other = place.process("pid.1");
    program.terminate();
    until("the request", || place.path("saving").exists().then_some(()));
    until("its end", || (Identity::of(other.pid) != Some(other)).then_some(()));
    // Also when the agent has its own reasons to ask.
    program.terminate();
    std::fs::write(place.path("go"), "").unwrap();
    let exit = program.wait().await;
    assert_eq!((exit.code, exit.signal), (None, Some(15)));
    assert_eq!(place.log("stdout"), b"[0] asked\n[0] saved\n");
}

#[tokio::test]
async fn every_process_of_a_task_is_asked_to_stop_and_killed_with_it() {
    let place = Place::new();
    let script = "trap '' TERM; echo $$ > pid.$LOCAL; while :; do sleep 0.02; done";
    let spec = ProgramSpec { grace: Duration::from_millis(50), ..several(&place, 2, script) };
    let mut program = place.try_start(spec).await.unwrap();
    let both = [place.process("pid.0"), place.process("pid.1")];
    let exit = program.stop().await;
    assert_eq!(exit.signal, Some(9));
    assert!(both.iter().all(|one| Identity::of(one.pid) != Some(*one)));
}
