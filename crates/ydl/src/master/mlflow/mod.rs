//! MLflow tracking: the master reports the job's parameters, progress and outcome to the tracking server, so
//! that programs need not.
//!
//! It runs beside the master's event loop and reads the job as any client does. An unavailable or faulty
//! server costs the job nothing but a line in the master's log.
//!
//! * `params`: the job in MLflow's terms.
//! * `tracker`: updates of the run.
//! * `schedule`: their times.
//! * `artifacts`: files uploaded at the end.

mod artifacts;
mod params;
mod schedule;
mod tracker;

#[cfg(test)]
mod tests;

pub(super) use artifacts::{Artifacts, local_logs, yarn_logs};
pub(super) use tracker::Tracker;
