//! Resources that a container uses, as its agent measures them.

use serde::{Deserialize, Serialize};

/// Resource usage of a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Resident memory of all processes; on one machine without the agent and the shim.
    pub memory_bytes: u64,
    /// Maximum of `memory_bytes` since the program started.
    pub memory_peak_bytes: u64,
    /// CPU time of all processes, including those that have ended.
    pub cpu_millis_total: u64,
    /// CPU usage between the last two samples; 100 is one core.
    pub cpu_percent: u32,
    pub gpus: Vec<GpuUsage>,
    /// Progress of a download of inputs, until it is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub download: Option<DownloadProgress>,
}

/// Progress of downloading a task's inputs, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DownloadProgress {
    /// Downloaded bytes.
    pub bytes: u64,
    /// Size of all inputs.
    pub total: u64,
}

/// Usage of one GPU by all processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuUsage {
    /// Device, as in `CUDA_VISIBLE_DEVICES`.
    pub device: String,
    pub busy_percent: u32,
    pub memory_bytes: u64,
    pub memory_total_bytes: u64,
}
