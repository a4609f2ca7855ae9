//! Programs of the agent as real processes: started, stopped, killed, orphaned.

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
use ydl::logs::{LogReader, StreamChunk};
use ydl_os::process::{Identity, Signal};
use ydl_testkit::run_in_own_process;

/// Timeout of each wait, far more than any of them takes.
const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

/// Directory and specification of one program.
struct ProgramFixture {
    dir: TempDir,
    rotation: Rotation,
}

impl ProgramFixture {
    fn new() -> ProgramFixture {
        ProgramFixture { dir: TempDir::new().unwrap(), rotation: Rotation::default() }
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
            grace: WAIT_TIMEOUT,
        }
    }

    async fn try_start(&self, spec: ProgramSpec) -> Result<Program, StartError> {
        let output =
            OutputSpec { dir: self.path("logs"), container_logs: None, rotation: self.rotation };
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
        while let StreamChunk::Data { bytes, .. } = reader.read_some().unwrap() {
            all.extend(bytes);
        }
        all
    }

    /// Waits for the pid that a script writes to a file. Returns its process.
    fn process(&self, name: &str) -> Identity {
        let path = self.path(name);
        wait_for(&format!("a pid in {name}"), || {
            let text = std::fs::read_to_string(&path).ok()?;
            let pid = text.strip_suffix('\n')?.trim().parse().ok()?;
            Identity::of(pid)
        })
    }

    /// Writes an executable file in another process. A descriptor open for writing here could be inherited by a program
    /// of another test, and the file could not be executed (`ETXTBSY`).
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

