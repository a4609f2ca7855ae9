//! Encoding of responses.

/// Response to a wait, a check or a barrier that is satisfied.
pub(super) const READY: [u8; 1] = [0];
/// Response to a check that is not satisfied.
pub(super) const NOT_READY: [u8; 1] = [1];
/// Response to a canceled wait.
pub(super) const CANCELED: [u8; 1] = [1];
/// Response to a watch.
pub(super) const WATCHING: [u8; 1] = [3];

/// Length of the prefix of a value.
pub(super) const PREFIX: usize = size_of::<u64>();

pub(super) fn prefixed(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(PREFIX + bytes.len());
    out.extend((bytes.len() as u64).to_le_bytes());
    out.extend_from_slice(bytes);
    out
}

pub(super) fn number(count: usize) -> [u8; 8] {
    (count as u64).to_le_bytes()
}
