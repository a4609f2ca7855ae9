//! Client of an MLflow tracking server.
//!
//! Every call has a deadline and every answer a size limit.
//!
//! * `server`: one call to a server, over HTTP or HTTPS. * `trust`: which certificates it accepts.
//! * `api`: the calls that MLflow understands.

pub mod api;
pub mod server;
mod trust;