/// Polls until `check` returns a value.
fn wait_for<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + WAIT_TIMEOUT;
    loop {
        if let Some(value) = check() {
            return value;
        }
        assert!(Instant::now() < deadline, "timed out waiting for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn wait_until_gone(process: Identity) {
    wait_for(&format!("the end of {process:?}"), || (!process.is_alive()).then_some(()));
}

/// Starts a daemon: forked twice, in its own session, without its parent.
const DAEMON: &str = "setsid sh -c 'sleep 1000 & echo $! > daemon' & wait $!";

#[tokio::test]
async fn exit_codes_and_signals_are_reported() {
    let fixture = ProgramFixture::new();
    let exit = fixture.run("echo out; echo one >&2; echo two >&2; exit 7").await;
    assert_eq!((exit.code, exit.signal), (Some(7), None));
    assert_eq!(exit.stderr_tail, "one\ntwo");
    assert_eq!(fixture.log("stdout"), b"out\n");
    assert_eq!(fixture.log("stderr"), b"one\ntwo\n");
    assert!(exit.peak_memory_bytes > 0);

    let exit = fixture.run("kill -SEGV $$").await;
    assert_eq!((exit.code, exit.signal), (None, Some(11)));
    assert_eq!(fixture.run("").await.code, Some(0));
}

#[tokio::test]
async fn the_program_gets_exactly_its_environment_and_nothing_on_stdin() {
    let fixture = ProgramFixture::new();
    let mut spec = fixture.spec(&["/bin/sh", "-c", "pwd -P; cat; exec env", "name", "ünï"]);
    spec.env =
        BTreeMap::from([("B".into(), "two words\nand lines".into()), ("A".into(), "".into())]);
    let mut program = fixture.try_start(spec).await.unwrap();
    assert_eq!(program.wait().await.code, Some(0));
    let output = String::from_utf8(fixture.log("stdout")).unwrap();
    let dir = fixture.dir.path().canonicalize().unwrap();
    let mut lines: Vec<&str> = output.lines().collect();
    // Added by the shell.
    lines.retain(|line| !line.starts_with("PWD="));
    assert_eq!(lines, [dir.to_str().unwrap(), "A=", "B=two words", "and lines"]);
}

#[tokio::test]
async fn a_program_gets_sigterm_before_sigkill() {
    let fixture = ProgramFixture::new();
    let mut program =
        fixture.sh("trap 'echo bye; exit 3' TERM; sleep 1000 & echo $! > ready; wait").await;
    let sleeper = fixture.process("ready");
    let exit = program.stop().await;
    assert_eq!((exit.code, exit.signal), (Some(3), None));
    assert_eq!(fixture.log("stdout"), b"bye\n");
    assert!(!sleeper.is_alive());
    // Repeating it returns the same exit.
    assert_eq!(program.stop().await, exit);
}

#[tokio::test]
async fn a_program_that_ignores_sigterm_is_killed_after_its_grace() {
    let fixture = ProgramFixture::new();
    let mut program =
        fixture.sh("trap '' TERM; echo $$ > ready; while :; do sleep 1000; done").await;
    let shell = fixture.process("ready");
    assert_eq!(shell.pid, program.pid());
    let exit = program.stop_within(Duration::from_millis(50)).await;
    assert_eq!((exit.code, exit.signal), (None, Some(9)));
    assert!(!shell.is_alive());
}

#[tokio::test]
async fn waiting_can_be_cancelled_and_repeated() {
    let fixture = ProgramFixture::new();
    let mut program = fixture.sh("while ! test -e go; do sleep 0.01; done; exit 5").await;
    for _ in 0..3 {
        assert!(tokio::time::timeout(Duration::from_millis(5), program.wait()).await.is_err());
    }
    std::fs::write(fixture.path("go"), "").unwrap();
    assert_eq!(program.wait().await.code, Some(5));
    assert_eq!(program.wait().await.code, Some(5));
}

#[tokio::test]
async fn a_daemon_does_not_outlive_its_program() {
    let fixture = ProgramFixture::new();
    let mut program =
        fixture.sh(&format!("{DAEMON}; while ! test -e go; do sleep 0.01; done; exit 4")).await;
    let daemon = fixture.process("daemon");
    assert!(daemon.is_alive());
    std::fs::write(fixture.path("go"), "").unwrap();
    assert_eq!(program.wait().await.code, Some(4));
    assert!(!daemon.is_alive());
}

#[tokio::test]
async fn a_kill_reaches_daemons_too() {
    let fixture = ProgramFixture::new();
    let mut program = fixture.sh(&format!("{DAEMON}; exec sleep 1000")).await;
    let daemon = fixture.process("daemon");
    program.kill();
    assert_eq!(program.wait().await.signal, Some(9));
    assert!(!daemon.is_alive());
}

#[tokio::test]
async fn a_dropped_program_is_killed_with_all_it_started() {
    let fixture = ProgramFixture::new();
    let program = fixture.sh(&format!("{DAEMON}; echo $$ > shell; exec sleep 1000")).await;
    let (daemon, shell) = (fixture.process("daemon"), fixture.process("shell"));
    drop(program);
    let gone = async {
        while daemon.is_alive() || shell.is_alive() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(WAIT_TIMEOUT, gone).await.unwrap();
}

#[test]
fn a_killed_shim_ends_its_program_and_the_agent_kills_the_orphans() {
    let body = async || {
        let fixture = ProgramFixture::new();
        let mut program =
            fixture.sh(&format!("{DAEMON}; echo $PPID > shim; exec sleep 1000")).await;
        let (daemon, shim) = (fixture.process("daemon"), fixture.process("shim"));
        let shell = Identity::of(program.pid()).unwrap();
        assert!(shim.signal(Signal::KILL).unwrap());
        let exit = program.wait().await;
        assert_eq!((exit.code, exit.signal), (None, Some(9)));
        assert!(!daemon.is_alive() && !shell.is_alive());
        // They are reaped, too.
        assert_eq!(Identity::of(daemon.pid), None);
        assert_eq!(Identity::of(shell.pid), None);

        // The next program of this agent is not killed as an orphan.
        assert_eq!(fixture.run("exit 6").await.code, Some(6));
    };
    let test = "a_killed_shim_ends_its_program_and_the_agent_kills_the_orphans";
    run_in_own_process(test, body, |command| command);
}

/// Runs an agent whose program starts a daemon. `end` gets the agent, the shim and the program's shell, and ends the
/// agent. Asserts that no process is left.
fn run_and_end_agent(test: &str, end: impl FnOnce([Identity; 3])) {
    const TEST_VARIABLE: &str = "YDL_TEST_AGENT_DIR";
    if let Some(dir) = std::env::var_os(TEST_VARIABLE) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut spec = ProgramFixture::new().spec(&[
                "sh",
                "-c",
                &format!("{DAEMON}; echo $PPID > shim; echo $$ > shell; exec sleep 1000"),
            ]);
            spec.cwd = dir.clone().into();
            let output = OutputSpec {
                dir: Path::new(&dir).join("logs"),
                container_logs: None,
                rotation: Rotation::default(),
            };
            let mut program = program::Program::start(spec, output).await.unwrap();
            program.wait().await;
        });
        return;
    }
    let fixture = ProgramFixture::new();
    let mut agent = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(TEST_VARIABLE, fixture.dir.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .process_group(0)
        .spawn()
        .unwrap();
    let [daemon, shim, shell] = ["daemon", "shim", "shell"].map(|name| fixture.process(name));
    end([Identity::of(agent.id()).unwrap(), shim, shell]);
    agent.wait().unwrap();
    [daemon, shim, shell].into_iter().for_each(wait_until_gone);
}

