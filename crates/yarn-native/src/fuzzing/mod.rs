//! Parsers of untrusted bytes as fuzz targets, for `fuzz/` and for the test that runs their seeds.
//! Only compiled for tests and fuzzers.
//!
//! Each target must return for any bytes, quickly, and with memory of at most a few times their
//! length. Assertions hold for any input: a parsed value that is written again parses to the same
//! value.

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

/// Splits off the first byte, which selects one of several parsers.
fn split_selector(bytes: &[u8]) -> Option<(u8, &[u8])> {
    let (pick, rest) = bytes.split_first()?;
    Some((*pick, rest))
}

/// Splits bytes into length-prefixed parts (two bytes each); the last part may be truncated.
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

    /// Seeds include former findings of a fuzzer.
    #[test]
    fn all_fuzzer_seeds_are_parsed() {
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
