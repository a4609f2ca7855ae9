//! Reads the TensorBoard role of a job.

use super::{
    fields::{Map, Reader, boolean, count},
    files::{absolute, hdfs_url},
    tree::Value,
    units::{Rejection, size_mib},
};
use ydl_core::{
    RoleName,
    spec::{Command, Completion, Resources, Restart, RoleSpec},
};

const ROLE: &str = "tensorboard";
/// Default memory: enough for a few runs.
const MEMORY_MIB: u64 = 1024;

impl Reader {
    /// Reads `true`, a directory, or a map.
    pub fn tensorboard(&mut self, map: &Map, base: &str) -> Option<RoleSpec> {
        let node = map.find(ROLE)?;
        let cluster = self.cluster;
        let read = |text: &str| logdir(text, base, cluster);
        let (mut memory_mib, mut vcores) = (MEMORY_MIB, 1);
        let mut wanted = true;
        let dir = match &node.value {
            Value::Map(_) => {
                let map = self.map(node, ROLE, ROLE);
                memory_mib = self.value(&map, "memory", size_mib).unwrap_or(memory_mib);
                vcores = self.value(&map, "vcores", count).unwrap_or(vcores);
                self.value(&map, "logdir", read)
            }
            Value::Scalar { text, .. } if boolean(text).is_ok() => {
                wanted = self.value_of(node, ROLE, boolean).unwrap_or_default();
                None
            }
            Value::Scalar { .. } | Value::Null | Value::List(_) => self.value_of(node, ROLE, read),
        };
        let said = dir.map(|dir| format!(" --logdir {}", quoted(&dir)));
        let script = format!("exec \"$YDL_BINARY\" board{}", said.unwrap_or_default());
        wanted.then(|| RoleSpec {
            name: RoleName::from(ROLE),
            resources: Resources { memory_mib, vcores, ..Resources::default() },
            command: Command::Shell(script),
            restart: Restart::of_sidecar(),
            completion: Completion::Sidecar,
            ports: vec!["http".to_owned()],
            ..RoleSpec::default()
        })
    }
}

/// Parses the directory. On a cluster it must be absolute, because nodes have no base directory.
fn logdir(text: &str, base: &str, cluster: bool) -> Result<String, Rejection> {
    match text.split_once("://") {
        Some(("hdfs", _)) => hdfs_url(text),
        Some((scheme, _)) => {
            let what = format!("TensorBoard cannot read `{scheme}://`");
            Err((what, "use a local directory, or one in HDFS".to_owned()))
        }
        None if cluster && !text.starts_with('/') => {
            let what = format!("the relative directory `{text}` does not exist on the nodes");
            let hint =
                "use a directory in HDFS or on shared storage; the default is `YDL_CHECKPOINT`";
            Err((what, hint.to_owned()))
        }
        None => Ok(absolute(text, base)),
    }
}

/// Quotes a word for a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
