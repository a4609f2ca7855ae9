//! Sizes and counts in skein's notation.

use super::context::{Context, text_of};
use ydl_jobfile::Node;

/// Units of size, in bytes.
const UNITS: [(&str, f64); 18] = [
    ("b", 1.0),
    ("k", 1e3),
    ("kb", 1e3),
    ("m", 1e6),
    ("mb", 1e6),
    ("g", 1e9),
    ("gb", 1e9),
    ("t", 1e12),
    ("tb", 1e12),
    ("p", 1e15),
    ("pb", 1e15),
    ("kib", 1024.0),
    ("mib", 1_048_576.0),
    ("gib", 1_073_741_824.0),
    ("tib", 1_099_511_627_776.0),
    ("pib", 1_125_899_906_842_624.0),
    ("bytes", 1.0),
    ("byte", 1.0),
];
const MIB: f64 = 1_048_576.0;
/// Upper limit, above any machine.
const MIB_MAX: f64 = 1e12;

/// Parses a size in MiB, rounded up; a number alone is in MiB.
pub(crate) fn memory_mib(text: &str) -> Option<u64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && !".eE+".contains(c)).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: f64 = number.trim().parse().ok()?;
    let unit = unit.trim().to_lowercase();
    let size = match unit.as_str() {
        "" => MIB,
        unit => UNITS.iter().find(|(name, _)| *name == unit)?.1,
    };
    let mib = (number * size / MIB).ceil();
    (1.0..=MIB_MAX).contains(&mib).then_some(mib as u64)
}

/// Reads a size in MiB.
pub(crate) fn memory(context: &mut Context, node: &Node, path: &str) -> Option<u64> {
    let found = text_of(node).and_then(memory_mib);
    if found.is_none() {
        let hint = "write it as `2 GiB`; a number alone is in MiB";
        context.error(&node.at, format!("`{path}` is not a size"), hint);
    }
    found
}

/// Reads a count.
pub(crate) fn count(context: &mut Context, node: &Node, path: &str) -> Option<u32> {
    let found = text_of(node).and_then(|text| text.trim().parse::<u32>().ok());
    if found.is_none() {
        let what = format!("`{path}` is not a count");
        context.error(&node.at, what, "");
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_same_meaning_as_in_skein() {
        let cases = [
            ("1024", Some(1024)),
            ("2 GiB", Some(2048)),
            ("2GiB", Some(2048)),
            ("1 gb", Some(954)),
            ("1.5 gib", Some(1536)),
            ("100 b", Some(1)),
            ("500 MB", Some(477)),
            ("1 tib", Some(1 << 20)),
            ("", None),
            ("many", None),
            ("-1", None),
            ("3 parsecs", None),
            ("0", None),
            ("1e99 PiB", None),
        ];
        for (text, mib) in cases {
            assert_eq!(memory_mib(text), mib, "{text}");
        }
    }
}
