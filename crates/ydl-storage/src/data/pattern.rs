//! Names with `*`, which stands for any letters, and `?`, which stands for one.

/// Returns true if a text is a pattern rather than a name.
pub fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?'])
}

/// Matches a file name; a leading dot must be matched explicitly.
pub fn fits(pattern: &[u8], name: &[u8]) -> bool {
    if name.starts_with(b".") && !pattern.starts_with(b".") {
        return false;
    }
    fits_anything(pattern, name)
}

/// Matches any text: `*` also matches slashes and dots.
pub fn fits_anything(pattern: &[u8], name: &[u8]) -> bool {
    // The last `*` seen, and where its part of the name ends: only that one ever needs another try.
    let mut star: Option<(usize, usize)> = None;
    let (mut p, mut n) = (0, 0);
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(b'?') => (p, n) = (p + 1, n + 1),
            Some(byte) if *byte == name[n] => (p, n) = (p + 1, n + 1),
            _ => match &mut star {
                Some((at, taken)) => {
                    *taken += 1;
                    (p, n) = (*at + 1, *taken);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

/// Returns true for the temporary name of an output file, local or in HDFS.
pub fn is_temporary(name: &str) -> bool {
    let of_process = || {
        let (_, whose) = name.rsplit_once(".ydl-")?;
        let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        Some(name.starts_with('.') && whose.split('-').all(is_number))
    };
    name.starts_with(".aside-") || of_process() == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_half_written_has_a_name_of_its_own() {
        for (name, expected) in [
            (".aside-job-worker=0-1f", true),
            (".model.ydl-123", true),
            (".model.ydl-123-4", true),
            (".model.ydl-x", false),
            ("model.ydl-123", false),
            (".hidden", false),
        ] {
            assert_eq!(is_temporary(name), expected, "{name}");
        }
    }

    #[test]
    fn stars_stand_for_any_letters_and_dots_are_named() {
        let cases = [
            ("*", "a", true),
            ("*", "", true),
            ("*", ".hidden", false),
            (".*", ".hidden", true),
            ("part-*", "part-00", true),
            ("part-*", "apart-00", false),
            ("*.csv", "a.b.csv", true),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXc", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("abc", "abc", true),
            ("abc", "abcd", false),
            ("**x", "x", true),
        ];
        for (pattern, name, expected) in cases {
            let found = fits(pattern.as_bytes(), name.as_bytes());
            assert_eq!(found, expected, "{pattern} {name}");
        }
        assert!(fits_anything(b"logs/*", b"logs/worker/0/1/stdout.0"));
        let long = "a".repeat(2000);
        assert!(!fits(format!("{}b", "*a".repeat(200)).as_bytes(), long.as_bytes()));
    }
}
