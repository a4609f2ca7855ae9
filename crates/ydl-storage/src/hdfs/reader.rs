//! A file that is read in chunks.

use super::{connect::Hdfs, error::HdfsError};
use bytes::Bytes;
use hdfs_native::file::FileReader;
use std::{fmt, sync::Arc};
use tokio::time::Instant;

/// A file as it was when it was opened. What is added later is seen by opening it again.
#[derive(Clone)]
pub struct Reader {
    hdfs: Hdfs,
    place: String,
    file: Arc<FileReader>,
}

impl Hdfs {
    /// A file to be read.
    pub async fn open(&self, place: &str, deadline: Instant) -> Result<Reader, HdfsError> {
        let (client, path) = (self.client.clone(), self.path(place)?);
        let call = async move { client.read(&path).await };
        let file = self.call(self.about("read", place), deadline, call).await?;
        Ok(Reader { hdfs: self.clone(), place: place.to_owned(), file: Arc::new(file) })
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reader({})", self.place)
    }
}

impl Reader {
    /// Returns the readable length. For a file being written these are its full blocks.
    pub fn length(&self) -> u64 {
        self.file.file_length() as u64
    }

    /// Up to `bytes_max` bytes from `offset` on; fewer at the end, none beyond it.
    pub async fn read_at(
        &self,
        offset: u64,
        bytes_max: usize,
        deadline: Instant,
    ) -> Result<Bytes, HdfsError> {
        let left = self.length().saturating_sub(offset);
        let length = left.min(bytes_max as u64) as usize;
        if length == 0 {
            return Ok(Bytes::new());
        }
        let file = self.file.clone();
        let call = async move { file.read_range(offset as usize, length).await };
        self.hdfs.call(self.hdfs.about("read", &self.place), deadline, call).await
    }
}
