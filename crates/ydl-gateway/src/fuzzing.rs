//! Functions of bytes for fuzzers. They return for any input.

use crate::framing::Framing;
use crate::route_table;

/// Parses a route table and checks what its type promises.
pub fn routes(bytes: &[u8]) {
    let Ok(table) = route_table::parse(bytes) else { return };
    assert!(table.replicas.is_sorted_by(|one, next| one.id < next.id));
    for replica in &table.replicas {
        assert!(replica.concurrency > 0);
        assert!(replica.address.contains(':') && !replica.address.contains(char::is_whitespace));
    }
    let timeouts = table.service.timeouts;
    assert!(!timeouts.connect.is_zero() && !timeouts.head.is_zero() && !timeouts.idle.is_zero());
}

/// Checks the framing of requests: in whole, and in pieces whose lengths are in the first byte.
pub fn framing(bytes: &[u8]) {
    let Some((&length, bytes)) = bytes.split_first() else { return };
    let mut whole = Framing::new();
    let expected = whole.check(bytes);
    let mut pieces = Framing::new();
    let mut chunks = bytes.chunks(usize::from(length).max(1));
    assert_eq!(chunks.try_for_each(|piece| pieces.check(piece)), expected);
    if expected.is_ok() {
        assert_eq!(whole.is_inside_head(), pieces.is_inside_head());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_pass_whole_and_truncated() {
        let seeds = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds");
        let mut count = 0;
        for (name, target) in [("routes", routes as fn(&[u8])), ("framing", framing)] {
            for seed in std::fs::read_dir(seeds.join(name)).unwrap() {
                let bytes = std::fs::read(seed.unwrap().path()).unwrap();
                for length in 0..=bytes.len() {
                    target(&bytes[..length]);
                }
                count += 1;
            }
        }
        assert!(count >= 4);
    }
}
