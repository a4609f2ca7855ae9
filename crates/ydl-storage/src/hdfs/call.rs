//! One call: its deadline, and its panics.

use super::{
    connect::Hdfs,
    error::{HdfsError, Kind},
    reading::About,
};
use std::future::Future;
use tokio::{
    task::JoinHandle,
    time::{Instant, timeout_at},
};

/// Task that is aborted on drop.
struct Held<T>(JoinHandle<T>);

impl<T> Drop for Held<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Hdfs {
    /// Runs a call of the library below as a task of its own: it panics at odd answers and waits without end, and neither
    /// may reach the caller.
    pub(super) async fn contained<T: Send + 'static>(
        &self,
        about: &About,
        deadline: Instant,
        call: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, HdfsError> {
        let mut task = Held(tokio::spawn(call));
        match timeout_at(deadline, &mut task.0).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(_)) => {
                Err(about.failed(Kind::Other, "the answer of its server was not understood"))
            }
            Err(_) => Err(about.silent()),
        }
    }

    /// The same for a call that can fail.
    pub(super) async fn call<T: Send + 'static>(
        &self,
        about: About,
        deadline: Instant,
        call: impl Future<Output = hdfs_native::Result<T>> + Send + 'static,
    ) -> Result<T, HdfsError> {
        self.contained(&about, deadline, call).await?.map_err(|error| about.understood(error))
    }
}
