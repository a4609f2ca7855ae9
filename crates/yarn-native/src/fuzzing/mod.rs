//! Everything that reads what others wrote, as functions of bytes: for the targets in `fuzz/`, and for the test
//! that runs their seeds. A build that is neither a test nor a fuzzer has none of this.
//!
//! Each function must return for any bytes, soon, and without taking more memory than a few times their length.
//! What it asserts is what must hold whatever they say: what was read and is written again reads the same.

mod answers;
mod logs;
mod names;
mod settings;
mod tokens;
mod wire;

pub use answers::answers;
pub use logs::{indexed, tfile};
pub use names::names;
pub use settings::config;
pub use tokens::credentials;
pub use wire::{frames, handshake, layers};

/// Takes a first byte, which picks one of several readers.
fn split_selector(bytes: &[u8]) -> Option<(u8, &[u8])> {
    let (pick, rest) = bytes.split_first()?;
    Some((*pick, rest))
}

/// Cuts bytes into parts, each with two bytes of length before it; the last may be shorter than it says.
fn parts(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes(*length)).min(rest.len());
        let (part, rest) = rest.split_at(length);
        parts.push(part);
        bytes = rest;
    }
    parts
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    type Target = fn(&[u8]);

    const TARGETS: [(&str, Target); 9] = [
        ("answers", answers),
        ("config", config),
        ("credentials", credentials),
        ("frames", frames),
        ("handshake", handshake),
        ("indexed", indexed),
        ("layers", layers),
        ("names", names),
        ("tfile", tfile),
    ];

    /// Seeds are also what came out of a fuzzer once.
    #[test]
    fn every_seed_of_the_fuzzers_is_read() {
        let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds");
        for (name, target) in TARGETS {
            let files = std::fs::read_dir(seeds.join(name)).expect("each target has seeds");
            for file in files {
                let path = file.expect("a file").path();
                let bytes = std::fs::read(&path).expect("a seed");
                target(&bytes);
                for cut in (0..bytes.len()).step_by(1 + bytes.len() / 64) {
                    target(&bytes[..cut]);
                }
            }
        }
    }
}
