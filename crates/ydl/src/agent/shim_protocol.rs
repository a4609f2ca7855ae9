//! What an agent and its keeper say to each other: frames of JSON behind their length.
//!
//! Both ends are the same binary, so there is no version; there are limits all the same, because a
//! program with the agent's rights may find the keeper's socket.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::exec::ExecError;

/// Linux refuses arguments and environment beyond a few MiB anyway.
pub const START_BYTES_MAX: usize = 16 << 20;
/// Everything else is a handful of numbers and a sentence.
pub const WORD_BYTES_MAX: usize = 64 << 10;

/// The first frame to the keeper: what to run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StartRequest {
    pub argv: Vec<String>,
    /// All of it: nothing is inherited.
    pub env: BTreeMap<String, String>,
    pub cwd: String,
    /// Whether what the keeper finds around itself comes below that: in a container it is what the image has set.
    #[serde(default)]
    pub inherit: bool,
    /// Where it is started several times: what is different for each of its processes.
    #[serde(default)]
    pub each: Vec<BTreeMap<String, String>>,
    /// When one of them fails, the others have so long to end by themselves.
    #[serde(default)]
    pub grace_ms: u64,
}

/// Later frames to the keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShimCommand {
    /// SIGTERM to the groups of the program's processes.
    Terminate,
    /// SIGKILL to everything below the keeper.
    Kill,
}

/// What the keeper says: first `Started` or `Failed`, and after `Started` one `Exited`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShimEvent {
    Started { pid: u32 },
    Failed(ExecError),
    Exited(ShimExit),
}

/// How the program ended, told when nothing is left of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShimExit {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    /// The largest resident memory of any one process.
    pub peak_rss_bytes: u64,
    pub user_ms: u64,
    pub system_ms: u64,
    /// Processes that did not even die of SIGKILL in time.
    pub left: usize,
    /// The kernel has ended a process of its container for want of memory.
    #[serde(default)]
    pub memory_short: bool,
}

/// One message with its length before it, ready to be written.
pub fn frame(message: &impl Serialize, limit: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, message)?;
    let length = checked(bytes.len() - 4, limit)?;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    Ok(bytes)
}

/// The length a frame's first four bytes announce, refused beyond `limit`.
pub fn length(head: [u8; 4], limit: usize) -> io::Result<usize> {
    let length = u32::from_le_bytes(head) as usize;
    checked(length, limit)?;
    Ok(length)
}

/// The message in a frame's body.
pub fn message<T: DeserializeOwned>(body: &[u8]) -> io::Result<T> {
    Ok(serde_json::from_slice(body)?)
}

pub fn write(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    to.write_all(&frame(message, WORD_BYTES_MAX)?)
}

pub fn read<T: DeserializeOwned>(from: &mut impl Read, limit: usize) -> io::Result<T> {
    let mut head = [0; 4];
    from.read_exact(&mut head)?;
    let mut body = vec![0; length(head, limit)?];
    from.read_exact(&mut body)?;
    message(&body)
}

fn checked(length: usize, limit: usize) -> io::Result<u32> {
    if length > limit {
        let sentence = format!("a message of {length} bytes is longer than the {limit} allowed");
        return Err(io::Error::new(io::ErrorKind::InvalidData, sentence));
    }
    Ok(length as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_comes_back_as_it_went() {
        let exited = ShimEvent::Exited(ShimExit { code: Some(3), ..ShimExit::default() });
        let bytes = frame(&exited, WORD_BYTES_MAX).unwrap();
        let back: ShimEvent = read(&mut &bytes[..], WORD_BYTES_MAX).unwrap();
        assert_eq!(back, exited);
    }

    #[test]
    fn a_frame_beyond_its_limit_is_refused_before_it_is_read() {
        let mut bytes: &[u8] = &[0xff, 0xff, 0xff, 0x7f];
        let error = read::<ShimCommand>(&mut bytes, WORD_BYTES_MAX).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(read::<ShimCommand>(&mut &b"\x02\0\0\0{"[..], 9).is_err());
        assert!(read::<ShimCommand>(&mut &b"\x02\0\0\0{}"[..], 9).is_err());
    }
}
