//! Packs Python environments into archives that work on any node.
//!
//! An environment becomes a few layers that change as rarely as possible: the interpreter if it must be bundled, third-party
//! packages, the user's own code. The same content always gives the same archive, and archives are cached, so unchanged layers are
//! neither read nor uploaded again.
//!
//! * `stable_file` and `plan`: content of an archive, and detection of changes while it is read.
//! * `archive`: writes a plan as a `.tar.gz`, compressed on all cores.
//! * `elf`: requirements of programs and libraries.
//! * `bytecode`, `scripts` and `local`: files that are changed on the way.
//! * `python` and `prefix`: the interpreter of an environment, and files that contain its path.
//! * `survey`: size and requirements of a layer.
//! * `cache`: packed layers.
//! * `layers`: splits an environment into layers.
//! * `validate`: checks archives made by other tools.
//! * `build`, `build_inputs` and `pex`: environments built from a list of packages or a pex.

mod archive;
mod build;
mod build_inputs;
mod bytecode;
mod cache;
mod elf;
mod layers;
mod local;
pub mod manifest;
mod pex;
mod plan;
mod prefix;
mod python;
mod scripts;
mod stable_file;
mod survey;
mod validate;

pub use build::{build, needs_build};
pub use cache::{Cache, LayerInfo, root};
pub use layers::{Layer, PackedEnvironment, pack};
pub use plan::Plan;
pub use stable_file::{FileStamp, StableFile};
pub use validate::{ExpectedContent, validate};
