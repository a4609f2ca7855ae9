//! Patterns of files that are left out of a directory.

use alloc::vec::Vec;

/// Returns true if one of the patterns matches a path, relative to the directory.
///
/// `*` and `?` match within a name, `**` matches directories at any depth. A pattern with a `/` that is not its last character
/// starts at the directory; others match names at any depth. A `/` at the end restricts it to directories.
pub fn is_ignored(
    patterns: impl IntoIterator<Item = impl AsRef<str>>,
    path: &str,
    is_dir: bool,
) -> bool {
    let path: Vec<&str> = path.split('/').collect();
    patterns.into_iter().any(|pattern| {
        let pattern = pattern.as_ref();
        let for_dirs = pattern.ends_with('/');
        let plain = pattern.trim_end_matches('/');
        let is_anchored = plain.contains('/');
        let parts: Vec<&str> = plain.trim_start_matches('/').split('/').collect();
        let matched = match (is_anchored, path.last()) {
            (true, _) => path_matches(&parts, &path),
            (false, Some(name)) => name_matches(plain.as_bytes(), name.as_bytes()),
            (false, None) => false,
        };
        matched && (is_dir || !for_dirs)
    })
}

fn path_matches(pattern: &[&str], path: &[&str]) -> bool {
    match (pattern, path) {
        ([], []) => true,
        (["**", rest @ ..], _) => (0..=path.len()).any(|skip| path_matches(rest, &path[skip..])),
        ([first, rest @ ..], [name, below @ ..]) => {
            name_matches(first.as_bytes(), name.as_bytes()) && path_matches(rest, below)
        }
        _ => false,
    }
}

/// Matches a name with wildcards. On a mismatch the last `*` takes one byte more, so the time is at most quadratic.
fn name_matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(b'?') => (p, n) = (p + 1, n + 1),
            Some(byte) if *byte == name[n] => (p, n) = (p + 1, n + 1),
            _ => match star {
                Some((at, taken)) => {
                    star = Some((at, taken + 1));
                    (p, n) = (at + 1, taken + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::borrow::ToOwned;

    #[test]
    fn patterns_match_names_paths_and_directories() {
        for (pattern, path, is_dir, expected) in [
            ("*.params", "a.params", false, true),
            ("*.params", "deep/er/a.params", false, true),
            ("*.params", "a.params.json", false, false),
            ("data", "data", true, true),
            ("data", "src/data", true, true),
            ("data/", "data", true, true),
            ("data/", "data", false, false),
            ("/data", "data", true, true),
            ("/data", "src/data", true, false),
            ("data/raw", "data/raw", true, true),
            ("data/raw", "src/data/raw", true, false),
            ("**/raw", "src/data/raw", true, true),
            ("src/**/raw", "src/raw", true, true),
            ("src/**/raw", "lib/raw", true, false),
            ("src/*/raw", "src/a/raw", true, true),
            ("src/*/raw", "src/a/b/raw", true, false),
            ("log-?.txt", "log-1.txt", false, true),
            ("log-?.txt", "log-12.txt", false, false),
            ("*", "anything", false, true),
            ("a*b*c", "aXXbYYc", false, true),
            ("a*b*c", "aXXbYYd", false, false),
            (".*", ".git", true, true),
        ] {
            let patterns = [pattern.to_owned()];
            assert_eq!(is_ignored(&patterns, path, is_dir), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn many_wildcards_take_little_time() {
        let pattern = ["*a".repeat(200)];
        assert!(!is_ignored(&pattern, &"a".repeat(150), false));
    }
}
