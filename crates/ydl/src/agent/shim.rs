//! The keeper: a tiny process between the agent and the user's program, `ydl shim`.
//!
//! It exists so that nothing a program starts outlives the agent. It is the program's parent and the
//! one to which orphans below it return, so a program that daemonises is still found. It leads a
//! session of its own and has no parent-death signal: whatever kills the agent, or the agent's whole
//! group, leaves the keeper alive for the moment it needs to kill everything below it. It learns of
//! the agent's death from the end of their socket. Should the keeper itself be killed, the program
//! dies with it by its own parent-death signal and the agent sweeps up the rest.
//!
//! In a container of an image it is the first process, and calls its agent at a socket that is named to it.
//!
//! Two threads, no runtime: this one waits for children, the other listens to the agent.

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
    self, START_BYTES_MAX, ShimCommand, ShimEvent, ShimExit, StartRequest, WORD_BYTES_MAX,
};
use ydl_os::proc_tree::Tree;
use ydl_os::process::{self, Signal};
use ydl_os::{reason, spawn, usage};

/// How long SIGKILL may take. A process in an uninterruptible call takes longer; it cannot be helped.
const KILL_MAX: Duration = Duration::from_secs(5);
/// How long the keeper goes on after the agent's death before it leaves regardless.
const ORPHANED_MAX: Duration = Duration::from_secs(15);
/// How often to make sure that the agent lives, should its socket have leaked to someone else.
const PARENT_CHECK: Duration = Duration::from_secs(5);
/// How long the agent may take to say what to run.
const START_MAX: Duration = Duration::from_secs(60);

/// How long to wait for the rest of what was printed when nobody is left who could print.
const MUX_MAX: Duration = Duration::from_secs(3);

type SharedProcesses = Arc<Mutex<Processes>>;

/// The program's processes that have not been reaped; their pids must not be signalled afterwards.
#[derive(Debug)]
struct Processes {
    pids: Vec<u32>,
    /// Whether they were asked to end. They are asked once: a second request would interrupt one that is saving its work
    /// because of the first.
    asked: bool,
}

/// Keeps one program, as told on the agent's socket: standard input, or the one of that name.
pub fn run(socket: Option<&Path>) -> ExitCode {
    match keep(socket) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody may be there to read it.
            let _ = writeln!(io::stderr(), "error: the keeper cannot go on: {}", reason(&error));
            ExitCode::from(70)
        }
    }
}

fn keep(socket: Option<&Path>) -> io::Result<()> {
    let parent = process::parent();
    process::become_subreaper()?;
    let mut agent = match socket {
        None => UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?),
        Some(path) => UnixStream::connect(path)?,
    };
    agent.set_read_timeout(Some(START_MAX))?;
    // An agent that does not read must not keep a dead program's keeper for ever.
    agent.set_write_timeout(Some(ORPHANED_MAX))?;
    let mut start: StartRequest = shim_protocol::read(&mut agent, START_BYTES_MAX)?;
    if start.inherit {
        inherit(&mut start.env);
    }

    let (voices, mouths) = match start.each.len() {
        0 | 1 => (None, Vec::new()),
        several => OutputMux::start(several).map(|(voices, mouths)| (Some(voices), mouths))?,
    };
    let pids = match launch(&start, mouths) {
        Ok(pids) => pids,
        Err(refusal) => {
            end_all();
            return shim_protocol::write(&mut agent, &ShimEvent::Failed(refusal));
        }
    };
    let grace = Duration::from_millis(start.grace_ms);
    drop(start);
    let pid = pids.first().copied().unwrap_or_default();
    let running: SharedProcesses = Arc::new(Mutex::new(Processes { pids, asked: false }));
    // An agent that died meanwhile is noticed below, where what was started is killed.
    let _ = shim_protocol::write(&mut agent, &ShimEvent::Started { pid });

    agent.set_read_timeout(Some(PARENT_CHECK))?;
    let (ears, told) = (agent.try_clone()?, Arc::clone(&running));
    thread::Builder::new()
        .name("ears".into())
        .stack_size(128 << 10)
        .spawn(move || listen(ears, parent, &told))?;

    let status = reap_until_program_ends(&running, grace)?;
    let left = end_all();
    if let Some(voices) = voices {
        voices.finish(MUX_MAX);
    }
    let used = usage::of_reaped_children().unwrap_or_default();
    let exited = ShimExit {
        code: status.exit_status(),
        signal: status.terminating_signal(),
        peak_rss_bytes: used.peak_rss_bytes,
        user_ms: used.user_ms,
        system_ms: used.system_ms,
        left,
        memory_short: socket.is_some() && memory_was_short(),
    };
    // An agent that has died needs no report.
    let _ = shim_protocol::write(&mut agent, &ShimEvent::Exited(exited));
    Ok(())
}

