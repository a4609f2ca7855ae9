//! Aggregated logs, which NodeManagers upload when an application ends: one file per node, in one of
//! two formats.
//!
//! In reading order:
//! * `source`: access to the bytes of a file, implemented by the caller.
//! * `run_reader`: a run of bytes, decompressed if necessary.
//! * `tfile` and `indexed`: the two formats; `java` parses the index of the latter.
//! * `file`: common interface: entries, and the bytes of an entry.
//!
//! Only requested bytes are read, and only a piece of them is in memory. Log directories are returned
//! by [`Config::log_directories`](crate::config::Config::log_directories). Hadoop archives of logs
//! ([`is_archive`]) are not supported.
//!
//! ```
//! use yarn_native::logs::{LogError, LogFile, Source};
//!
//! async fn print_stderr(source: impl Source) -> Result<(), LogError> {
//!     let mut file = LogFile::open(source).await?;
//!     while let Some(entry) = file.next().await? {
//!         if entry.file == "stderr" {
//!             // The last kilobyte of it.
//!             file.skip(entry.length.saturating_sub(1024)).await?;
//!             while let Some(piece) = file.piece().await? {
//!                 print!("{}", String::from_utf8_lossy(&piece));
//!             }
//!         }
//!     }
//!     Ok(())
//! }
//! ```

mod source;

mod run_reader;

mod indexed;
mod java;
mod tfile;

mod file;

pub use file::{Checksum, LogEntry, LogFile, LogFormat, is_archive};
pub use source::{LogError, Source};
