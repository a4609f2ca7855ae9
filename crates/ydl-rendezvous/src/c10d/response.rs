//! What is answered, as bytes.

/// To a wait, a check or a barrier: all is there.
pub(super) const GO_ON: [u8; 1] = [0];
/// To a check.
pub(super) const NOT_YET: [u8; 1] = [1];
/// To the end of a wait.
pub(super) const CANCELED: [u8; 1] = [1];
/// To a watch.
pub(super) const WATCHED: [u8; 1] = [3];

/// What goes before a value.
pub(super) const FRAME: usize = size_of::<u64>();

pub(super) fn framed(bytes: &[u8]) -> Vec<u8> {
    let mut framed = Vec::with_capacity(FRAME + bytes.len());
    framed.extend((bytes.len() as u64).to_le_bytes());
    framed.extend_from_slice(bytes);
    framed
}

pub(super) fn number(count: usize) -> [u8; 8] {
    (count as u64).to_le_bytes()
}
