//! Mirror of a job on a cluster: copies of its files in a private directory of this process, laid out like the directory
//! of a job on this machine.
//!
//! * `job`: the mirror and the copies of small files.
//! * `private_dir`: the directory.
//! * `follow`: copies logs of running tasks from their agents, and the rest after their end.
//! * `download`: copies logs from HDFS. `tail`: copies only their last lines, for `ydl logs --tail`.

mod download;
mod follow;
mod job;
mod private_dir;
mod tail;

pub use download::CopySelection;
pub use job::{JobAccess, Mirror};
