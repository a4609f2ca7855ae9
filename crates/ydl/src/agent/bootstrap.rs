//! What an agent finds in its container's directory when it starts.
//!
//! `agent.json` says where it is and whom to talk to; the tokens lie beside it, readable by the owner alone.

use serde::{Deserialize, Serialize};
use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
};
use ydl_core::ContainerId;
use ydl_net::secret::{Scope, Token};
use ydl_proto::files::write_json;

/// Where an agent is and whom it talks to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Bootstrap {
    /// The job's directory.
    pub job: PathBuf,
    /// The container it is in.
    pub container: ContainerId,
    /// The master's `host:port`.
    pub master: String,
    /// The address at which its peers reach this node.
    pub host: String,
    /// The job's directory in HDFS, where a cluster has one.
    #[serde(default)]
    pub staging: Option<String>,
    /// GPUs it finds by itself; nothing where whoever started it has seen to that.
    #[serde(default)]
    pub gpus: Option<GpuRequest>,
}

/// GPUs that an agent finds on its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuRequest {
    /// So many.
    pub count: u32,
    /// Whether the cluster has counted them. What its nodes show the container then stands.
    pub counted: bool,
}

/// The name under which [`Delivered`] travels among the credentials of a container on a cluster.
pub const BOOTSTRAP_SECRET: &str = "ydl.bootstrap";

/// All that an agent on a cluster is given, as JSON. It travels among Hadoop's credentials, where secrets belong.
/// The job's directory is not known to the sender: it is the directory the agent starts in.
#[derive(Clone, Serialize, Deserialize)]
pub struct BootstrapSecret {
    /// Where the agent is and whom it talks to.
    pub setting: Bootstrap,
    /// The agent's own token.
    pub agent_token: String,
    /// The token of the program it runs.
    pub program_token: String,
}

impl fmt::Debug for BootstrapSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BootstrapSecret").field("setting", &self.setting).finish_non_exhaustive()
    }
}

/// The agent's own token.
pub const AGENT_TOKEN: &str = "agent.token";
/// The token of the program it runs.
pub const PROGRAM_TOKEN: &str = "program.token";
/// Where the master is now, for the program.
pub const MASTER_FILE: &str = "master.address";
/// The cluster's tokens that the program may use.
pub const PROGRAM_CREDENTIALS: &str = "program.credentials";
const FILE: &str = "agent.json";
/// The largest setting that is read.
const BYTES_MAX: u64 = 1 << 20;

impl Bootstrap {
    /// Makes the container's directory with everything an agent needs in it.
    pub fn write(&self, dir: &Path, token: impl Fn(Scope) -> Option<Token>) -> io::Result<()> {
        fs::create_dir_all(dir.join("work"))?;
        let container = self.container.as_str().to_owned();
        let scopes = [
            (AGENT_TOKEN, Scope::Agent(container.clone())),
            (PROGRAM_TOKEN, Scope::Program(container)),
        ];
        for (name, scope) in scopes {
            let token = token(scope).ok_or_else(|| io::Error::other("it cannot have a token"))?;
            token.write(&dir.join(name)).map_err(io::Error::other)?;
        }
        write_json(&dir.join(FILE), self)
    }

    /// Tells the program where the master is: it looks there before each call.
    pub fn tell_master(&self, dir: &Path) -> io::Result<()> {
        let aside = dir.join(format!("{MASTER_FILE}.aside"));
        fs::write(&aside, format!("https://{}\n", self.master))?;
        fs::rename(aside, dir.join(MASTER_FILE))
    }

    /// Reads it back.
    pub fn read(dir: &Path) -> io::Result<Bootstrap> {
        let path = dir.join(FILE);
        if fs::metadata(&path)?.len() > BYTES_MAX {
            return Err(io::Error::other("it is too large"));
        }
        Ok(serde_json::from_slice(&fs::read(path)?)?)
    }
}
