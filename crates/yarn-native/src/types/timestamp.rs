//! Timestamps in the ResourceManager's format: `2026-03-01T12:00:00.000+0000`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// End of the year 9999, the last with four digits.
const LAST_S: u64 = 253_402_300_799;
const DAY_S: i64 = 24 * 60 * 60;
/// Days in 400 years, the period of the calendar.
const CYCLE_DAYS: i64 = 146_097;
/// Days from 1 March of the year 0 to 1 January 1970.
const EPOCH_DAYS: i64 = 719_468;

/// Formats a time in UTC, to the millisecond. Times before 1970 become 1970.
pub(crate) fn format(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = since.as_secs().min(LAST_S) as i64;
    let (year, month, day) = date(seconds / DAY_S);
    let of_day = seconds % DAY_S;
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    let millis = since.subsec_millis();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}+0000")
}

/// Converts Java's milliseconds. Times after the year 9999 are clamped to its end.
pub(crate) fn of_millis(millis: u64) -> SystemTime {
    let since = Duration::from_millis(millis.min(LAST_S * 1000));
    UNIX_EPOCH + since
}

/// Parses a timestamp; `None` for any other text, such as `UNLIMITED`.
pub(crate) fn parse(text: &str) -> Option<SystemTime> {
    let number = |from: usize, length: usize| {
        let digits = text.get(from..from + length)?;
        let plain = digits.bytes().all(|digit| digit.is_ascii_digit());
        plain.then(|| digits.parse::<i64>().ok())?
    };
    let separators = [(4, "-"), (7, "-"), (10, "T"), (13, ":"), (16, ":"), (19, ".")];
    if !separators.iter().all(|&(at, mark)| text.get(at..at + 1) == Some(mark)) {
        return None;
    }
    let (month, day) = (number(5, 2)?, number(8, 2)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let days = days(number(0, 4)?, month, day);
    let seconds = number(11, 2)? * 3600 + number(14, 2)? * 60 + number(17, 2)?;
    let offset = match text.get(23..)? {
        "Z" => 0,
        zone if zone.len() == 5 => {
            let offset = number(24, 2)? * 3600 + number(26, 2)? * 60;
            match zone.as_bytes()[0] {
                b'+' => offset,
                b'-' => -offset,
                _ => return None,
            }
        }
        _ => return None,
    };
    let seconds = u64::try_from(days * DAY_S + seconds - offset).ok()?;
    let millis = u64::try_from(number(20, 3)?).ok()?;
    Some(UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_millis(millis))
}

/// Converts days since 1970 to year, month and day. Years begin in March here, so that the leap day
/// is their last.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + EPOCH_DAYS;
    let (cycle, day) = (days.div_euclid(CYCLE_DAYS), days.rem_euclid(CYCLE_DAYS));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (cycle * 400 + year + carry, month, day)
}

/// Converts year, month and day to days since 1970.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (cycle, year) = (year.div_euclid(400), year.rem_euclid(400));
    let month = if month > 2 { month - 3 } else { month + 9 };
    let day = (153 * month + 2) / 5 + day - 1;
    cycle * CYCLE_DAYS + 365 * year + year / 4 - year / 100 + day - EPOCH_DAYS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(millis)
    }

    #[test]
    fn timestamps_round_trip() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000+0000"),
            (951_782_400_007, "2000-02-29T00:00:00.007+0000"),
            (1_700_000_000_123, "2023-11-14T22:13:20.123+0000"),
            (4_107_542_399_999, "2100-02-28T23:59:59.999+0000"),
        ] {
            assert_eq!(format(at(millis)), text);
            assert_eq!(parse(text), Some(at(millis)), "{text}");
        }
        for day in 0..200_000 {
            let (year, month, of_month) = date(day);
            assert_eq!(days(year, month, of_month), day);
        }
    }

    #[test]
    fn time_zones_are_applied_and_malformed_timestamps_are_rejected() {
        let noon = parse("2023-11-14T12:00:00.000Z");
        assert_eq!(parse("2023-11-14T14:00:00.000+0200"), noon);
        assert_eq!(parse("2023-11-14T07:30:00.000-0430"), noon);
        for text in [
            "",
            "UNLIMITED",
            "2023-13-14T12:00:00.000Z",
            "2023-11-14T12:00:00.000",
            "2023-11-14 12:00:00.000Z",
            "2023-11-14T12:00:00.000+02:00",
            "1900-01-01T00:00:00.000Z",
            "+023-11-14T12:00:00.000Z",
            "2023-11-14T12:00:00.0äZ",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
