//! Aggregated logs: what NodeManagers collect of an application when it ends, one file per node, in either of
//! Hadoop's formats.
//!
//! In reading order:
//! * `source`: where the bytes come from; the caller's affair.
//! * `run`: a run of bytes, inflated where it was compressed.
//! * `tfile` and `indexed`: the two formats; `java` reads the index of the latter.
//! * `file`: both of them as one: entries, and the bytes of an entry.
//!
//! Nothing is read that is not asked for, and never more than a piece of it is in memory. Where the files lie
//! is said by [`Config::log_directories`](crate::config::Config::log_directories). Hadoop archives of them
//! ([`is_archive`]) are not read.
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