/// Puts what is around the keeper below what was said.
fn inherit(env: &mut BTreeMap<String, String>) {
    for (name, value) in std::env::vars_os() {
        let (Ok(name), Ok(value)) = (name.into_string(), value.into_string()) else {
            continue;
        };
        match env.entry(name) {
            Entry::Vacant(free) => {
                free.insert(value);
            }
            // Both have modules to be found.
            Entry::Occupied(mut said) if said.key() == "PYTHONPATH" && !value.is_empty() => {
                let both = format!("{}:{value}", said.get());
                said.insert(both);
            }
            Entry::Occupied(_) => {}
        }
    }
}

/// Whether the kernel has ended a process here because the container had no memory left.
fn memory_was_short() -> bool {
    let files = ["/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"];
    files.iter().any(|file| {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let kills = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        kills.is_some_and(|count| count.trim().parse().is_ok_and(|count: u64| count > 0))
    })
}

/// Starts the program, so many times as it is to run. After a refusal some of its processes may be there.
fn launch(start: &StartRequest, mouths: Vec<ProcessOutput>) -> Result<Vec<u32>, ExecError> {
    exec::enter(&start.cwd)?;
    let name = start.argv.first().map_or("", String::as_str);
    let path = exec::find(name, &start.env)?;
    let mut mouths = mouths.into_iter();
    let mut pids = Vec::new();
    for local in 0..start.each.len().max(1) {
        let mut env = start.env.clone();
        env.extend(start.each.get(local).cloned().unwrap_or_default());
        pids.push(launch_one(&path, &start.argv, &env, mouths.next())?);
    }
    Ok(pids)
}

fn launch_one(
    path: &str,
    argv: &[String],
    env: &BTreeMap<String, String>,
    mouth: Option<ProcessOutput>,
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
    if let Some(ProcessOutput { stdout, stderr }) = mouth {
        command.stdout(stdout).stderr(stderr);
    }
    spawn::own_group(&mut command);
    spawn::die_with_parent(&mut command, Signal::KILL);
    spawn::become_image(&mut command, image);
    match command.spawn() {
        // The handle is given up: this process reaps every child alike.
        Ok(child) => Ok(child.id()),
        Err(error) => Err(exec::explain(path, Errno::from_io_error(&error).unwrap_or(Errno::IO))),
    }
}

/// Reaps whatever ends, orphans that came to this process included, until all of the program's own processes have. When
/// one of them fails, the others are asked to end, and how that one ended is how the program did.
fn reap_until_program_ends(running: &SharedProcesses, grace: Duration) -> io::Result<WaitStatus> {
    let mut failed = None;
    loop {
        // Only looks: whoever ended keeps its pid until it is reaped under the lock.
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
                // Where it was the agent that asked, it counts the time by itself.
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
    /// Asks the program's processes to end; false if they were asked before.
    fn terminate(&mut self) -> bool {
        if std::mem::replace(&mut self.asked, true) {
            return false;
        }
        for process in &self.pids {
            // A group without members has nobody left to be asked to stop.
            let _ = process::kill_group(*process, Signal::TERM);
        }
        true
    }
}

/// Kills whatever is still there after that time.
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

/// Kills and reaps everything below until nothing is left; says how many would not die in time.
fn end_all() -> usize {
    let deadline = Instant::now() + KILL_MAX;
    let mut pause = Duration::from_millis(1);
    loop {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some(_)) | Err(Errno::INTR) => {}
                // Orphans become children of this process, so without children nothing is left.
                Err(_) => return 0,
                Ok(None) => break,
            }
        }
        let left = kill_below();
        if Instant::now() > deadline {
            return left;
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// Sends SIGKILL to everything below this process; says how many there were.
fn kill_below() -> usize {
    // Without `/proc` there is nobody to be found.
    let this = std::process::id();
    let Ok(tree) = Tree::below(this) else {
        return 0;
    };
    let mut alive = 0;
    for process in tree.descendants(this) {
        if !process.is_zombie() {
            alive += 1;
            // One that changed its user may refuse; it stays counted.
            let _ = process.identity().signal(Signal::KILL);
        }
    }
    alive
}

/// Obeys the agent until it falls silent for good.
fn listen(mut agent: UnixStream, parent: Option<u32>, running: &SharedProcesses) {
    loop {
        match shim_protocol::read(&mut agent, WORD_BYTES_MAX) {
            Ok(ShimCommand::Terminate) => {
                let mut running = running.lock().unwrap_or_else(PoisonError::into_inner);
                running.terminate();
            }
            Ok(ShimCommand::Kill) => {
                kill_below();
            }
            // Nothing came: frames are written whole, so it was not cut off in the middle of one.
            Err(error)
                if error.kind() == io::ErrorKind::WouldBlock && process::parent() == parent => {}
            // The end of the socket, or nonsense on it: there is no agent any more.
            Err(_) => break,
        }
    }
    kill_below();
    // The other thread sees the program end, cleans up and leaves; this is for when it cannot.
    thread::sleep(ORPHANED_MAX);
    std::process::exit(70);
}
