//! The shim: a tiny process between the agent and the user's program, `ydl shim`.
//!
//! It guarantees that no process of a program outlives the agent. It is the program's parent and the subreaper of its
//! orphans, so a daemonised program is still found. It leads a session of its own and has no parent-death signal: when
//! the agent or its whole group is killed, the shim survives long enough to kill everything below it. It detects the
//! agent's death by the end of their socket. If the shim itself is killed, the program dies by its own parent-death
//! signal and the agent kills the rest.
//!
//! In a container of an image it is the first process, and connects to the agent's socket at the given path.
//!
//! Two threads, no runtime: one waits for children, the other reads commands of the agent.

use std::collections::{BTreeMap, btree_map::Entry};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{WaitId, WaitIdOptions, WaitOptions, WaitStatus};

use super::exec::{self, ExecError};
use super::output_mux::{OutputMux, ProcessOutput};
use super::shim_protocol::{
    self, FRAME_BYTES_MAX, START_BYTES_MAX, ShimCommand, ShimEvent, ShimExit, StartRequest,
};
use ydl_os::proc_tree::Tree;
use ydl_os::process::{self, Signal};
use ydl_os::{reason, spawn, usage};

/// Timeout of SIGKILL. A process in an uninterruptible call takes longer; the shim then gives up.
const KILL_MAX: Duration = Duration::from_secs(5);
/// Time after the agent's death when the shim exits regardless.
const ORPHANED_MAX: Duration = Duration::from_secs(15);
/// Interval of checks that the agent lives, in case another process inherited its socket.
const PARENT_CHECK: Duration = Duration::from_secs(5);
/// Timeout of the start request.
const START_MAX: Duration = Duration::from_secs(60);

/// Timeout of the remaining output after the last process has exited.
const MUX_MAX: Duration = Duration::from_secs(3);

type SharedProcesses = Arc<Mutex<Processes>>;

/// The program's processes that have not been reaped; their pids must not be signalled afterwards.
#[derive(Debug)]
struct Processes {
    pids: Vec<u32>,
    /// Set after SIGTERM was sent. It is sent once: a second signal could interrupt a process that is saving its work.
    terminated: bool,
}

/// Runs one program as requested on the agent's socket: standard input, or the socket at that path.
pub(crate) fn run(socket: Option<&Path>) -> ExitCode {
    match run_shim(socket) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Standard error may be closed.
            let _ = writeln!(io::stderr(), "error: the shim failed: {}", reason(&error));
            ExitCode::from(70)
        }
    }
}

fn run_shim(socket: Option<&Path>) -> io::Result<()> {
    let parent = process::parent();
    process::become_subreaper()?;
    let mut agent = match socket {
        None => UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?),
        Some(path) => UnixStream::connect(path)?,
    };
    agent.set_read_timeout(Some(START_MAX))?;
    // An agent that does not read must not block the shim of a dead program forever.
    agent.set_write_timeout(Some(ORPHANED_MAX))?;
    let mut start: StartRequest = shim_protocol::read(&mut agent, START_BYTES_MAX)?;
    if start.inherit {
        inherit(&mut start.env);
    }

    let (mux, outputs) = match start.each.len() {
        0 | 1 => (None, Vec::new()),
        several => OutputMux::start(several).map(|(mux, outputs)| (Some(mux), outputs))?,
    };
    let pids = match launch(&start, outputs) {
        Ok(pids) => pids,
        Err(error) => {
            kill_all();
            return shim_protocol::write(&mut agent, &ShimEvent::Failed(error));
        }
    };
    let grace = Duration::from_millis(start.grace_ms);
    drop(start);
    let pid = pids.first().copied().unwrap_or_default();
    let running: SharedProcesses = Arc::new(Mutex::new(Processes { pids, terminated: false }));
    // A failed write means that the agent died; `listen` notices that and kills the processes.
    let _ = shim_protocol::write(&mut agent, &ShimEvent::Started { pid });

    agent.set_read_timeout(Some(PARENT_CHECK))?;
    let (commands, shared) = (agent.try_clone()?, Arc::clone(&running));
    thread::Builder::new()
        .name("commands".into())
        .stack_size(128 << 10)
        .spawn(move || listen(commands, parent, &shared))?;

    let status = reap_until_program_ends(&running, grace)?;
    let survivors = kill_all();
    if let Some(mux) = mux {
        mux.finish(MUX_MAX);
    }
    let exited = ShimExit {
        code: status.exit_status(),
        signal: status.terminating_signal(),
        peak_memory_bytes: usage::peak_memory_of_reaped_children().unwrap_or_default(),
        survivors,
        memory_short: socket.is_some() && memory_was_short(),
        ..ShimExit::default()
    };
    // Fails if the agent has died; it needs no event then.
    let _ = shim_protocol::write(&mut agent, &ShimEvent::Exited(exited));
    Ok(())
}

/// Adds the shim's own environment. Requested variables take precedence.
fn inherit(env: &mut BTreeMap<String, String>) {
    for (name, value) in std::env::vars_os() {
        let (Ok(name), Ok(value)) = (name.into_string(), value.into_string()) else {
            continue;
        };
        match env.entry(name) {
            Entry::Vacant(entry) => {
                entry.insert(value);
            }
            // Module search paths are concatenated.
            Entry::Occupied(mut requested)
                if requested.key() == "PYTHONPATH" && !value.is_empty() =>
            {
                let both = format!("{}:{value}", requested.get());
                requested.insert(both);
            }
            Entry::Occupied(_) => {}
        }
    }
}

