//! A job in MLflow: the master reports the job's description, progress and outcome to the tracking server, so that programs need
//! not.
//!
//! It runs beside the master's loop and reads the job as any client does. A server that is away, slow or sends nonsense
//! costs the job nothing but a line in the master's log.
//!
//! * `words`: a job in MLflow's terms. * `tracker`: the run's updates. * `following`: when they are sent.
//! * `kept`: the artifacts left at the end.

mod following;
mod kept;
mod tracker;
mod words;

#[cfg(test)]
mod tests;

pub(super) use kept::{Logs, afar, here};
pub(super) use tracker::Tracker;
