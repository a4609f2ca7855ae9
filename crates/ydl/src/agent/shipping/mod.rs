//! Ships to HDFS what must outlive a container: logs while they grow, exit records, outputs.
//!
//! Runs in a thread of its own and connects on demand. A slow, unavailable or full file system holds up neither the
//! program nor the agent's heartbeat.
//!
//! * `clients`: HDFS clients.
//! * `log_stream`: one growing stream. `log_shipper`: all files of one attempt.
//! * `worker`: the thread and its requests.

mod clients;
mod log_shipper;
mod log_stream;
mod worker;

pub(super) use clients::{HdfsClients, file_systems_of_job};
pub(super) use log_shipper::LogShipperHandle;
pub use log_stream::UNSYNCED_BYTES_MAX;
pub(super) use worker::{HdfsWorker, UploadRequest};
