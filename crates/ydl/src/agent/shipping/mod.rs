//! Carrying to HDFS what must outlive a container: logs while they grow, how programs ended, outputs.
//!
//! A thread of its own does it, with connections that are made when they are needed: a file system that is slow, away
//! or full must hold up neither the program nor the agent's beats.
//!
//! * `ways`: the file systems it writes to.
//! * `stream`: one growing stream. `attempt`: everything about one attempt.
//! * `carrier`: the thread and its errands.

mod clients;
mod log_shipper;
mod log_stream;
mod worker;

pub(super) use clients::{HdfsClients, of_job};
pub(super) use log_shipper::LogShipperHandle;
pub(super) use worker::{HdfsUpload, HdfsWorker, UploadRequest};
