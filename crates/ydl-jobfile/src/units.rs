//! Parses and prints sizes, times and port ranges.

use ydl_core::{Span, spec::PortRange};

/// Reason why a value is invalid, and a hint.
pub(crate) type Rejection = (String, String);

/// Maxima that exclude typos and overflows.
const MIB_MAX: u64 = 1 << 40;
const YEARS_MAX_MS: u64 = 10 * 366 * 86_400_000;

/// Splits number and unit: `1.5 GiB` is (`1.5`, `GiB`).
fn split_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

/// Parses a size, rounded up to MiB.
pub fn size_mib(text: &str) -> Result<u64, Rejection> {
    let (number, unit) = split_unit(text);
    let reject = || (format!("`{text}` is not a size"), "write it as `2 GiB` or `512 MiB`".into());
    if number.is_empty() {
        return Err(reject());
    }
    // Single letters are powers of 1024, as in Hadoop and Java.
    let bytes: u128 = match unit.to_ascii_lowercase().as_str() {
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        "" => {
            // Tasks of 2048 GiB or of 2 MiB are unlikely.
            let unit = if number.len() > 2 { "MiB" } else { "GiB" };
            let hint = format!("write `{number} {unit}`");
            return Err((format!("the size `{text}` has no unit"), hint));
        }
        other if other.chars().all(|c| c.is_ascii_alphabetic()) => {
            let hint = "sizes are in `MiB`, `GiB`, `TiB` (`m`, `g`, `t` for short), or in `MB`, `GB`, `TB`".into();
            return Err((format!("`{unit}` is not a unit of size"), hint));
        }
        _ => return Err(reject()),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let (Ok(whole), Ok(part)) = (whole.parse::<u64>(), fraction.parse::<u64>()) else {
        return Err(reject());
    };
    if fraction.len() > 6 {
        return Err(reject());
    }
    let total =
        u128::from(whole) * bytes + u128::from(part) * bytes / 10u128.pow(fraction.len() as u32);
    match u64::try_from(total.div_ceil(1 << 20)) {
        Ok(mib) if mib <= MIB_MAX => Ok(mib),
        _ => Err((format!("`{text}` is too large"), String::new())),
    }
}

/// Prints a size exactly, in the largest possible unit.
pub(crate) fn size_text(mib: u64) -> String {
    if mib != 0 && mib.is_multiple_of(1024) {
        format!("{} GiB", mib / 1024)
    } else {
        format!("{mib} MiB")
    }
}

const SPAN_UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Parses a time such as `1h 30m`.
pub fn span(text: &str) -> Result<Span, Rejection> {
    let reject =
        || (format!("`{text}` is not a time"), "write it as `30s`, `5m` or `1h 30m`".into());
    let mut rest = text.trim();
    let (mut total, mut last) = (0u64, u64::MAX);
    if rest.is_empty() {
        return Err(reject());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let after = after.trim_start();
        let letters = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        rest = after.trim_start();
        if number.is_empty() {
            return Err(reject());
        }
        if unit.is_empty() && rest.is_empty() && last == u64::MAX {
            let hint = format!("write `{number}s` or `{number}m`");
            return Err((format!("the time `{text}` has no unit"), hint));
        }
        let Some((_, size)) = SPAN_UNITS.iter().find(|(name, _)| *name == unit) else {
            let what = format!("`{unit}` is not a unit of time");
            return Err((what, "times are in `ms`, `s`, `m`, `h` and `d`".into()));
        };
        // Each unit once, largest first: `30m 1h` is probably a typo.
        if *size >= last {
            return Err(reject());
        }
        last = *size;
        let part = number.parse::<u64>().ok().and_then(|n| n.checked_mul(*size));
        total = match part.and_then(|part| total.checked_add(part)) {
            Some(sum) if sum <= YEARS_MAX_MS => sum,
            _ => return Err((format!("`{text}` is longer than ten years"), String::new())),
        };
    }
    Ok(Span(total))
}

/// Prints a time exactly.
pub(crate) fn span_text(span: Span) -> String {
    let mut rest = span.0;
    let mut parts = Vec::new();
    for (unit, size) in SPAN_UNITS {
        if rest / size > 0 {
            parts.push(format!("{}{unit}", rest / size));
            rest %= size;
        }
    }
    if parts.is_empty() { "0s".into() } else { parts.join(" ") }
}

/// Parses a port range such as `20000-32767`.
pub(crate) fn port_range(text: &str) -> Result<PortRange, Rejection> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.trim().parse(), last.trim().parse()) {
        (Ok(first), Ok(last)) => Ok(PortRange { first, last }),
        _ => {
            let hint = "write it as `20000-32767`; the highest port is 65535".into();
            Err((format!("`{text}` is not a port range"), hint))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_up_to_mib() {
        let cases = [
            ("2 GiB", 2048),
            ("2GiB", 2048),
            ("2g", 2048),
            ("512 mib", 512),
            ("1.5 GiB", 1536),
            ("1 GB", 954),
            ("1 KiB", 1),
            ("0 MiB", 0),
            ("1 TiB", 1 << 20),
        ];
        for (text, mib) in cases {
            assert_eq!(size_mib(text), Ok(mib), "{text}");
        }
    }

    #[test]
    fn invalid_sizes_are_rejected() {
        let what = |text| size_mib(text).unwrap_err().0;
        assert_eq!(what("2048"), "the size `2048` has no unit");
        assert_eq!(what("2 GHz"), "`GHz` is not a unit of size");
        assert_eq!(what("-2 GiB"), "`-2 GiB` is not a size");
        assert_eq!(what("1.2.3 GiB"), "`1.2.3 GiB` is not a size");
        assert_eq!(what("GiB"), "`GiB` is not a size");
        assert_eq!(what("2 GiB 1"), "`2 GiB 1` is not a size");
        assert_eq!(what(".5 GiB"), "`.5 GiB` is not a size");
        assert_eq!(what("9999999 TiB"), "`9999999 TiB` is too large");
        assert_eq!(what("99999999999999999999 GiB"), "`99999999999999999999 GiB` is not a size");
    }

    #[test]
    fn spans_are_written_from_large_to_small() {
        let cases = [
            ("10s", 10_000),
            ("500ms", 500),
            ("1h 30m", 5_400_000),
            ("1h30m", 5_400_000),
            ("2 d", 172_800_000),
        ];
        for (text, ms) in cases {
            assert_eq!(span(text), Ok(Span(ms)), "{text}");
        }
        let what = |text| span(text).unwrap_err().0;
        assert_eq!(what("10"), "the time `10` has no unit");
        assert_eq!(what("5 minutes"), "`minutes` is not a unit of time");
        assert_eq!(what("30m 1h"), "`30m 1h` is not a time");
        assert_eq!(what("1h 30"), "`` is not a unit of time");
        assert_eq!(what("soon"), "`soon` is not a time");
        assert_eq!(what("99999999999d"), "`99999999999d` is longer than ten years");
    }

    #[test]
    fn printed_values_parse_to_the_same_value() {
        for ms in [0, 1, 999, 1_000, 61_001, 90_061_001] {
            assert_eq!(span(&span_text(Span(ms))), Ok(Span(ms)));
        }
        for mib in [0, 1, 1023, 1024, 1536, 5_000_000] {
            assert_eq!(size_mib(&size_text(mib)), Ok(mib));
        }
    }
}