/// Returns true if the kernel has killed a process because the container was out of memory.
fn memory_was_short() -> bool {
    let files = ["/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"];
    files.iter().any(|file| {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let kills = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        kills.is_some_and(|count| count.trim().parse().is_ok_and(|count: u64| count > 0))
    })
}

/// Starts all processes of the program. On an error some of them may be running.
fn launch(start: &StartRequest, outputs: Vec<ProcessOutput>) -> Result<Vec<u32>, ExecError> {
    exec::enter(&start.cwd)?;
    let name = start.argv.first().map_or("", String::as_str);
    let path = exec::find(name, &start.env)?;
    let mut outputs = outputs.into_iter();
    let mut pids = Vec::new();
    for local in 0..start.each.len().max(1) {
        let mut env = start.env.clone();
        env.extend(start.each.get(local).cloned().unwrap_or_default());
        pids.push(launch_one(&path, &start.argv, &env, outputs.next())?);
    }
    Ok(pids)
}

fn launch_one(
    path: &str,
    argv: &[String],
    env: &BTreeMap<String, String>,
    output: Option<ProcessOutput>,
) -> Result<u32, ExecError> {
    exec::check_lengths(argv, env)?;
    let image = spawn::Image::new(
        path,
        argv.iter().map(String::as_str),
        env.iter().map(|(name, value)| (name.as_str(), value.as_str())),
    )
    .map_err(|_| ExecError {
        errno: Errno::INVAL.raw_os_error(),
        sentence: format!("the arguments or the environment of `{path}` hold a zero byte"),
        hint: None,
    })?;

    let mut command = Command::new(path);
    command.stdin(Stdio::null());
    if let Some(ProcessOutput { stdout, stderr }) = output {
        command.stdout(stdout).stderr(stderr);
    }
    spawn::own_group(&mut command);
    spawn::die_with_parent(&mut command, Signal::KILL);
    spawn::become_image(&mut command, image);
    match command.spawn() {
        // The handle is dropped: this process reaps all children itself.
        Ok(child) => Ok(child.id()),
        Err(error) => Err(exec::explain(path, Errno::from_io_error(&error).unwrap_or(Errno::IO))),
    }
}

/// Reaps all children, adopted orphans included, until all of the program's own processes have exited. When one of them
/// fails, terminates the others; its status becomes the program's.
fn reap_until_program_ends(running: &SharedProcesses, grace: Duration) -> io::Result<WaitStatus> {
    let mut failed = None;
    loop {
        // Peeks only: the process keeps its pid until it is reaped under the lock.
        match rustix::process::waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let mut running = running.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((pid, status)) = rustix::process::wait(WaitOptions::NOHANG)? {
            let pid = pid.as_raw_pid() as u32;
            let Some(at) = running.pids.iter().position(|one| *one == pid) else {
                continue;
            };
            running.pids.swap_remove(at);
            if status.exit_status() != Some(0) && failed.is_none() {
                failed = Some(status);
                // If the agent requested the termination, the agent enforces the grace period.
                if !running.pids.is_empty() && running.terminate() {
                    kill_after(grace);
                }
            }
            if running.pids.is_empty() {
                return Ok(failed.unwrap_or(status));
            }
        }
    }
}

impl Processes {
    /// Sends SIGTERM to the program's processes; returns false if it was sent before.
    fn terminate(&mut self) -> bool {
        if std::mem::replace(&mut self.terminated, true) {
            return false;
        }
        for process in &self.pids {
            // Fails for a group without members.
            let _ = process::kill_group(*process, Signal::TERM);
        }
        true
    }
}

/// Kills all remaining processes after the grace period.
fn kill_after(grace: Duration) {
    let kill = move || {
        thread::sleep(grace);
        kill_below();
    };
    let thread = thread::Builder::new().name("grace".into());
    if thread.stack_size(128 << 10).spawn(kill).is_err() {
        kill_below();
    }
}

/// Kills and reaps all descendants; returns the number that would not die in time.
fn kill_all() -> usize {
    let deadline = Instant::now() + KILL_MAX;
    let mut pause = Duration::from_millis(1);
    loop {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some(_)) | Err(Errno::INTR) => {}
                // Orphans become children of this process, so without children no descendant is left.
                Err(_) => return 0,
                Ok(None) => break,
            }
        }
        let survivors = kill_below();
        if Instant::now() > deadline {
            return survivors;
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// Sends SIGKILL to all descendants; returns their number.
fn kill_below() -> usize {
    // Without `/proc` no descendant can be found.
    let this = std::process::id();
    let Ok(tree) = Tree::below(this) else {
        return 0;
    };
    let mut alive = 0;
    for process in tree.descendants(this) {
        if !process.is_zombie() {
            alive += 1;
            // A process that changed its user may be out of reach; it stays counted.
            let _ = process.identity().signal(Signal::KILL);
        }
    }
    alive
}

/// Executes the agent's commands until the connection ends.
fn listen(mut agent: UnixStream, parent: Option<u32>, running: &SharedProcesses) {
    loop {
        match shim_protocol::read(&mut agent, FRAME_BYTES_MAX) {
            Ok(ShimCommand::Terminate) => {
                let mut running = running.lock().unwrap_or_else(PoisonError::into_inner);
                running.terminate();
            }
            Ok(ShimCommand::Kill) => {
                kill_below();
            }
            // No command arrived: frames are written whole, so none was cut off.
            Err(error)
                if error.kind() == io::ErrorKind::WouldBlock && process::parent() == parent => {}
            // End of stream or an invalid frame: the agent is gone.
            Err(_) => break,
        }
    }
    kill_below();
    // Normally the other thread sees the program end, cleans up and exits; this is the fallback.
    thread::sleep(ORPHANED_MAX);
    std::process::exit(70);
}
