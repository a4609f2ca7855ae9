//! A docker engine: the one of this machine if it answers, else one of its own from the distribution's packages, which only
//! root can run.

use crate::{
    fact,
    failure::{Failure, Kind},
    packages, tool,
};
use rustix::process::{Pid, Signal};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

/// The engine and what it runs containers with; libraries that an ordinary system has are not among them.
const PACKAGES: [&str; 4] = ["docker.io", "containerd", "runc", "libdevmapper1.02.1"];
const START_MAX: Duration = Duration::from_secs(60);
const STOP_MAX: Duration = Duration::from_secs(30);
const SMALL: Duration = Duration::from_secs(60);

/// A docker engine. One of its own ends with this.
#[derive(Debug)]
pub struct Docker {
    program: PathBuf,
    /// Where it listens, if not where everybody looks.
    host: Option<String>,
    daemon: Option<Child>,
}

impl Docker {
    /// The engine that answers here, or one that is started in that directory. Fails where neither can be had, and says
    /// why.
    pub fn start(place: &Path, progress: &mut dyn FnMut(&str)) -> Result<Docker, Failure> {
        if let Some(program) = tool::find("docker") {
            let docker = Docker { program, host: None, daemon: None };
            if docker.run(&["version"]).is_ok() {
                return Ok(docker);
            }
        }
        if !rustix::process::getuid().is_root() {
            let what = "no docker engine answers, and only root can start one";
            return Err(Failure::new(Kind::Missing, what).hint("install docker and start it"));
        }
        if !packages::are_known() {
            let what = "no docker engine answers, and this system's packages of it are not known";
            return Err(Failure::new(Kind::Missing, what).hint("install docker and start it"));
        }
        let root = packages::unpacked("docker", "docker", &PACKAGES, progress)?;
        Docker::of_own(&root, place)
    }

    fn of_own(root: &Path, place: &Path) -> Result<Docker, Failure> {
        let own = root.join("usr/bin/docker");
        let program = match own.exists() {
            true => own,
            false => tool::find("docker").ok_or_else(|| {
                Failure::new(Kind::Missing, "there is no `docker` command")
                    .hint("install the package docker-cli")
            })?,
        };
        let folders = ["usr/bin", "usr/sbin"].map(|folder| root.join(folder).display().to_string());
        let usual = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{usual}:/usr/sbin:/sbin", folders.join(":"));
        let log = place.join("dockerd.log");
        let file = fs::File::create(&log).map_err(Failure::at("write", &log))?;
        let again = file.try_clone().map_err(Failure::at("write", &log))?;
        let host = format!("unix://{}", place.join("docker.sock").display());
        // It goes with the thread that has started it, however that ends; and what it mounts goes with it.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "TERM", "--"])
            .args(["unshare", "--mount", "--propagation", "slave", "--"])
            .arg(root.join("usr/sbin/dockerd"))
            .arg("--data-root")
            .arg(place.join("data"))
            .arg("--exec-root")
            .arg(place.join("exec"))
            .arg("--pidfile")
            .arg(place.join("pid"))
            .args(["--host", &host, "--iptables=false", "--ip6tables=false", "--bridge=none"])
            .env("PATH", &path)
            .env("LD_LIBRARY_PATH", libraries(root))
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(again);
        let started = command.spawn();
        let daemon = started.map_err(|error| {
            Failure::new(Kind::Missing, format!("cannot start `setpriv`: {error}"))
        })?;
        let mut docker = Docker { program, host: Some(host), daemon: Some(daemon) };
        let mut ended = None;
        let answered = fact::wait_for("a docker engine that answers", START_MAX, || {
            let status = docker.daemon.as_mut().map(Child::try_wait);
            if let Some(Ok(Some(status))) = status {
                ended = Some(status);
                return Some(());
            }
            docker.run(&["version"]).ok().map(drop)
        });
        let words = fs::read_to_string(&log).unwrap_or_default();
        let failed = match (answered, ended) {
            (Ok(()), None) => return Ok(docker),
            (_, Some(status)) => Failure::new(Kind::Ended, format!("`dockerd` ended: {status}")),
            (Err(failure), None) => failure,
        };
        Err(failed.log(tool::tail(&words, 20)))
    }

    /// Runs the docker command with these words; what it has printed comes back.
    pub fn run(&self, words: &[&str]) -> Result<String, Failure> {
        let mut command = Command::new(&self.program);
        command.args(words).envs(self.variables());
        tool::must(&mut command, "", SMALL)
    }

    /// The directory of the docker command, for a `PATH`.
    pub fn folder(&self) -> &Path {
        self.program.parent().unwrap_or(Path::new("/usr/bin"))
    }

    /// The variables with which a docker command finds this engine.
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
        // It ends its containers itself, and what runs them. One that does not is killed.
        let _ = rustix::process::kill_process(Pid::from_child(&daemon), Signal::TERM);
        let gone = fact::wait_for("the end of dockerd", STOP_MAX, || {
            daemon.try_wait().ok().flatten().map(drop)
        });
        if gone.is_err() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

/// `usr/lib/x86_64-linux-gnu`, or what it is called on this architecture; `lib/…` where a package still has it there.
fn libraries(root: &Path) -> String {
    let mut found = Vec::new();
    for folder in ["usr/lib", "lib"] {
        let inside = fs::read_dir(root.join(folder)).into_iter().flatten();
        for folder in inside.flatten().map(|folder| folder.path()) {
            let is_of_libraries = folder.to_string_lossy().ends_with("-linux-gnu");
            if is_of_libraries {
                found.push(folder.display().to_string());
            }
        }
    }
    found.join(":")
}