#[test]
fn nothing_outlives_a_killed_agent() {
    run_and_end_agent("nothing_outlives_a_killed_agent", |[agent, ..]| {
        assert!(agent.signal(Signal::KILL).unwrap());
    });
}

#[test]
fn nothing_outlives_an_agent_killed_with_its_whole_group() {
    run_and_end_agent("nothing_outlives_an_agent_killed_with_its_whole_group", |[agent, ..]| {
        assert!(ydl_os::process::kill_group(agent.pid, Signal::KILL).unwrap());
    });
}

#[test]
fn a_program_dies_with_its_shim_though_the_agent_hangs() {
    let test = "a_program_dies_with_its_shim_though_the_agent_hangs";
    run_and_end_agent(test, |[agent, shim, shell]| {
        assert!(agent.signal(Signal::STOP).unwrap());
        assert!(shim.signal(Signal::KILL).unwrap());
        wait_until_gone(shell);
        assert!(agent.signal(Signal::CONT).unwrap());
    });
}

#[test]
fn programs_leave_no_descriptor_and_no_process_behind() {
    let body = async || {
        let fixture = ProgramFixture::new();
        let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        fixture.run("").await;
        let before = open();
        for _ in 0..10 {
            fixture.run("sleep 1000 & exit 0").await;
            fixture.try_start(fixture.spec(&["no-such-program"])).await.unwrap_err();
        }
        // The thread of the last capture may still be closing its descriptors.
        wait_for("as few descriptors as before", || (open() <= before).then_some(()));
        let tree = ydl_os::proc_tree::Tree::read().unwrap();
        assert_eq!(tree.descendants(std::process::id()), Vec::<&_>::new());
    };
    run_in_own_process("programs_leave_no_descriptor_and_no_process_behind", body, |command| {
        command
    });
}

