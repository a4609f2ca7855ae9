//! The docker command of this machine: whether it can run a job's images, and the command line that does.
//!
//! * `engine`: asking it, each time with a deadline. * `check`: whether a job's images run here, before anything is started.
//! * `run`: the container of one program, with the program's keeper in it.

mod check;
mod engine;
mod run;

pub use check::check;
pub use engine::{Engine, UserMapping, clean};
pub use run::{BINARY, Container, SOCKET, name};
