//! Reads rotated logs: the segments that an agent writes.

mod reader;

pub use reader::{LogReader, LogSegments, StreamChunk};