#[tokio::test]
async fn each_reason_for_a_failed_exec_has_its_own_message() {
    let fixture = ProgramFixture::new();
    std::fs::create_dir(fixture.path("folder")).unwrap();
    let mut elf = vec![0; 64];
    elf[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    elf[16] = 2;
    let (other, other_name) =
        if cfg!(target_arch = "x86_64") { (183, "aarch64") } else { (62, "x86_64") };
    elf[18] = other;
    let arch = std::env::consts::ARCH;
    let script = |name: &str, content: &[u8], mode| fixture.script(name, content, mode);
    let cases = [
        (
            script("plain", b"#!/bin/sh\n", 0o644),
            "`./plain` is not executable: its mode is `0644`".to_owned(),
        ),
        (
            script("foreign", &elf, 0o755),
            format!("`./foreign` is built for `{other_name}`, and this machine is `{arch}`"),
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
        let mut spec = fixture.spec(&[&program]);
        spec.env.insert("PATH".into(), "/bin:".into());
        let error = fixture.try_start(spec).await.unwrap_err();
        assert_eq!(error.to_string(), sentence);
        assert!(matches!(error, StartError::Program(_)));
    }

    let mut nowhere = fixture.spec(&["true"]);
    nowhere.cwd = fixture.path("nowhere");
    let error = fixture.try_start(nowhere).await.unwrap_err().to_string();
    assert!(error.starts_with("cannot run in the directory"), "{error}");
    assert!(error.ends_with("/nowhere`: no such file or directory"), "{error}");

    let mut huge = fixture.spec(&["true"]);
    huge.env.insert("HUGE".into(), "x".repeat(200_000));
    let error = fixture.try_start(huge).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "the environment variable `HUGE` has 200005 bytes, more than the 131072 Linux allows"
    );
}

#[tokio::test]
async fn a_missing_loader_of_a_binary_is_named() {
    let fixture = ProgramFixture::new();
    let mut binary = std::fs::read("/bin/true").unwrap();
    let Some(at) = binary.windows(4).position(|window| window == b"/ld-") else {
        // A statically linked system has no loader.
        return;
    };
    binary[at + 1] = b'x';
    let name = fixture.script("strange", &binary, 0o755);
    let error = fixture.try_start(fixture.spec(&[&name])).await.unwrap_err();
    assert!(error.to_string().starts_with("`./strange` needs the loader `/lib"), "{error}");
    assert!(error.hint().is_some());
}

#[tokio::test]
async fn a_program_is_looked_up_in_its_own_path() {
    let fixture = ProgramFixture::new();
    std::fs::create_dir(fixture.path("bin")).unwrap();
    fixture.script("bin/greet", b"#!/bin/sh\necho greetings from $0\n", 0o755);
    let mut spec = fixture.spec(&["greet"]);
    spec.env.insert("PATH".into(), "/nowhere:bin".into());
    let mut program = fixture.try_start(spec).await.unwrap();
    assert_eq!(program.wait().await.code, Some(0));
    assert_eq!(fixture.log("stdout"), b"greetings from bin/greet\n");
}

#[tokio::test]
async fn a_missing_shim_is_an_error_of_the_node() {
    let fixture = ProgramFixture::new();
    let mut spec = fixture.spec(&["true"]);
    spec.shim = fixture.path("no-ydl-here");
    let error = fixture.try_start(spec).await.unwrap_err();
    assert!(matches!(error, StartError::Shim { .. }));
    assert_eq!(error.to_string(), "cannot start the program's shim: no such file or directory");
}

#[test]
fn a_line_of_two_hundred_megabytes_takes_bounded_memory() {
    const OUTPUT: u64 = 200_000_000;
    // In its own process, because memory of other tests' programs would be counted, too.
    let body = async || {
        let mut fixture = ProgramFixture::new();
        fixture.rotation = Rotation { segment_bytes: 1 << 20, newest: 2 };
        let mut meter = Meter::new(std::process::id(), None);
        let before = meter.sample().unwrap().memory_bytes;
        let exit = fixture.run(&format!("head -c {OUTPUT} /dev/zero | tr '\\0' x >&2")).await;
        assert_eq!((exit.code, exit.stderr_tail.len(), exit.dropped_bytes), (Some(0), 4096, 0));
        let mut reader = LogReader::new(fixture.path("logs"), "stderr", 0);
        assert_eq!(reader.end().unwrap(), OUTPUT);
        let stored: u64 = std::fs::read_dir(fixture.path("logs"))
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap().len())
            .sum();
        let Rotation { segment_bytes, newest } = fixture.rotation;
        assert!(stored <= (1 + newest) * segment_bytes, "{stored}");
        let after = meter.sample().unwrap().memory_bytes;
        assert!(after < before + OUTPUT / 2, "{before} {after}");
    };
    run_in_own_process("a_line_of_two_hundred_megabytes_takes_bounded_memory", body, |command| {
        command
    });
}

#[tokio::test]
async fn output_that_is_not_text_is_stored_unchanged() {
    let fixture = ProgramFixture::new();
    let exit = fixture.run(r"printf '\377\376\n\000\200'; printf 'bad \377\n' >&2").await;
    assert_eq!(fixture.log("stdout"), b"\xff\xfe\n\0\x80");
    assert_eq!(exit.stderr_tail, "bad \u{fffd}");
}

#[tokio::test]
async fn memory_and_processor_time_of_the_whole_tree_are_measured() {
    let fixture = ProgramFixture::new();
    // Children of the program, not the program itself, use the memory.
    const BLOCK: u64 = 30_000_000;
    let allocate =
        format!("x=$(head -c {BLOCK} /dev/zero | tr '\\0' x); echo $$ > ready$1; sleep 1000");
    let script = "for i in 1 2; do sh -c \"$0\" allocate $i & done; wait";
    let mut program = fixture.start(&["sh", "-c", script, &allocate]).await;
    fixture.process("ready1");
    fixture.process("ready2");
    let mut meter = Meter::new(program.pid(), Some("0"));
    let usage = meter.sample().unwrap();
    assert!(usage.memory_bytes > 2 * BLOCK, "{usage:?}");
    program.kill();
    let exit = program.wait().await;
    // The peak of one process, which has one of the two blocks.
    assert!(exit.peak_memory_bytes >= BLOCK, "{exit:?}");
    assert!(exit.peak_memory_bytes < usage.memory_bytes, "{exit:?} {usage:?}");
    let after = meter.sample().unwrap();
    assert_eq!(after.memory_bytes, 0);
    assert_eq!(after.memory_peak_bytes, usage.memory_bytes);
    assert_eq!(after.cpu_millis_total, usage.cpu_millis_total);
}

