//! Starts a program's shim in a container of an image, and accepts its connection.

use super::{
    exec::ExecError,
    output::Capture,
    program::{OUTPUT_MAX, START_MAX, StartError},
};
use crate::docker::{Container, SOCKET};
use std::{fs, io, os::fd::AsRawFd, path::PathBuf, process::Stdio};
use tokio::{
    net::{UnixListener, UnixStream},
    process::{Child, Command},
    time::timeout,
};
use ydl_os::{children, spawn};

/// Connection to a shim.
pub(super) struct ShimConnection {
    pub(super) socket: UnixStream,
    /// The docker command, which lasts as long as the container; without a container, the shim itself.
    pub(super) process: Child,
    /// Pid of the shim on the host, if it is in a container and known.
    pub(super) pid: Option<u32>,
}

/// Starts the container and waits until its shim has connected.
pub(super) async fn start(
    container: &Container,
    mut capture: Capture,
    stdout: io::PipeWriter,
    stderr: io::PipeWriter,
) -> Result<(ShimConnection, Capture), StartError> {
    let shim_error = |what| move |error| StartError::Shim { what, error };
    let users = container.engine.users().await;
    let listener = ShimListener::new(container.dir.join(SOCKET)).map_err(shim_error("prepare"))?;
    let mut command = container.command(users);
    command.stdin(Stdio::null()).stdout(stdout).stderr(stderr);
    // Keeps signals to the agent's group away from it.
    spawn::own_session(&mut command);
    let mut command = Command::from(command);
    let mut child = children::spawn(&mut command).map_err(shim_error("start"))?;
    // It holds the other ends of the pipes, which must close when docker does.
    drop(command);
    let connected = tokio::select! {
        accepted = timeout(START_MAX, listener.0.accept()) => accepted.map_err(|_| None),
        // Docker has exited: it could not start the container, or the shim could not start in it.
        _ = child.wait() => Err(Some(())),
    };
    match connected {
        Ok(accepted) => {
            let (socket, _) = accepted.map_err(shim_error("talk to"))?;
            let pid = socket.peer_cred().ok().and_then(|peer| peer.pid());
            let pid = pid.and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 0);
            let inside = ShimConnection { socket, process: child, pid };
            Ok((inside, capture))
        }
        Err(ended) => {
            // Kills docker if it still runs, and removes the container by name.
            let _ = child.start_kill();
            container.remove().await;
            let stderr_tail = capture.finish(OUTPUT_MAX).await.stderr_tail;
            let sentence = match ended {
                Some(()) => container.why(&stderr_tail),
                None => format!(
                    "docker did not run the image `{}` within {} s",
                    container.image.name,
                    START_MAX.as_secs()
                ),
            };
            Err(StartError::Program(ExecError::other(sentence)))
        }
    }
}

/// Listener on a socket file that is removed on drop.
struct ShimListener(UnixListener, PathBuf);

impl ShimListener {
    fn new(path: PathBuf) -> io::Result<ShimListener> {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let dir = path.parent().unwrap_or(&path);
        let dir = fs::File::open(dir)?;
        // Socket addresses are limited to about a hundred bytes; paths may be longer.
        let short = format!("/proc/self/fd/{}/{SOCKET}", dir.as_raw_fd());
        Ok(ShimListener(UnixListener::bind(short)?, path))
    }
}

impl Drop for ShimListener {
    fn drop(&mut self) {
        // A leftover file is harmless.
        let _ = fs::remove_file(&self.1);
    }
}
