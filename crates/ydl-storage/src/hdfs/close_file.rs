//! The end of a file, sooner than the library below sees it.
//!
//! A NameNode closes a file when it has heard of the last block from a DataNode, and that takes some milliseconds longer
//! than the client knows of it. The library asks, is told no, and asks again half a second later. Here it is asked
//! again at once, as soon as the NameNode is known to have the length of the last block: from then on nothing is lost
//! when the library is not waited for.

use hdfs_native::{Client, HdfsError, Result, file::FileWriter};
use std::time::Duration;
use tokio::time::sleep;

/// The first pause before the NameNode is asked, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(4), Duration::from_millis(100));
/// Timeout of the library once the last block is known: the DataNode's report is in flight.
const ARRIVAL: Duration = Duration::from_millis(3);

/// Closes a file of that length that was never synced: for one that was, the NameNode knows a length before the last block
/// is there, and nothing is gained.
pub(super) async fn close_file(
    file: &mut FileWriter,
    client: &Client,
    path: &str,
    length: u64,
) -> Result<()> {
    // A file without blocks is closed when it is first asked for.
    if length == 0 {
        return file.close().await;
    }
    tokio::select! {
        done = file.close() => return done,
        () = committed(client, path, length) => {}
    }
    sleep(ARRIVAL).await;
    // The data is safe, and the file is only to be closed: by asking once more, or, if that was too early as well, by
    // giving up the right to write it.
    tokio::select! {
        done = file.close() => match done {
            // Both may be heard at the same time.
            Err(_) => recovered(client, path).await,
            done => done,
        },
        done = async { sleep(ARRIVAL).await; recovered(client, path).await } => done,
    }
}

/// Returns when the NameNode knows the length of all blocks, and so the last one, too.
async fn committed(client: &Client, path: &str, length: u64) {
    let mut pause = PAUSE.0;
    loop {
        sleep(pause).await;
        let seen = client.get_file_info(path).await;
        if seen.is_ok_and(|status| status.length as u64 == length) {
            return;
        }
        pause = longer(pause);
    }
}

/// Slowly: a small file is written in a few pauses, and who waits for it waits for half a pause too long.
fn longer(pause: Duration) -> Duration {
    (pause * 5 / 4).min(PAUSE.1)
}

/// Returns when the file is closed. While a DataNode's word is missing the NameNode refuses.
async fn recovered(client: &Client, path: &str) -> Result<()> {
    let mut pause = PAUSE.0;
    loop {
        match client.recover_lease(path).await {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(HdfsError::AlreadyExists(_)) => {}
            Err(HdfsError::RPCError(class, _)) if class.ends_with(REFUSED) => {}
            Err(error) => return Err(error),
        }
        sleep(pause).await;
        pause = longer(pause);
    }
}

/// Error of a NameNode while the last block is not replicated yet.
const REFUSED: &str = "AlreadyBeingCreatedException";