/// Limits files of the process to 1 MiB, so that writes fail half-way as on a full disk.
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
fn a_program_continues_while_its_log_cannot_be_written() {
    let body = async || {
        let fixture = ProgramFixture::new();
        let script = "head -c 3000000 /dev/zero; echo done > wrote; \
            while ! test -e go; do sleep 0.01; done; echo after";
        let mut program = fixture.sh(script).await;
        wait_for("the program's file", || fixture.path("wrote").exists().then_some(()));
        let dropped = 3_000_000 - (1 << 20);
        wait_for("the dropped bytes", || (program.output().dropped_bytes == dropped).then_some(()));
        assert_eq!(program.output().last_error.as_deref(), Some("file too large"));

        let hard = rustix::process::getrlimit(rustix::process::Resource::Fsize).maximum;
        let limit = rustix::process::Rlimit { current: hard, maximum: hard };
        rustix::process::setrlimit(rustix::process::Resource::Fsize, limit).unwrap();
        std::fs::write(fixture.path("go"), "").unwrap();
        let exit = program.wait().await;
        assert_eq!((exit.code, exit.dropped_bytes), (Some(0), dropped));
        let log = fixture.log("stdout");
        let note =
            format!("\nydl: {dropped} bytes of output are missing here: file too large\nafter\n");
        assert_eq!(String::from_utf8_lossy(&log[1 << 20..]), note);
    };
    run_in_own_process("a_program_continues_while_its_log_cannot_be_written", body, small_files);
}

#[test]
fn a_log_that_ends_on_a_full_disk_states_the_missing_bytes() {
    let body = async || {
        let fixture = ProgramFixture::new();
        let mut program = fixture.sh("head -c 3000000 /dev/zero").await;
        let exit = program.wait().await;
        assert_eq!(exit.dropped_bytes, 3_000_000 - (1 << 20));
        let log = fixture.log("stdout");
        assert_eq!(log.len(), 1 << 20);
        let end = String::from_utf8_lossy(&log[log.len() - 70..]).into_owned();
        let note = end.trim_start_matches('\0');
        let lacks = exit.dropped_bytes + note.len() as u64;
        let wanted = format!("\nydl: {lacks} bytes of output are missing here: file too large\n");
        assert_eq!(note, wanted);
    };
    run_in_own_process(
        "a_log_that_ends_on_a_full_disk_states_the_missing_bytes",
        body,
        small_files,
    );
}

#[test]
fn an_output_that_does_not_fit_is_named_and_leaves_no_partial_file() {
    let body = async || {
        let fixture = ProgramFixture::new();
        std::fs::create_dir(fixture.path("work")).unwrap();
        // A sparse file.
        let long = std::fs::File::create(fixture.path("work/long")).unwrap();
        let hard = rustix::process::getrlimit(rustix::process::Resource::Fsize);
        let open = rustix::process::Rlimit { current: hard.maximum, ..hard };
        rustix::process::setrlimit(rustix::process::Resource::Fsize, open).unwrap();
        long.set_len(3 << 20).unwrap();
        rustix::process::setrlimit(rustix::process::Resource::Fsize, hard).unwrap();
        std::fs::write(fixture.path("work/short"), "s").unwrap();

        let outputs = [("*".into(), fixture.path("out"))];
        let error = outputs::copy(&fixture.path("work"), &outputs).await.unwrap_err();
        assert_eq!(error.failures.len(), 1);
        assert!(error.to_string().contains("work/long` to `"), "{error}");
        assert!(error.to_string().ends_with("out/long`: file too large"), "{error}");
        // A new directory appears complete or not at all.
        assert_eq!(error.copied.files, 0);
        let names: Vec<_> = std::fs::read_dir(fixture.path("."))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names, ["work"]);
    };
    run_in_own_process(
        "an_output_that_does_not_fit_is_named_and_leaves_no_partial_file",
        body,
        small_files,
    );
}

