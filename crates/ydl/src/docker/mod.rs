//! The docker command of this machine: checks that it can run a job's images, and builds the command line.
//!
//! * `engine`: runs it with timeouts. * `check`: checks a job's images before anything is started.
//! * `run`: the container of one program, with the program's shim in it.

mod check;
mod engine;
mod run;

pub(crate) use check::check;
pub(crate) use engine::{Engine, clean};
pub(crate) use run::{Container, SOCKET, name};
