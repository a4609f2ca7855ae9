//! Reads and prints the MLflow run of a job. Values that the server would reject are rejected here, where the user sees it.

use super::{
    fields::{Map, Reader},
    files::absolute,
    formats::{Context, Describe, Format, Scalar, TEXTS, boolean, text_of},
    keys::MLFLOW,
    printer::YamlValue,
    tree::{Key, Node, Value},
    units::Rejection,
};
use http::Uri;
use std::{collections::BTreeMap, fs};
use ydl_core::{JobSpecBuilder, spec::Mlflow};
use ydl_os::{env, reason};

/// Variables that hold MLflow secrets. In a job file they would be visible to all its viewers.
const SECRETS: [&str; 2] = ["MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_PASSWORD"];
/// Maximum size of a token file.
const TOKEN_BYTES_MAX: u64 = 64 << 10;
/// Limits of all MLflow versions: characters of a name, characters of a tag's value, number of tags.
const NAME_MAX: usize = 250;
const VALUE_MAX: usize = 5000;
const TAGS_MAX: usize = 50;

/// Address of the server.
pub(crate) const ADDRESS: Scalar<String> =
    text_of("`http://…` or `https://…`", |text, _| address(text));
/// Name of an experiment or a run.
pub(crate) const MLFLOW_NAME: Scalar<String> = text_of("text", |text, _| name(text));
/// User of the server.
pub(crate) const USER: Scalar<String> = text_of("text", |text, _| user(text));
/// File with the token or the password.
pub(crate) const TOKEN_FILE: Scalar<String> = text_of("path", token);

/// Returns the run without an address.
pub(crate) fn default_run() -> Mlflow {
    Mlflow {
        uri: String::new(),
        experiment: "Default".to_owned(),
        run_name: None,
        tags: BTreeMap::new(),
        user: None,
        token_file: None,
    }
}

/// Tags of the run.
pub(crate) struct RunTags;

impl Describe for RunTags {
    fn kind(&self) -> String {
        TEXTS.kind()
    }

    fn python(&self) -> String {
        TEXTS.python()
    }
}

impl Format<BTreeMap<String, String>> for RunTags {
    fn read(
        &self,
        reader: &mut Reader,
        node: &Node,
        path: &str,
        value: &mut BTreeMap<String, String>,
    ) {
        let all = reader.entries(node, path);
        if all.len() > TAGS_MAX {
            let what = format!("{} tags exceed the maximum of {TAGS_MAX}", all.len());
            reader.reject(&node.at, path, what, "remove some");
            return;
        }
        for (key, node) in all {
            let path = format!("{path}.{}", key.name);
            if let Err((what, hint)) = tag(&key.name) {
                reader.reject(&key.at, &path, what, hint);
            } else if let Some(tag) = reader.value_of(node, &path, tag_value) {
                value.insert(key.name.clone(), tag);
            }
        }
    }

    fn print(&self, tags: &BTreeMap<String, String>) -> YamlValue {
        TEXTS.print(tags)
    }
}

/// Prints the run.
pub(crate) fn print(job: &JobSpecBuilder) -> YamlValue {
    MLFLOW.optional(job.cluster_options.mlflow.as_ref())
}

impl Reader {
    /// Reads `true`, an address, or a map.
    pub(crate) fn mlflow(&mut self, map: &Map, job: &mut JobSpecBuilder) {
        job.cluster_options.mlflow = self.run_of(map, job);
    }

