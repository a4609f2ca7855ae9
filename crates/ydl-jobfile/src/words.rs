//! Splits a command line into words without a shell.

use super::units::Rejection;

/// Characters that only a shell interprets.
const SHELL_CHARS: &str = "|><&;$`*?()";

/// Splits a line into words. Quotes group words; shell syntax is rejected.
pub fn split_words(line: &str) -> Result<Vec<String>, Rejection> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = line.trim().chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\n' => {
                let what = "`run` is a single command, but has several lines".to_string();
                return Err((what, "use `shell:` for a script".into()));
            }
            c if c.is_whitespace() => words.extend(word.take()),
            '\'' => loop {
                match chars.next() {
                    Some('\'') => break word.get_or_insert_default().push_str(""),
                    Some(c) => word.get_or_insert_default().push(c),
                    None => return Err(unterminated_quote(line)),
                }
            },
            '"' => double_quoted(line, &mut chars, word.get_or_insert_default())?,
            '\\' => match chars.next() {
                // Line continuation.
                Some('\n') => words.extend(word.take()),
                Some(c) => word.get_or_insert_default().push(c),
                None => {
                    let what = format!("`{line}` ends with a backslash");
                    return Err((what, String::new()));
                }
            },
            c if SHELL_CHARS.contains(c) => return Err(requires_shell(c)),
            '~' if word.is_none() => return Err(requires_shell(c)),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word.take());
    if let Some((name, _)) = words.first().and_then(|first| first.split_once('='))
        && !name.contains('/')
    {
        let what = format!("`{}` is not a program", words[0]);
        return Err((what, format!("set `{name}` under `env:`, or use `shell:`")));
    }
    Ok(words)
}

fn double_quoted(
    line: &str,
    chars: &mut impl Iterator<Item = char>,
    word: &mut String,
) -> Result<(), Rejection> {
    loop {
        match chars.next() {
            Some('"') => return Ok(()),
            Some('\\') => match chars.next() {
                Some(c @ ('"' | '\\' | '$' | '`')) => word.push(c),
                Some(c) => word.extend(['\\', c]),
                None => return Err(unterminated_quote(line)),
            },
            // A shell expands these inside of double quotes.
            Some(c @ ('$' | '`')) => return Err(requires_shell(c)),
            Some(c) => word.push(c),
            None => return Err(unterminated_quote(line)),
        }
    }
}

fn unterminated_quote(line: &str) -> Rejection {
    (format!("unterminated quote in `{line}`"), String::new())
}

fn requires_shell(sign: char) -> Rejection {
    let what = format!("`{sign}` requires a shell, but `run` uses none");
    (what, "use `shell:` instead of `run:`, or single-quote the word".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_group_words() {
        let check =
            |line: &str, words: &[&str]| assert_eq!(split_words(line).unwrap(), words, "{line}");
        check("python train.py --lr 0.1", &["python", "train.py", "--lr", "0.1"]);
        check("  a   b\t", &["a", "b"]);
        check("say 'a b' \"c d\" e\\ f", &["say", "a b", "c d", "e f"]);
        check("x '' \"\"", &["x", "", ""]);
        check("x '$HOME | *' \"\\$1 \\\" \\\\ \\n\"", &["x", "$HOME | *", "$1 \" \\ \\n"]);
        check("a'b'\"c\"d", &["abcd"]);
        check("one \\\n two", &["one", "two"]);
        check("x --path=~/a --url=http://h/x", &["x", "--path=~/a", "--url=http://h/x"]);
        check("", &[]);
    }

    #[test]
    fn shell_syntax_is_rejected() {
        for line in [
            "a | b",
            "a > b",
            "a && b",
            "a; b",
            "echo $X",
            "echo `x`",
            "ls *.py",
            "ls ?",
            "~/run",
            "echo \"$X\"",
            "(a)",
        ] {
            let (what, hint) = split_words(line).unwrap_err();
            assert!(what.ends_with("requires a shell, but `run` uses none"), "{line}: {what}");
            assert!(hint.contains("`shell:`"));
        }
        assert_eq!(split_words("X=1 python a.py").unwrap_err().0, "`X=1` is not a program");
        assert_eq!(split_words("say 'a").unwrap_err().0, "unterminated quote in `say 'a`");
        assert_eq!(
            split_words("a\nb").unwrap_err().0,
            "`run` is a single command, but has several lines"
        );
    }
}
