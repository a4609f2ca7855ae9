//! Glob patterns for names: `*`, `?`, `[…]` and `{a,b}`, as in Hadoop.

/// Maximum number of alternatives from the braces of one pattern.
const ALTERNATIVES_MAX: usize = 64;

/// Returns whether a glob matches the whole text. Patterns with too many alternatives match
/// nothing.
pub(crate) fn glob_matches(pattern: &str, text: &str) -> bool {
    let text: Vec<char> = text.chars().collect();
    alternatives(pattern).is_some_and(|patterns| {
        patterns.iter().any(|pattern| {
            let pattern: Vec<char> = pattern.chars().collect();
            matches(&pattern, &text)
        })
    })
}

/// Expands the braces of a pattern.
fn alternatives(pattern: &str) -> Option<Vec<String>> {
    let mut done = Vec::new();
    let mut open = vec![pattern.to_owned()];
    while let Some(pattern) = open.pop() {
        // Innermost pair: the first closing brace and the last opening one before it.
        let pair = pattern.find('}').and_then(|close| Some((pattern[..close].rfind('{')?, close)));
        let Some((start, end)) = pair else {
            done.push(pattern);
            continue;
        };
        for middle in pattern[start + 1..end].split(',') {
            open.push(format!("{}{middle}{}", &pattern[..start], &pattern[end + 1..]));
        }
        if open.len() + done.len() > ALTERNATIVES_MAX {
            return None;
        }
    }
    Some(done)
}

/// Matches with a single backtracking point, the last `*`, so the time is bounded by the product of
/// the lengths.
fn matches(pattern: &[char], text: &[char]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        let step = match pattern.get(p) {
            Some('*') => {
                star = Some((p + 1, t));
                p += 1;
                continue;
            }
            Some('?') => Some(1),
            Some('[') => class(&pattern[p..], text[t]),
            Some('\\') if pattern.get(p + 1) == Some(&text[t]) => Some(2),
            Some(letter) if *letter == text[t] && *letter != '\\' => Some(1),
            _ => None,
        };
        match (step, star) {
            (Some(length), _) => (p, t) = (p + length, t + 1),
            (None, Some((after, from))) => {
                star = Some((after, from + 1));
                (p, t) = (after, from + 1);
            }
            (None, None) => return false,
        }
    }
    pattern[p..].iter().all(|letter| *letter == '*')
}

/// Returns the length of a `[…]` class if it matches the character.
fn class(pattern: &[char], letter: char) -> Option<usize> {
    let end = 2 + pattern.get(2..)?.iter().position(|end| *end == ']')?;
    let (negated, members) = match pattern[1] {
        '!' | '^' => (true, &pattern[2..end]),
        _ => (false, &pattern[1..end]),
    };
    let mut found = false;
    let mut at = 0;
    while at < members.len() {
        if let [from, '-', to, ..] = members[at..] {
            found |= (from..=to).contains(&letter);
            at += 3;
        } else {
            found |= members[at] == letter;
            at += 1;
        }
    }
    (found != negated).then_some(end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_whole_texts() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("a*b*c", "a--b--c", true),
            ("a*b*c", "a--b--", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]x", "x", false),
            ("[", "[", false),
            ("{a,b{c,d}}", "bd", true),
            ("{a", "{a", true),
            ("a\\*", "a*", true),
            ("a\\*", "ab", false),
        ] {
            assert_eq!(glob_matches(pattern, text), expected, "{pattern} {text}");
        }
        let many = "{a,b}".repeat(30);
        assert!(!glob_matches(&many, "a"), "too many alternatives match nothing");
        let slow = format!("{}b", "a*".repeat(500));
        assert!(!glob_matches(&slow, &"a".repeat(2000)));
    }
}
