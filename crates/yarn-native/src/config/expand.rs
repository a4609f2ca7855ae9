//! Expansion of `${…}` in values: other keys, system properties and environment variables.

use super::environment::Environment;

/// Maximum number of substitutions in one value, as in Hadoop. Terminates values that reference
/// themselves.
const SUBSTITUTIONS_MAX: usize = 20;
/// Maximum length of an expanded value.
const VALUE_BYTES_MAX: usize = 1 << 20;

/// Expands the variables of a value, innermost first. Expansion stops at an unknown variable, which
/// stays as written along with everything after it. Hadoop does the same, and a value must mean the
/// same to both.
///
/// Each substitution inserts the raw value and scans the result again from its beginning.
pub(super) fn expand<'a>(
    value: &str,
    environment: &Environment,
    raw: impl Fn(&str) -> Option<&'a str>,
) -> Result<String, String> {
    let mut text = value.to_owned();
    for _ in 0..SUBSTITUTIONS_MAX {
        let Some((start, end)) = innermost(&text) else {
            return Ok(text);
        };
        let name = &text[start + 2..end];
        let found = match name.strip_prefix("env.") {
            Some(variable) if !variable.is_empty() => from_environment(variable, environment),
            _ => environment.property(name),
        };
        let Some(found) = found.or_else(|| raw(name).map(str::to_owned)) else {
            return Ok(text);
        };
        if found.contains(&text[start..=end]) {
            // A self-referencing value is left as written.
            return Ok(value.to_owned());
        }
        text.replace_range(start..=end, &found);
        if text.len() > VALUE_BYTES_MAX {
            let why = format!("longer than {} MiB after variable expansion", VALUE_BYTES_MAX >> 20);
            return Err(why);
        }
    }
    Err(format!("{SUBSTITUTIONS_MAX} or more variable substitutions"))
}

/// Finds the first `${name}` with neither a blank nor another `$` in its name. Returns the offsets
/// of its start and of its closing brace.
fn innermost(text: &str) -> Option<(usize, usize)> {
    let bytes = text.as_bytes();
    let mut start = None;
    for (at, byte) in bytes.iter().enumerate() {
        match (byte, start) {
            (b'{', _) if at > 0 && bytes[at - 1] == b'$' => start = Some(at - 1),
            (b'}', Some(begin)) if at > begin + 2 => return Some((begin, at)),
            (b'}' | b' ' | b'$', _) => start = None,
            _ => {}
        }
    }
    None
}

/// Resolves `X`, `X:-default` (used when X is unset or empty) or `X-default` (used when X is
/// unset).
fn from_environment(text: &str, environment: &Environment) -> Option<String> {
    let Some(dash) = text.find('-') else {
        return environment.variable(text).map(str::to_owned);
    };
    let default = &text[dash + 1..];
    match text[..dash].strip_suffix(':') {
        Some(name) => Some(environment.non_empty(name).unwrap_or(default).to_owned()),
        None => Some(environment.variable(&text[..dash]).unwrap_or(default).to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(value: &str, expected: &str) {
        let environment = Environment::default()
            .with_variable("USER", "alice")
            .with_variable("EMPTY", "")
            .with_variable("DIR", "/d");
        let keys = |key: &str| match key {
            "host" => Some("rm.example"),
            "which" => Some("host"),
            "greeting" => Some("hello ${user.name}"),
            _ => None,
        };
        assert_eq!(expand(value, &environment, keys).unwrap(), expected, "{value}");
    }

    #[test]
    fn keys_properties_and_variables_are_expanded() {
        check("${host}:8032", "rm.example:8032");
        check("/tmp/hadoop-${user.name}", "/tmp/hadoop-alice");
        check("${env.DIR}/x", "/d/x");
        check("${greeting}!", "hello alice!");
        check("${${which}}", "rm.example");
        check("no variables $ {host} $host }", "no variables $ {host} $host }");
    }

    #[test]
    fn variable_defaults_apply() {
        check("${env.NONE:-/x}", "/x");
        check("${env.EMPTY:-/x}", "/x");
        check("${env.DIR:-/x}", "/d");
        check("${env.NONE-/x}", "/x");
        check("${env.EMPTY-/x}", "");
        check("${env.NONE:-a-b}", "a-b");
    }

    #[test]
    fn unknown_variables_are_left_as_written() {
        check("${none}", "${none}");
        check("${host} ${none} ${host}", "rm.example ${none} ${host}");
        check("${env.NONE}", "${env.NONE}");
        check("${}", "${}");
        check("${a b}${host}", "${a b}rm.example");
        check("${", "${");
    }

    #[test]
    fn self_referencing_values_terminate() {
        let long = "x".repeat(600_000);
        let keys = |key: &str| match key {
            "self" => Some("x${self}"),
            "here" => Some("${there}"),
            "there" => Some("${here}"),
            "one" => Some("1"),
            "long" => Some(long.as_str()),
            _ => None,
        };
        let expand = |value: &str| expand(value, &Environment::default(), keys);
        assert_eq!(expand("${one}${self}"), Ok("${one}${self}".into()));
        assert!(expand("${here}").is_err());
        assert_eq!(expand(&"${one}".repeat(19)), Ok("1".repeat(19)));
        assert!(expand(&"${one}".repeat(20)).is_err(), "same limit as Hadoop");
        assert_eq!(expand("${long}").map(|value| value.len()), Ok(600_000));
        let why = "longer than 1 MiB after variable expansion";
        assert_eq!(expand("${long}${long}"), Err(why.into()));
    }
}
