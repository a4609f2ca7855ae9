//! Protocol between agent and shim: length-prefixed JSON frames.
//!
//! Both ends are the same binary, so there is no version. Lengths are limited all the same, because a program with the
//! agent's rights may open the shim's socket.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::exec::ExecError;

/// Linux rejects arguments and environments beyond a few MiB anyway.
pub(crate) const START_BYTES_MAX: usize = 16 << 20;
/// Maximum length of all later frames.
pub const FRAME_BYTES_MAX: usize = 64 << 10;

/// First frame to the shim: the program to run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StartRequest {
    pub argv: Vec<String>,
    /// Complete environment: nothing is inherited.
    pub env: BTreeMap<String, String>,
    pub cwd: String,
    /// Adds the shim's own environment with lower precedence: in a container, the variables of the image.
    #[serde(default)]
    pub inherit: bool,
    /// Additional variables of each process, if the program runs several times.
    #[serde(default)]
    pub each: Vec<BTreeMap<String, String>>,
    /// Grace period of the other processes when one of them fails.
    #[serde(default)]
    pub grace_ms: u64,
}

/// Later frames to the shim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShimCommand {
    /// Sends SIGTERM to the groups of the program's processes.
    Terminate,
    /// Sends SIGKILL to everything below the shim.
    Kill,
}

/// Frames from the shim: first `Started` or `Failed`, and after `Started` one `Exited`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShimEvent {
    Started { pid: u32 },
    Failed(ExecError),
    Exited(ShimExit),
}

/// Exit of the program, sent when none of its processes is left. The agent adds what the shim cannot know, and turns it
/// into the core's `ProgramExit`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShimExit {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    /// Largest resident memory of any one process; 0 if the shim was lost.
    pub peak_memory_bytes: u64,
    /// Processes that survived SIGKILL past its timeout.
    pub survivors: usize,
    /// Set if the kernel killed a process of the container for lack of memory.
    #[serde(default)]
    pub memory_short: bool,
    /// Last bytes of stderr. Added by the agent.
    #[serde(skip)]
    pub stderr_tail: String,
    /// Bytes of output that could not be written. Added by the agent.
    #[serde(skip)]
    pub dropped_bytes: u64,
}

/// Encodes a message with its length prefix.
pub fn frame(message: &impl Serialize, limit: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, message)?;
    let length = checked(bytes.len() - 4, limit)?;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    Ok(bytes)
}

/// Decodes a length prefix; fails beyond `limit`.
pub fn length(head: [u8; 4], limit: usize) -> io::Result<usize> {
    let length = u32::from_le_bytes(head) as usize;
    checked(length, limit)?;
    Ok(length)
}

/// Decodes a frame's body.
pub fn message<T: DeserializeOwned>(body: &[u8]) -> io::Result<T> {
    Ok(serde_json::from_slice(body)?)
}

pub fn write(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    to.write_all(&frame(message, FRAME_BYTES_MAX)?)
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
    fn a_frame_round_trips() {
        let exited = ShimEvent::Exited(ShimExit { code: Some(3), ..ShimExit::default() });
        let bytes = frame(&exited, FRAME_BYTES_MAX).unwrap();
        let back: ShimEvent = read(&mut &bytes[..], FRAME_BYTES_MAX).unwrap();
        assert_eq!(back, exited);
    }

    #[test]
    fn an_oversized_frame_is_rejected_before_it_is_read() {
        let mut bytes: &[u8] = &[0xff, 0xff, 0xff, 0x7f];
        let error = read::<ShimCommand>(&mut bytes, FRAME_BYTES_MAX).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(read::<ShimCommand>(&mut &b"\x02\0\0\0{"[..], 9).is_err());
        assert!(read::<ShimCommand>(&mut &b"\x02\0\0\0{}"[..], 9).is_err());
    }
}
