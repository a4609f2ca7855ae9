//! A job in MLflow: the master tells its tracking server what the job is, how it goes and how it ended, so that programs need
//! not.
//!
//! It goes on beside the master's loop and looks at the job as any client does. A server that is away, slow or talks nonsense
//! costs the job nothing but a line in the master's log: every call has its deadline, every answer its limit, and what waits
//! to be told is the newest of it.
//!
//! * `server`: one call to a server, over HTTP or HTTPS. * `trust`: whom to believe that it is the server.
//! * `api`: the calls that MLflow understands. * `words`: a job in MLflow's words.
//! * `tracker`: what is told. * `following`: when. * `kept`: what is left behind at the end.

mod api;
mod following;
mod kept;
mod server;
mod tracker;
mod trust;
mod words;

#[cfg(test)]
mod tests;

pub(super) use kept::{Logs, afar, here};
pub(super) use tracker::Tracker;
