//! Options that apply only on one machine.

use alloc::string::String;
use serde::{Deserialize, Serialize};

/// Options of a job on one machine. Ignored on a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalOptions {
    /// Directory in which all programs run; a directory of each task by default.
    pub directory: Option<String>,
    /// Programs may use more memory and vcores than their task and the machine have, and every GPU if their
    /// task has none of its own.
    pub oversubscribe: bool,
}