    fn run_of(&mut self, map: &Map, job: &JobSpecBuilder) -> Option<Mlflow> {
        let node = map.find("mlflow")?;
        self.reject_secrets(map);
        let mut found = default_run();
        if map.find("name").is_some() {
            found.experiment.clone_from(&job.name);
        }
        let uri = match &node.value {
            Value::Map(_) => {
                let own = self.map(node, "mlflow", MLFLOW.path());
                self.section(&own, &MLFLOW, &mut found);
                if let (Some(user), None) = (own.find("user"), own.find("token_file")) {
                    let what = "`user` requires a password";
                    let hint = "store it in a private file: `token_file: ~/.mlflow-password`";
                    self.reject(&user.at, "mlflow.user", what, hint);
                }
                match own.find("uri") {
                    Some(_) if found.uri.is_empty() => return None,
                    Some(_) => Some(std::mem::take(&mut found.uri)),
                    None => None,
                }
            }
            Value::Scalar { text, .. } if boolean(text).is_ok() => {
                if !self.value_of(node, "mlflow", boolean)? {
                    return None;
                }
                None
            }
            _ => Some(ADDRESS.value(self, node, "mlflow")?),
        };
        let uri = match uri {
            Some(uri) => Ok(uri),
            None => match std::env::var(env::MLFLOW_TRACKING_URI) {
                Ok(uri) => address(&uri),
                Err(_) => Err((
                    "missing server address".to_owned(),
                    "set `mlflow: {uri: http://host:5000}`, or `MLFLOW_TRACKING_URI`".to_owned(),
                )),
            },
        };
        match uri {
            Ok(uri) => Some(Mlflow { uri, ..found }),
            Err((what, hint)) => {
                self.reject(&node.at, "mlflow.uri", what, hint);
                None
            }
        }
    }

    /// Rejects secrets in the variables of the job and of its roles.
    fn reject_secrets(&mut self, map: &Map) {
        let job = map.find("env").map(|env| ("env".to_owned(), env));
        let roles = entries(map.find("roles")).iter();
        let roles = roles.filter_map(|(role, node)| {
            let mut keys = entries(Some(node)).iter();
            let (_, env) = keys.find(|(key, _)| key.name == "env")?;
            Some((format!("roles.{}.env", role.name), env))
        });
        for (path, env) in job.into_iter().chain(roles) {
            for (key, _) in entries(Some(env)) {
                if SECRETS.contains(&key.name.as_str()) {
                    let what = format!("`{}` would be visible to all viewers of the job", key.name);
                    let hint =
                        "store it in a private file: `mlflow: {token_file: ~/.mlflow-token}`";
                    self.reject(&key.at, &format!("{path}.{}", key.name), what, hint);
                }
            }
        }
    }
}

/// Returns the entries of a map. Other values are reported elsewhere.
fn entries(node: Option<&Node>) -> &[(Key, Node)] {
    match node.map(|node| &node.value) {
        Some(Value::Map(entries)) => entries,
        _ => &[],
    }
}

/// Parses an HTTP address without secrets.
fn address(text: &str) -> Result<String, Rejection> {
    let no_address = |why: &str| {
        let hint = "write it as `http://host:5000` or `https://host/path`";
        Err((format!("`{text}` {why}"), hint.to_owned()))
    };
    let authority = text.split_once("://").map_or(text, |(_, rest)| rest);
    let authority = authority.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        let what = "a password in the address would be visible to all viewers of the job";
        let hint = "set `user`, and store the password in a `token_file`";
        return Err((what.to_owned(), hint.to_owned()));
    }
    if text.contains(['?', '#']) {
        let what =
            "the part after `?` or `#` would be visible to all viewers of the job, and is not sent";
        let hint = "remove it, and store a token in a `token_file`";
        return Err((what.to_owned(), hint.to_owned()));
    }
    if !["http://", "https://"].iter().any(|it| text.starts_with(it)) {
        let what = format!("`{text}` does not start with `http://` or `https://`");
        let hint =
            "use a tracking server (`mlflow server`): masters and tasks cannot access local files";
        return Err((what, hint.to_owned()));
    }
    let Ok(uri) = text.parse::<Uri>() else {
        return no_address("is not a valid address");
    };
    if uri.host().is_none_or(str::is_empty) {
        return no_address("has no host");
    }
    // The part after the last colon, unless it is inside brackets.
    let port = authority.rsplit_once(':').map(|(_, port)| port);
    let port = port.filter(|port| !port.ends_with(']'));
    if port.is_some_and(|port| port.parse::<u16>().is_err()) {
        return no_address("has an invalid port");
    }
    Ok(text.trim_end_matches('/').to_owned())
}

fn name(text: &str) -> Result<String, Rejection> {
    let hint = format!("use 1 to {NAME_MAX} characters on one line");
    let letters = text.chars().count();
    match text.trim().is_empty() || letters > NAME_MAX || text.chars().any(char::is_control) {
        true => Err(("invalid name for MLflow".to_owned(), hint)),
        false => Ok(text.to_owned()),
    }
}

