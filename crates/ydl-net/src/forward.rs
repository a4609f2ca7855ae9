//! Forwards bytes between two connections until both directions are closed.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::{Instant, timeout};

use super::connection::ServerStream;

/// Timeout without traffic in either direction.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// Timeout of a stalled write.
const STALL_TIMEOUT: Duration = Duration::from_secs(120);
/// Time that the first half waits for the second.
const JOIN_TIMEOUT: Duration = Duration::from_secs(10);
/// Buffer size of each direction.
const BUFFER_BYTES: usize = 16 << 10;

/// Copies bytes in both directions. An error on one side closes the other.
pub async fn splice<A, B>(a: A, b: B) -> io::Result<()>
where
    A: AsyncRead + AsyncWrite,
    B: AsyncRead + AsyncWrite,
{
    splice_for(a, b, IDLE_TIMEOUT).await
}

async fn splice_for<A, B>(a: A, b: B, idle: Duration) -> io::Result<()>
where
    A: AsyncRead + AsyncWrite,
    B: AsyncRead + AsyncWrite,
{
    let ((from_a, to_a), (from_b, to_b)) = (split(a), split(b));
    let moved = Mutex::new(Instant::now());
    let there = pass(from_a, to_b, &moved, idle);
    let back = pass(from_b, to_a, &moved, idle);
    tokio::try_join!(there, back).map(drop)
}

async fn pass<A: AsyncRead, B: AsyncWrite>(
    mut from: ReadHalf<A>,
    mut to: WriteHalf<B>,
    moved: &Mutex<Instant>,
    idle: Duration,
) -> io::Result<()> {
    let mut piece = vec![0; BUFFER_BYTES];
    loop {
        let Ok(read) = timeout(idle, from.read(&mut piece)).await else {
            let last = *moved.lock().unwrap_or_else(PoisonError::into_inner);
            // The other direction may be active.
            if last.elapsed() >= idle {
                return Err(io::ErrorKind::TimedOut.into());
            }
            continue;
        };
        let length = read?;
        *moved.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        let passing = async {
            if length == 0 {
                return to.shutdown().await;
            }
            to.write_all(&piece[..length]).await?;
            to.flush().await
        };
        timeout(STALL_TIMEOUT, passing).await??;
        if length == 0 {
            return Ok(());
        }
    }
}

type Stream = Box<dyn ServerStream>;

/// One half of two server connections to be joined. It goes with the reply to a request, whose connection then carries no
/// more requests.
#[derive(Clone)]
pub struct UpgradeHalf(Arc<Mutex<Option<PairState>>>);

enum PairState {
    /// It goes to the other.
    Goes(oneshot::Sender<Stream>),
    /// The other comes, and both count as one for as long as they last.
    Waits(oneshot::Receiver<Stream>, OwnedSemaphorePermit),
}

/// Creates two halves that join each other. The permit is held until both are dropped.
pub fn upgrade_pair(place: OwnedSemaphorePermit) -> (UpgradeHalf, UpgradeHalf) {
    let (goes, waits) = oneshot::channel();
    let half = |end| UpgradeHalf(Arc::new(Mutex::new(Some(end))));
    (half(PairState::Goes(goes)), half(PairState::Waits(waits, place)))
}

impl UpgradeHalf {
    /// Hands over a connection and waits for the other half.
    pub(super) async fn join(self, stream: Stream) -> io::Result<()> {
        let end = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        match end {
            // A connection whose other half is gone is closed.
            Some(PairState::Goes(to)) => {
                drop(to.send(stream));
                Ok(())
            }
            Some(PairState::Waits(from, _place)) => match timeout(JOIN_TIMEOUT, from).await {
                Ok(Ok(other)) => splice(stream, other).await,
                Ok(Err(_)) | Err(_) => Err(io::ErrorKind::TimedOut.into()),
            },
            None => Ok(()),
        }
    }
}

impl fmt::Debug for UpgradeHalf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UpgradeHalf")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::duplex;

    #[tokio::test]
    async fn what_either_says_reaches_the_other_and_an_end_is_an_end() {
        let ((a, mut left), (b, mut right)) = (duplex(8), duplex(8));
        let spliced = tokio::spawn(splice(a, b));
        let long = vec![7; 100_000];
        let sent = long.clone();
        let writing = async {
            left.write_all(&sent).await.unwrap();
            left.shutdown().await.unwrap();
            let mut answer = String::new();
            left.read_to_string(&mut answer).await.unwrap();
            answer
        };
        let reading = async {
            let mut came = Vec::new();
            right.read_to_end(&mut came).await.unwrap();
            right.write_all(b"heard").await.unwrap();
            right.shutdown().await.unwrap();
            came
        };
        let (answer, came) = tokio::join!(writing, reading);
        assert_eq!((answer.as_str(), came == long), ("heard", true));
        spliced.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn two_who_say_nothing_are_not_kept_for_ever() {
        let ((a, _left), (b, _right)) = (duplex(8), duplex(8));
        let ended = splice_for(a, b, Duration::from_millis(20)).await;
        let ended = ended.unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
    }
}
