//! The container of one program. The program's shim is its first process; the agent stays outside and talks to the shim
//! through a socket in the container's directory, which both see at the same path.
//!
//! So the program has the same shim, paths and signals as anywhere. When the agent dies its socket closes: the shim
//! kills everything and exits, and the engine removes the container, even if the docker command is killed meanwhile.

use super::engine::{Engine, LABEL, UserMapping, error_line};
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};
use ydl_core::spec::Image;

/// Path of this binary in every image.
pub(super) const BINARY: &str = "/run/ydl";
/// Name of the shim's socket in the container's directory.
pub(crate) const SOCKET: &str = "shim.sock";
/// Maximum number of links out of a job's files.
const LINKS_MAX: usize = 256;
const DEPTH_MAX: usize = 32;

/// The container of one program.
#[derive(Clone, Debug)]
pub struct Container {
    pub engine: Engine,
    /// Name of the container.
    pub name: String,
    /// Id of the job.
    pub job: String,
    /// Directory of the job, mounted at the same path.
    pub job_dir: PathBuf,
    /// Directory of the container below it.
    pub dir: PathBuf,
    /// Path of this binary.
    pub binary: PathBuf,
    pub image: Image,
    /// Directory in which programs run, if it is not below that of the job; mounted at the same path.
    pub shared_dir: Option<PathBuf>,
    /// Memory limit, if there is one.
    pub memory_mib: Option<u64>,
    /// Exposes the machine's GPUs; an environment variable selects among them.
    pub gpus: bool,
}

impl Container {
    /// Builds the docker command that runs it. No environment value is on the command line: those are sent through the
    /// socket.
    pub fn command(&self, users: UserMapping) -> Command {
        let mut command = Command::new(&self.engine.program);
        command.args(["run", "--rm", "--sig-proxy=false", "--log-driver", "none"]);
        command.args(["--name", &self.name]);
        command.args(["--label", &format!("{LABEL}={}", self.job)]);
        let network = self.image.network.as_deref().unwrap_or("host");
        command.args(["--network", network]);
        let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
        match users {
            UserMapping::Same => {
                command.args(["--user", &format!("{}:{}", uid.as_raw(), gid.as_raw())])
            }
            UserMapping::Mapped => command
                .args(["--userns", "host"])
                .args(["--user", &format!("{}:{}", uid.as_raw(), gid.as_raw())]),
            UserMapping::Own => command.args(["--user", "0:0"]),
        };
        if let Some(memory_mib) = self.memory_mib {
            let memory = format!("{memory_mib}m");
            // Otherwise docker adds the same amount of swap.
            command.args(["--memory", &memory, "--memory-swap", &memory]);
        }
        if self.image.privileged {
            command.arg("--privileged");
        }
        if self.gpus {
            command.args(["--gpus", "all"]);
        }
        let mut bind = |from: &Path, to: &Path, writable| {
            command.arg("--mount").arg(mount(from, to, writable));
        };
        bind(&self.job_dir, &self.job_dir, true);
        if let Some(dir) = &self.shared_dir {
            bind(dir, dir, true);
        }
        bind(&self.binary, Path::new(BINARY), false);
        for link in links_out(&self.job_dir.join("files"), &self.job_dir) {
            bind(&link, &link, false);
        }
        for mount in &self.image.mounts {
            bind(Path::new(&mount.from), Path::new(&mount.to), mount.writable);
        }
        command.arg("--workdir").arg(&self.dir);
        command.args(["--entrypoint", BINARY, &self.image.name, "shim", SOCKET]);
        command
    }

    /// Explains from docker's error output why the container did not start.
    pub fn why(&self, stderr: &str) -> String {
        let why = error_line(stderr).unwrap_or_else(|| "no error output".to_owned());
        format!("docker does not run the image `{}`: {why}", self.image.name)
    }

    /// Removes the container if it exists.
    pub async fn remove(&self) {
        self.engine.remove(&[&self.name]).await;
    }
}

/// Formats a mount option: fields separated by commas, quoted if they contain one.
pub(super) fn mount(from: &Path, to: &Path, writable: bool) -> String {
    let field = |name: &str, path: &Path| {
        let text = format!("{name}={}", path.display());
        match text.contains([',', '"']) {
            true => format!("\"{}\"", text.replace('"', "\"\"")),
            false => text,
        }
    };
    let mode = if writable { "" } else { ",readonly" };
    format!("type=bind,{},{}{mode}", field("src", from), field("dst", to))
}

/// Returns the targets of links in the job's files that lead out of it: large files are not copied at submit.
fn links_out(files: &Path, job: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut dirs = vec![(files.to_owned(), 0)];
    while let Some((dir, depth)) = dirs.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            if kind.is_dir() && depth < DEPTH_MAX {
                dirs.push((path, depth + 1));
            } else if kind.is_symlink()
                && let Ok(target) = path.canonicalize()
                && !target.starts_with(job)
                && found.len() < LINKS_MAX
            {
                found.insert(target);
            }
        }
    }
    found
}

/// Returns a valid container name, unique on this machine: job, container and round.
pub(crate) fn name(job: &str, container: &str, round: u32) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    let text = format!("ydl-{job}-{container}-{round}");
    text.chars().map(|c| if fits(c) { c } else { '-' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ydl_core::spec::{Mount, Runtime};

    #[test]
    fn the_command_line_contains_the_options_and_no_variable() {
        let dir = tempfile::tempdir().unwrap();
        let job = dir.path().join("j,ob");
        fs::create_dir_all(job.join("files/data")).unwrap();
        fs::write(dir.path().join("large"), "").unwrap();
        std::os::unix::fs::symlink(dir.path().join("large"), job.join("files/data/large")).unwrap();
        let image = Image {
            mounts: vec![Mount::parse("/data:/mnt/data:ro").unwrap()],
            privileged: true,
            ..Image::new(Runtime::Docker, "python:3.11")
        };
        let container = Container {
            engine: Engine { program: "/usr/bin/docker".into() },
            name: name("digits-abc234", "container_000001", 2),
            job: "digits-abc234".into(),
            dir: job.join("containers/container_000001"),
            job_dir: job.clone(),
            binary: "/opt/ydl".into(),
            image,
            shared_dir: Some("/home/alice/digits".into()),
            memory_mib: Some(512),
            gpus: true,
        };
        let command = container.command(UserMapping::Own);
        let args: Vec<_> = command.get_args().map(|arg| arg.to_string_lossy()).collect();
        let at = dir.path().canonicalize().unwrap();
        let (job, at) = (job.display(), at.display());
        let expected = format!(
            "run --rm --sig-proxy=false --log-driver none --name ydl-digits-abc234-container_000001-2 --label \
             ydl.job=digits-abc234 --network host --user 0:0 --memory 512m --memory-swap 512m --privileged --gpus all --mount \
             type=bind,\"src={job}\",\"dst={job}\" --mount type=bind,src=/home/alice/digits,dst=/home/alice/digits --mount type=bind,src=/opt/ydl,dst=/run/ydl,readonly --mount \
             type=bind,src={at}/large,dst={at}/large,readonly --mount type=bind,src=/data,dst=/mnt/data,readonly \
             --workdir {job}/containers/container_000001 --entrypoint /run/ydl python:3.11 shim shim.sock"
        );
        assert_eq!(args.join(" "), expected);
        let envs: Vec<(&std::ffi::OsStr, Option<&std::ffi::OsStr>)> = command.get_envs().collect();
        assert!(envs.is_empty(), "{envs:?}");
    }
}