fn user(text: &str) -> Result<String, Rejection> {
    match text.contains(':') {
        // A colon separates user and password.
        true => Err((
            format!("`{text}` contains a colon"),
            "use the user name only, and store the password in a `token_file`".to_owned(),
        )),
        false => name(text),
    }
}

/// Checks the name of a tag: a normalized path.
fn tag(text: &str) -> Result<(), Rejection> {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "-_./ ".contains(letter);
    let plain = |part: &str| !["", ".", ".."].contains(&part);
    if text == "ydl.job" {
        let hint = "use another name";
        return Err((
            "this tag is reserved: masters find the run by it".to_owned(),
            hint.to_owned(),
        ));
    }
    match text.len() <= NAME_MAX && text.chars().all(fits) && text.split('/').all(plain) {
        true => Ok(()),
        false => Err((
            "invalid tag name for MLflow".to_owned(),
            "use letters from a to z, digits, spaces, `-`, `_`, `.`, and `/` between them"
                .to_owned(),
        )),
    }
}

fn tag_value(text: &str) -> Result<String, Rejection> {
    match text.chars().count() > VALUE_MAX {
        true => Err((
            format!("the value has more than {VALUE_MAX} characters"),
            "MLflow does not accept longer values of tags".to_owned(),
        )),
        false => Ok(text.to_owned()),
    }
}

/// Checks a token file. Its content is read at submit.
fn token(path: &str, context: &Context) -> Result<String, Rejection> {
    let hint = || "use a file with one line: the token or the password".to_owned();
    let file = match (path.strip_prefix("~/"), std::env::var("HOME")) {
        (Some(rest), Ok(home)) => format!("{home}/{rest}"),
        _ => absolute(path, &context.base),
    };
    match fs::metadata(&file) {
        Ok(found) if !found.is_file() => Err((format!("`{path}` is not a file"), hint())),
        Ok(found) if found.len() > TOKEN_BYTES_MAX => {
            Err((format!("`{path}` is too large for a token"), hint()))
        }
        Ok(_) => Ok(file),
        Err(error) => Err((format!("`{path}` cannot be read: {}", reason(&error)), hint())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_reachable_by_masters_and_hold_no_secrets() {
        for good in ["http://host", "https://host:443/a/b", "http://[::1]:5000", "http://[::1]"] {
            assert_eq!(address(good).unwrap(), good);
        }
        assert_eq!(address("http://host/").unwrap(), "http://host");
        for (bad, what) in [
            ("http://", "is not a valid address"),
            ("http://:5000", "has no host"),
            ("http://a b", "is not a valid address"),
            ("http://host:port", "has an invalid port"),
            ("http://host:99999", "has an invalid port"),
            ("mlruns", "does not start with"),
            ("databricks://x", "does not start with"),
        ] {
            let (message, hint) = address(bad).unwrap_err();
            assert!(message.contains(what) && message.contains(bad), "{message}");
            assert!(!hint.is_empty());
        }
        // Messages do not repeat secrets.
        for secret in [
            "http://me:word@host",
            "HTTP://me:word@host",
            "me:word@host",
            "http://host/?token=word",
            "http://host#word",
        ] {
            let (message, hint) = address(secret).unwrap_err();
            assert!(!message.contains("word=") && !message.contains("=word"), "{message}");
            assert!(message.contains("would be visible"), "{message}");
            assert!(!hint.is_empty());
        }
    }

    #[test]
    fn values_that_mlflow_rejects_are_rejected() {
        for good in ["team", "a/b", "mlflow.note.content", "a b"] {
            assert!(tag(good).is_ok(), "{good}");
        }
        for bad in ["", "a//b", "/a", "../a", "a/.", "é", "a:b", "ydl.job"] {
            assert!(tag(bad).is_err(), "{bad}");
        }
        assert!(tag(&"x".repeat(251)).is_err());
        for bad in ["", " ", "a\nb", &"x".repeat(251)] {
            assert!(name(bad).is_err(), "{bad}");
        }
        assert!(user("me:word").is_err() && user("me").is_ok());
        assert!(tag_value(&"x".repeat(5001)).is_err());
    }
}
