//! Starting a program's keeper in a container of an image, and the line to it.

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

/// A keeper in a container.
pub(super) struct ShimConnection {
    pub(super) socket: UnixStream,
    /// The docker command, which lasts as long as the container.
    pub(super) command: Child,
    /// The keeper's process as it is seen from outside, if it is.
    pub(super) pid: Option<u32>,
}

/// Starts the container, and comes back when its keeper has called.
pub(super) async fn start(
    container: &Container,
    mut capture: Capture,
    stdout: io::PipeWriter,
    stderr: io::PipeWriter,
) -> Result<(ShimConnection, Capture), StartError> {
    let broken = |what| move |error| StartError::Shim { what, error };
    let users = container.engine.users().await;
    let listener = ShimListener::new(container.dir.join(SOCKET)).map_err(broken("prepare"))?;
    let mut command = container.command(users);
    command.stdin(Stdio::null()).stdout(stdout).stderr(stderr);
    // A signal to the agent's group is not meant for it.
    spawn::own_session(&mut command);
    let mut command = Command::from(command);
    let mut child = children::spawn(&mut command).map_err(broken("start"))?;
    // It holds the other ends of the pipes, which must close when docker does.
    drop(command);
    let calling = tokio::select! {
        called = timeout(START_MAX, listener.0.accept()) => called.map_err(|_| None),
        // Docker itself has ended: it could not start the container, or the keeper could not start in it.
        _ = child.wait() => Err(Some(())),
    };
    match calling {
        Ok(called) => {
            let (socket, _) = called.map_err(broken("talk to"))?;
            let pid = socket.peer_cred().ok().and_then(|peer| peer.pid());
            let pid = pid.and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 0);
            let inside = ShimConnection { socket, command: child, pid };
            Ok((inside, capture))
        }
        Err(ended) => {
            // One that does not end by itself is killed with its handle, and its container by name.
            let _ = child.start_kill();
            container.remove().await;
            let said = capture.finish(OUTPUT_MAX).await.stderr_tail;
            let sentence = match ended {
                Some(()) => container.why(&said),
                None => format!(
                    "docker did not run the image `{}` within {} s",
                    container.image.name,
                    START_MAX.as_secs()
                ),
            };
            Err(StartError::Program(ExecError::of(sentence)))
        }
    }
}

/// A socket in a directory, gone from there when nobody waits at it any more.
struct ShimListener(UnixListener, PathBuf);

impl ShimListener {
    fn new(path: PathBuf) -> io::Result<ShimListener> {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let dir = path.parent().unwrap_or(&path);
        let dir = fs::File::open(dir)?;
        // The kernel takes no more than a hundred bytes for the address of a socket, and paths may have more.
        let short = format!("/proc/self/fd/{}/{SOCKET}", dir.as_raw_fd());
        Ok(ShimListener(UnixListener::bind(short)?, path))
    }
}

impl Drop for ShimListener {
    fn drop(&mut self) {
        // It is in the way of nobody.
        let _ = fs::remove_file(&self.1);
    }
}
