//! Resources that a container uses, as its agent measures them.

use serde::{Deserialize, Serialize};

/// Resource usage of a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Resident memory of all its processes together; on one machine without the agent and the keeper.
    pub memory_bytes: u64,
    /// The largest `memory_bytes` that was measured since the program began.
    pub memory_peak_bytes: u64,
    /// Processor time of all its processes, those that have ended included.
    pub cpu_millis_total: u64,
    /// Over the last interval between two samples; 100 is one core.
    pub cpu_percent: u32,
    pub gpus: Vec<GpuUsage>,
    /// Inputs that are still on their way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetching: Option<Fetching>,
}

/// Progress of a task's inputs, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fetching {
    /// So many have come.
    pub bytes: u64,
    /// Of so many.
    pub of: u64,
}

/// Usage of one GPU by all processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuUsage {
    /// As `CUDA_VISIBLE_DEVICES` names it.
    pub device: String,
    pub busy_percent: u32,
    pub memory_bytes: u64,
    pub memory_total_bytes: u64,
}
