//! Reads the TensorBoard role of a job.

use super::{
    fields::{Map, Reader},
    files::{absolute, hdfs_url},
    formats::{Context, Format, Scalar, boolean, text_of},
    keys,
    tree::Value,
    units::Rejection,
};
use ydl_core::{
    JobSpecBuilder, RoleName,
    spec::{Command, Completion, Resources, Restart, RoleSpec},
};

const ROLE: &str = "tensorboard";

/// Directory of event files.
pub(crate) const LOGDIR: Scalar<String> = text_of("directory, or `hdfs://…`", logdir);

/// Keys of `tensorboard`.
pub(crate) struct TensorBoard {
    pub logdir: Option<String>,
    pub memory_mib: u64,
    pub vcores: u32,
}

impl Default for TensorBoard {
    /// Returns enough memory for a few runs.
    fn default() -> Self {
        TensorBoard { logdir: None, memory_mib: 1024, vcores: 1 }
    }
}

impl Reader {
    /// Reads `true`, a directory, or a map.
    pub(crate) fn tensorboard(&mut self, map: &Map, job: &mut JobSpecBuilder) {
        let Some(node) = map.find(ROLE) else {
            return;
        };
        let mut board = TensorBoard::default();
        match &node.value {
            Value::Map(_) => keys::TENSORBOARD.read(self, node, ROLE, &mut board),
            Value::Scalar { text, .. } if boolean(text).is_ok() => {
                if self.value_of(node, ROLE, boolean) == Some(false) {
                    return;
                }
            }
            _ => LOGDIR.read(self, node, ROLE, &mut board.logdir),
        }
        let logdir = board.logdir.map(|logdir| format!(" --logdir {}", quoted(&logdir)));
        let script = format!("exec \"$YDL_BINARY\" board{}", logdir.unwrap_or_default());
        let TensorBoard { memory_mib, vcores, .. } = board;
        job.roles.push(RoleSpec {
            name: RoleName::from(ROLE),
            resources: Resources { memory_mib, vcores, ..Resources::default() },
            command: Command::Shell(script),
            restart: Restart::of_sidecar(),
            completion: Completion::Sidecar,
            ports: vec!["http".to_owned()],
            ..RoleSpec::default()
        });
    }
}

/// Parses the directory. On a cluster it must be absolute, because nodes have no base directory.
fn logdir(text: &str, context: &Context) -> Result<String, Rejection> {
    match text.split_once("://") {
        Some(("hdfs", _)) => hdfs_url(text),
        Some((scheme, _)) => {
            let what = format!("TensorBoard cannot read `{scheme}://`");
            Err((what, "use a local directory, or one in HDFS".to_owned()))
        }
        None if context.cluster && !text.starts_with('/') => {
            let what = format!("the relative directory `{text}` does not exist on the nodes");
            let hint =
                "use a directory in HDFS or on shared storage; the default is `YDL_CHECKPOINT`";
            Err((what, hint.to_owned()))
        }
        None => Ok(absolute(text, &context.base)),
    }
}

/// Quotes a word for a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
