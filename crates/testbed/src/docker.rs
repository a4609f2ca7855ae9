//! Docker engine: the one of this machine if it responds, else a private one from the distribution's packages. Starting a
//! private engine requires root.

use crate::{
    error::{Error, ErrorKind},
    packages, probe, tool,
};
use rustix::process::{Pid, Signal};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

/// The engine and the container runtime, without libraries that every system has.
const PACKAGES: [&str; 4] = ["docker.io", "containerd", "runc", "libdevmapper1.02.1"];
const START_TIMEOUT: Duration = Duration::from_secs(60);
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

/// A docker engine. A private engine stops on drop.
#[derive(Debug)]
pub struct Docker {
    program: PathBuf,
    /// Address of a private engine; none for docker's default.
    host: Option<String>,
    daemon: Option<Child>,
}

impl Docker {
    /// Returns the engine of this machine, or starts a private one in `directory`. Fails if neither is available.
    pub fn start(directory: &Path, progress: &mut dyn FnMut(&str)) -> Result<Docker, Error> {
        if let Some(program) = tool::find("docker") {
            let docker = Docker { program, host: None, daemon: None };
            if docker.run(&["version"]).is_ok() {
                return Ok(docker);
            }
        }
        if !rustix::process::getuid().is_root() {
            let message = "no docker engine responds, and starting one requires root";
            return Err(Error::new(ErrorKind::Missing, message).hint("install docker and start it"));
        }
        if !packages::are_supported() {
            let message =
                "no docker engine responds, and this system has no `apt-get` to download one";
            return Err(Error::new(ErrorKind::Missing, message).hint("install docker and start it"));
        }
        let root = packages::fetch("docker", "docker", &PACKAGES, progress)?;
        Docker::start_private(&root, directory)
    }

    fn start_private(root: &Path, directory: &Path) -> Result<Docker, Error> {
        let unpacked = root.join("usr/bin/docker");
        let program = match unpacked.exists() {
            true => unpacked,
            false => tool::find("docker").ok_or_else(|| {
                Error::new(ErrorKind::Missing, "`docker` not found")
                    .hint("install the package docker-cli")
            })?,
        };
        let folders = ["usr/bin", "usr/sbin"].map(|folder| root.join(folder).display().to_string());
        let inherited = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{inherited}:/usr/sbin:/sbin", folders.join(":"));
        let log = directory.join("dockerd.log");
        let file = fs::File::create(&log).map_err(Error::at("write", &log))?;
        let stderr = file.try_clone().map_err(Error::at("write", &log))?;
        let host = format!("unix://{}", directory.join("docker.sock").display());
        // The parent-death signal stops it with the thread that started it; the mount namespace drops its mounts.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "TERM", "--"])
            .args(["unshare", "--mount", "--propagation", "slave", "--"])
            .arg(root.join("usr/sbin/dockerd"))
            .arg("--data-root")
            .arg(directory.join("data"))
            .arg("--exec-root")
            .arg(directory.join("exec"))
            .arg("--pidfile")
            .arg(directory.join("pid"))
            .args(["--host", &host, "--iptables=false", "--ip6tables=false", "--bridge=none"])
            .env("PATH", &path)
            .env("LD_LIBRARY_PATH", libraries(root))
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(stderr);
        let started = command.spawn();
        let daemon = started.map_err(|error| {
            Error::new(ErrorKind::Missing, format!("cannot start `setpriv`: {error}"))
        })?;
        let mut docker = Docker { program, host: Some(host), daemon: Some(daemon) };
        let mut exit = None;
        let ready = probe::wait_for("the docker engine to respond", START_TIMEOUT, || {
            let status = docker.daemon.as_mut().map(Child::try_wait);
            if let Some(Ok(Some(status))) = status {
                exit = Some(status);
                return Some(());
            }
            docker.run(&["version"]).ok().map(drop)
        });
        let output = fs::read_to_string(&log).unwrap_or_default();
        let failed = match (ready, exit) {
            (Ok(()), None) => return Ok(docker),
            (_, Some(status)) => {
                Error::new(ErrorKind::Exited, format!("`dockerd` exited: {status}"))
            }
            (Err(error), None) => error,
        };
        Err(failed.log(tool::tail(&output, 20)))
    }

    /// Runs the docker command with the arguments and returns its output.
    pub fn run(&self, arguments: &[&str]) -> Result<String, Error> {
        let mut command = Command::new(&self.program);
        command.args(arguments).envs(self.variables());
        tool::run_checked(&mut command, "", COMMAND_TIMEOUT)
    }

    /// Returns the directory of the docker command, for `PATH`.
    pub fn folder(&self) -> &Path {
        self.program.parent().unwrap_or(Path::new("/usr/bin"))
    }

    /// Returns the environment variables that direct a docker command to this engine.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let host = self.host.iter();
        host.map(|host| ("DOCKER_HOST", host.clone())).collect()
    }
}

impl Drop for Docker {
    fn drop(&mut self) {
        let Some(mut daemon) = self.daemon.take() else {
            return;
        };
        // dockerd stops its containers and their runtime. It is killed if it does not exit in time.
        let _ = rustix::process::kill_process(Pid::from_child(&daemon), Signal::TERM);
        let stopped = probe::wait_for("dockerd to exit", STOP_TIMEOUT, || {
            daemon.try_wait().ok().flatten().map(drop)
        });
        if stopped.is_err() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

/// Returns the library path: `usr/lib/x86_64-linux-gnu` or the name on this architecture, and `lib/…` of older packages.
fn libraries(root: &Path) -> String {
    let mut found = Vec::new();
    for folder in ["usr/lib", "lib"] {
        let inside = fs::read_dir(root.join(folder)).into_iter().flatten();
        for folder in inside.flatten().map(|folder| folder.path()) {
            let is_library_folder = folder.to_string_lossy().ends_with("-linux-gnu");
            if is_library_folder {
                found.push(folder.display().to_string());
            }
        }
    }
    found.join(":")
}