/// Returns the specification of a program with several processes. Each has its number in `LOCAL`.
fn with_processes(fixture: &ProgramFixture, processes: usize, script: &str) -> ProgramSpec {
    let own = |local: usize| BTreeMap::from([("LOCAL".to_owned(), local.to_string())]);
    ProgramSpec { each: (0..processes).map(own).collect(), ..fixture.spec(&["sh", "-c", script]) }
}

#[tokio::test]
async fn a_task_succeeds_when_all_its_processes_have_succeeded() {
    let fixture = ProgramFixture::new();
    // The first process exits before the others.
    let script = "echo this is $LOCAL; echo twice >&2; test $LOCAL = 0 || until test -e go; do sleep 0.02; done; touch done.$LOCAL";
    let mut program = fixture.try_start(with_processes(&fixture, 3, script)).await.unwrap();
    wait_for("the end of the first process", || fixture.path("done.0").exists().then_some(()));
    assert!(!fixture.path("done.1").exists());
    std::fs::write(fixture.path("go"), "").unwrap();
    let exit = program.wait().await;
    assert_eq!((exit.code, exit.signal), (Some(0), None));
    let output = String::from_utf8(fixture.log("stdout")).unwrap();
    let mut lines: Vec<_> = output.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["[0] this is 0", "[1] this is 1", "[2] this is 2"]);
    let errors = String::from_utf8(fixture.log("stderr")).unwrap();
    assert_eq!(errors.matches("] twice\n").count(), 3, "{errors}");
}

#[tokio::test]
async fn the_first_failing_process_of_a_task_ends_the_others() {
    let fixture = ProgramFixture::new();
    let script = "case $LOCAL in \
        0) trap 'echo asked; exit 0' TERM; echo $$ > zero; while :; do sleep 0.02; done;; \
        1) until test -e go; do sleep 0.02; done; exit 7;; \
        esac";
    let mut program = fixture.try_start(with_processes(&fixture, 2, script)).await.unwrap();
    let zero = fixture.process("zero");
    std::fs::write(fixture.path("go"), "").unwrap();
    let exit = program.wait().await;
    assert_eq!((exit.code, exit.signal), (Some(7), None));
    assert_eq!(fixture.log("stdout"), b"[0] asked\n");
    assert!(Identity::of(zero.pid) != Some(zero));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_gets_sigterm_only_once() {
    let fixture = ProgramFixture::new();
    // The first process saves until the file `go` exists; SIGTERM ends the other.
    let script = "case $LOCAL in \
        0) trap 'echo asked; touch saving' TERM; echo $$ > pid.0; \
           until test -e go; do sleep 0.02; done; echo saved;; \
        1) echo $$ > pid.1; exec sleep 1000;; \
        esac";
    let mut program = fixture.try_start(with_processes(&fixture, 2, script)).await.unwrap();
    fixture.process("pid.0");
    let other = fixture.process("pid.1");
    program.terminate();
    wait_for("SIGTERM at the first process", || fixture.path("saving").exists().then_some(()));
    wait_for("the end of the other process", || {
        (Identity::of(other.pid) != Some(other)).then_some(())
    });
    // Not even when the agent terminates the program again.
    program.terminate();
    std::fs::write(fixture.path("go"), "").unwrap();
    let exit = program.wait().await;
    assert_eq!((exit.code, exit.signal), (None, Some(15)));
    assert_eq!(fixture.log("stdout"), b"[0] asked\n[0] saved\n");
}

#[tokio::test]
async fn every_process_of_a_task_is_terminated_and_killed() {
    let fixture = ProgramFixture::new();
    let script = "trap '' TERM; echo $$ > pid.$LOCAL; while :; do sleep 0.02; done";
    let spec =
        ProgramSpec { grace: Duration::from_millis(50), ..with_processes(&fixture, 2, script) };
    let mut program = fixture.try_start(spec).await.unwrap();
    let both = [fixture.process("pid.0"), fixture.process("pid.1")];
    let exit = program.stop().await;
    assert_eq!(exit.signal, Some(9));
    assert!(both.iter().all(|one| Identity::of(one.pid) != Some(*one)));
}
