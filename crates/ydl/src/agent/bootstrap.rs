//! Bootstrap files of an agent in its container's directory.
//!
//! `agent.json` contains the addresses; the tokens are separate files, readable by the owner alone.

use serde::{Deserialize, Serialize};
use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
};
use ydl_core::ContainerId;
use ydl_net::secret::{Scope, Token};
use ydl_proto::version::{from_json, write_json};

/// Location of an agent and of its master.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Bootstrap {
    /// Directory of the job.
    pub job: PathBuf,
    /// Container of the agent.
    pub container: ContainerId,
    /// Address of the master, `host:port`.
    pub master: String,
    /// Address at which peers reach this node.
    pub host: String,
    /// Directory of the job in HDFS, on a cluster.
    #[serde(default)]
    pub staging: Option<String>,
    /// GPUs that the agent reserves by itself; none if the backend has assigned them.
    #[serde(default)]
    pub gpus: Option<GpuRequest>,
}

/// GPUs that an agent reserves on its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuRequest {
    /// Number of devices.
    pub count: u32,
    /// Set if the cluster assigns GPUs. Devices that it shows the container are then used as they are.
    pub counted: bool,
}

/// Alias of the [`BootstrapSecret`] among the credentials of a container on a cluster.
pub const BOOTSTRAP_SECRET: &str = "ydl.bootstrap";

/// Everything that an agent on a cluster is given, as JSON. It is passed among Hadoop's credentials, which keep
/// secrets. The job's directory is unknown to the sender: it is the directory the agent starts in.
#[derive(Clone, Serialize, Deserialize)]
pub struct BootstrapSecret {
    /// Location of the agent and of its master.
    pub bootstrap: Bootstrap,
    /// Token of the agent.
    pub agent_token: String,
    /// Token of the agent's program.
    pub program_token: String,
}

impl fmt::Debug for BootstrapSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BootstrapSecret")
            .field("bootstrap", &self.bootstrap)
            .finish_non_exhaustive()
    }
}

/// File of the agent's token.
pub(crate) const AGENT_TOKEN: &str = "agent.token";
/// File of the program's token.
pub(crate) const PROGRAM_TOKEN: &str = "program.token";
/// File with the current address of the master, for the program.
pub const MASTER_FILE: &str = "master.address";
/// File of the cluster's tokens that the program may use.
pub(crate) const PROGRAM_CREDENTIALS: &str = "program.credentials";
const FILE: &str = "agent.json";
/// Maximum size of the bootstrap file.
const BYTES_MAX: u64 = 1 << 20;

impl Bootstrap {
    /// Creates the container's directory with all bootstrap files.
    pub fn write(&self, dir: &Path, token: impl Fn(Scope) -> Option<Token>) -> io::Result<()> {
        fs::create_dir_all(dir.join("work"))?;
        let container = self.container.as_str().to_owned();
        let scopes = [
            (AGENT_TOKEN, Scope::Agent(container.clone())),
            (PROGRAM_TOKEN, Scope::Program(container)),
        ];
        for (name, scope) in scopes {
            let token = token(scope).ok_or_else(|| io::Error::other("no token for this scope"))?;
            token.write(&dir.join(name)).map_err(io::Error::other)?;
        }
        write_json(&dir.join(FILE), self)
    }

    /// Writes the master's address for the program, which reads it before each call.
    pub(crate) fn write_master_address(&self, dir: &Path) -> io::Result<()> {
        let temporary = dir.join(format!("{MASTER_FILE}.tmp"));
        fs::write(&temporary, format!("https://{}\n", self.master))?;
        fs::rename(temporary, dir.join(MASTER_FILE))
    }

    /// Reads the bootstrap file of a container's directory.
    pub fn read(dir: &Path) -> io::Result<Bootstrap> {
        let path = dir.join(FILE);
        if fs::metadata(&path)?.len() > BYTES_MAX {
            return Err(io::Error::other("it is too large"));
        }
        Ok(from_json(&fs::read(path)?)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bootstrap_files_of_another_version_are_rejected() {
        let dir = tempfile::tempdir().unwrap();
        for (text, error) in [
            (r#"{"version":2}"#, "unsupported file version 2: this `ydl` reads version 1"),
            (r#"{"job":"/"}"#, "the file has no version: this `ydl` reads version 1"),
        ] {
            fs::write(dir.path().join(FILE), text).unwrap();
            assert_eq!(Bootstrap::read(dir.path()).unwrap_err().to_string(), error);
        }
    }
}
