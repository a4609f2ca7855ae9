//! Reading what a program has printed: the segments an agent keeps, and lines fit for a terminal.

mod lines;
pub mod live;
mod reader;

pub use lines::{LINE_BYTES_MAX, LinePrefixer};
pub use reader::{Chunk, LogReader, LogSegments};
