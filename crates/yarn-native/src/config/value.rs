//! Parsers for flags, numbers, sizes, durations and lists. Errors describe the expected form.

use std::time::Duration;

pub(super) fn flag(text: &str) -> Result<bool, String> {
    match text {
        _ if text.eq_ignore_ascii_case("true") => Ok(true),
        _ if text.eq_ignore_ascii_case("false") => Ok(false),
        _ => Err("neither `true` nor `false`".into()),
    }
}

/// Parses a decimal or hexadecimal (`0x`) number.
pub(super) fn integer(text: &str) -> Result<i64, String> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let hexadecimal = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let (digits, radix) = hexadecimal.map_or((digits, 10), |digits| (digits, 16));
    if !digits.starts_with(|first: char| first.is_ascii_hexdigit()) {
        return Err("not a whole number".into());
    }
    let sign = if negative { "-" } else { "" };
    i64::from_str_radix(&format!("{sign}{digits}"), radix)
        .map_err(|_| "not a whole number, or too large".into())
}

/// Parses a non-negative number.
pub(super) fn count(text: &str) -> Result<u64, String> {
    u64::try_from(integer(text)?).map_err(|_| "negative".into())
}

/// Parses a size: `134217728`, `128m`, `128MB`, `1.5 g`. Units are powers of 1024.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    const EXPECTED: &str = "not a size such as `128m`";
    let lower = text.to_ascii_lowercase();
    let digits = lower.trim_end_matches(|last: char| last.is_ascii_alphabetic());
    let unit = lower[digits.len()..].trim_end_matches('b');
    let power = match unit {
        "" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        "e" => 6,
        _ => return Err(EXPECTED.into()),
    };
    let factor = 1u64 << (10 * power);
    let digits = digits.trim();
    if digits.contains('.') {
        let number: f64 = digits.parse().map_err(|_| EXPECTED)?;
        let size = number * factor as f64;
        if !(0.0..9e18).contains(&size) {
            return Err(EXPECTED.into());
        }
        return Ok(size as u64);
    }
    integer(digits)
        .ok()
        .and_then(|number| u64::try_from(number).ok())
        .and_then(|number| number.checked_mul(factor))
        .ok_or_else(|| EXPECTED.into())
}

/// Parses a duration with one of Hadoop's suffixes; a bare number is in `unit`.
pub(super) fn duration(text: &str, unit: &str) -> Result<Duration, String> {
    duration_or_unlimited(text, unit)?.ok_or_else(|| "negative".into())
}

/// Parses a duration; `None` for a negative number, which means unlimited.
pub(super) fn duration_or_unlimited(text: &str, unit: &str) -> Result<Option<Duration>, String> {
    const EXPECTED: &str = "not a duration such as `30s`";
    let lower = text.to_ascii_lowercase();
    let digits = lower.trim_end_matches(|last: char| last.is_ascii_alphabetic());
    let suffix = match &lower[digits.len()..] {
        "" => unit,
        suffix => suffix,
    };
    let nanos_per_unit: u128 = match suffix {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60 * 1_000_000_000,
        "h" => 3600 * 1_000_000_000,
        "d" => 86400 * 1_000_000_000,
        _ => return Err(EXPECTED.into()),
    };
    let number = integer(digits.trim()).map_err(|_| EXPECTED)?;
    let Ok(number) = u64::try_from(number) else {
        return Ok(None);
    };
    let nanos = u128::from(number) * nanos_per_unit;
    // Larger values are capped at some centuries, so that callers cannot overflow.
    let seconds = u64::try_from(nanos / 1_000_000_000).unwrap_or(u64::MAX);
    Ok(Some(Duration::new(seconds.min(u64::from(u32::MAX)), (nanos % 1_000_000_000) as u32)))
}

/// Splits a comma-separated list; blanks and empty items are dropped.
pub(super) fn list(text: &str) -> Vec<String> {
    text.split([',', '\n'])
        .map(str::trim)
        .filter(|item| !item.is_empty())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_decimal_and_hexadecimal_numbers() {
        assert_eq!(integer("42"), Ok(42));
        assert_eq!(integer("-0x10"), Ok(-16));
        for bad in ["", "-", "0x", "--1", "-+1", "+1", "1.5", "99999999999999999999", "ten"] {
            assert!(integer(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn parses_sizes_with_binary_suffixes() {
        assert_eq!(bytes("134217728"), Ok(134217728));
        assert_eq!(bytes("128m"), Ok(134217728));
        assert_eq!(bytes("128 MB"), Ok(134217728));
        assert_eq!(bytes("1.5k"), Ok(1536));
        assert_eq!(bytes("7b"), Ok(7));
        for bad in ["", "m", "12q", "-1k", "9999999e", "1.5.5", "naN", "1e5"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn parses_durations_with_suffix_or_default_unit() {
        assert_eq!(duration("250", "ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("30s", "ms"), Ok(Duration::from_secs(30)));
        assert_eq!(duration("2 h", "ms"), Ok(Duration::from_secs(7200)));
        assert_eq!(duration("7d", "ms"), Ok(Duration::from_secs(604800)));
        assert_eq!(duration("1500us", "ms"), Ok(Duration::from_micros(1500)));
        assert_eq!(duration_or_unlimited("-1", "ms"), Ok(None));
        assert!(duration("-1", "ms").is_err());
        let centuries = duration("9223372036854775807d", "ms").unwrap();
        assert_eq!(centuries.as_secs(), u64::from(u32::MAX));
        for bad in ["", "s", "1 week", "1.5s", "0x"] {
            assert!(duration(bad, "ms").is_err(), "{bad}");
        }
    }
}
