//! From an environment on this machine to archives that make it work on any other.
//!
//! An environment becomes a few layers that change as seldom as possible: the interpreter where it must travel, the
//! packages of others, what the user wrote. Each is an archive that is always the same for the same content, and is kept,
//! so that what has not changed is neither read nor sent again.
//!
//! * `same` and `plan`: what goes into an archive, and that it does not change meanwhile.
//! * `archive`: a plan as a `.tar.gz`, compressed on all cores.
//! * `elf`: what programs and libraries ask of a machine.
//! * `bytecode`, `scripts` and `local`: what must be changed on the way, and why.
//! * `python` and `prefix`: which interpreter an environment has, and what in it knows its place.
//! * `survey`: how large a layer is, and what it asks of a machine.
//! * `cache`: what was packed before.
//! * `layers`: from an environment to its layers.
//! * `ready`: archives that somebody else has packed, looked through.
//! * `build`, `lists` and `pex`: environments that are made first, from a list of packages or a pex.

mod archive;
mod build;
mod bytecode;
mod cache;
mod elf;
mod layers;
mod lists;
mod local;
pub mod manifest;
mod pex;
mod plan;
mod prefix;
mod python;
mod ready;
mod same;
mod scripts;
mod survey;

pub use build::{make, must_be_made};
pub use cache::{Cache, Known, root};
pub use layers::{Layer, Packed, pack};
pub use plan::Plan;
pub use ready::{Holds, check};
pub use same::{Same, Stamp};
