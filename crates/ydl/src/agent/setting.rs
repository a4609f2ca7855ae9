//! What an agent finds in its container's directory when it starts.
//!
//! `agent.json` says where it is and whom to talk to; the tokens lie beside it, readable by the owner alone.

use crate::{
    jobs::write_json,
    wire::secret::{Scope, Token},
};
use serde::{Deserialize, Serialize};
use std::{
    fs, io,
    path::{Path, PathBuf},
};
use ydl_core::ContainerId;

/// Where an agent is and whom it talks to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Setting {
    /// The job's directory.
    pub job: PathBuf,
    /// The container it is in.
    pub container: ContainerId,
    /// The master's `host:port`.
    pub master: String,
    /// The address at which its peers reach this node.
    pub host: String,
}

/// The agent's own token.
pub const AGENT_TOKEN: &str = "agent.token";
/// The token of the program it runs.
pub const PROGRAM_TOKEN: &str = "program.token";
const FILE: &str = "agent.json";
/// The largest setting that is read.
const BYTES_MAX: u64 = 1 << 20;

impl Setting {
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

    /// Reads it back.
    pub fn read(dir: &Path) -> io::Result<Setting> {
        let path = dir.join(FILE);
        if fs::metadata(&path)?.len() > BYTES_MAX {
            return Err(io::Error::other("it is too large"));
        }
        Ok(serde_json::from_slice(&fs::read(path)?)?)
    }
}
