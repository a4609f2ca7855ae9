//! One call: its deadline, and its panics.

use super::{
    connect::Hdfs,
    error::{HdfsError, Kind},
    exceptions::CallContext,
};
use std::future::Future;
use tokio::{
    task::JoinHandle,
    time::{Instant, timeout_at},
};

/// Task that is aborted on drop.
struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Hdfs {
    /// Runs a call of the library below as a task of its own: it panics at odd answers and waits without end, and neither
    /// may reach the caller.
    pub(super) async fn isolated<T: Send + 'static>(
        &self,
        about: &CallContext,
        deadline: Instant,
        call: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, HdfsError> {
        let mut task = AbortOnDrop(tokio::spawn(call));
        match timeout_at(deadline, &mut task.0).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(_)) => {
                Err(about.failed(Kind::Other, "the answer of its server was not understood"))
            }
            Err(_) => Err(about.timed_out()),
        }
    }

    /// The same for a call that can fail.
    pub(super) async fn call<T: Send + 'static>(
        &self,
        about: CallContext,
        deadline: Instant,
        call: impl Future<Output = hdfs_native::Result<T>> + Send + 'static,
    ) -> Result<T, HdfsError> {
        self.isolated(&about, deadline, call).await?.map_err(|error| about.translate(error))
    }
}
