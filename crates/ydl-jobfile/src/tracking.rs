//! Reading which run of MLflow's a job is. What its server would refuse is refused here, because there nobody would see it.

use super::{
    fields::{Map, Reader, truth},
    files::absolute,
    tree::{Key, Node, Value},
    units::Rejection,
};
use http::Uri;
use std::{collections::BTreeMap, fs};
use ydl_core::spec::Mlflow;
use ydl_os::{env, reason};

/// Variables with which MLflow's own programs are given secrets. In a job they would be seen by whoever sees its job file.
const SECRETS: [&str; 2] = ["MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_PASSWORD"];
/// No token comes near this.
const TOKEN_BYTES_MAX: u64 = 64 << 10;
/// What every version of MLflow takes: letters of a name, of a tag's value, and tags.
const NAME_MAX: usize = 250;
const VALUE_MAX: usize = 5000;
const TAGS_MAX: usize = 50;

impl Reader {
    /// `true`, an address, or a map.
    pub fn mlflow(&mut self, map: &Map, base: &str) -> Option<Mlflow> {
        let node = map.find("mlflow")?;
        self.open_secrets(map);
        let mut found = Mlflow {
            uri: String::new(),
            experiment: self.text(map, "name").unwrap_or_else(|| "Default".to_owned()),
            run_name: None,
            tags: BTreeMap::new(),
            user: None,
            token_file: None,
        };
        let said = match &node.value {
            Value::Map(_) => {
                let own = self.map(node, "mlflow", "mlflow");
                let experiment = self.value(&own, "experiment", name);
                found.experiment = experiment.unwrap_or(found.experiment);
                found.run_name = self.value(&own, "run_name", name);
                found.user = self.value(&own, "user", user);
                if let Some(tags) = own.find("tags") {
                    found.tags = self.run_tags(tags);
                }
                found.token_file = self.value(&own, "token_file", |path| token(path, base));
                if let (Some(user), None) = (own.find("user"), own.find("token_file")) {
                    let what = "a user proves to be who they are with a password";
                    let hint = "put it into a file of your own: `token_file: ~/.mlflow-password`";
                    self.reject(&user.at, "mlflow.user", what, hint);
                }
                match own.find("uri") {
                    Some(_) => Some(self.value(&own, "uri", address)?),
                    None => None,
                }
            }
            Value::Scalar { text, .. } if truth(text).is_ok() => {
                if !self.value_of(node, "mlflow", truth)? {
                    return None;
                }
                None
            }
            _ => Some(self.value_of(node, "mlflow", address)?),
        };
        let uri = match said {
            Some(uri) => Ok(uri),
            None => match std::env::var(env::MLFLOW_TRACKING_URI) {
                Ok(uri) => address(&uri),
                Err(_) => Err((
                    "where is its server?".to_owned(),
                    "say `mlflow: {uri: http://host:5000}`, or set `MLFLOW_TRACKING_URI`"
                        .to_owned(),
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

    /// Refuses secrets among the variables of the job and of its roles.
    fn open_secrets(&mut self, map: &Map) {
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
                    let what = format!("`{}` would be seen by whoever sees the job", key.name);
                    let hint =
                        "put it into a file of your own: `mlflow: {token_file: ~/.mlflow-token}`";
                    self.reject(&key.at, &format!("{path}.{}", key.name), what, hint);
                }
            }
        }
    }

    fn run_tags(&mut self, node: &Node) -> BTreeMap<String, String> {
        let mut tags = BTreeMap::new();
        let all = self.entries(node, "mlflow.tags");
        if all.len() > TAGS_MAX {
            let what = format!("there are {} tags; {TAGS_MAX} is the most", all.len());
            self.reject(&node.at, "mlflow.tags", what, "leave some out");
            return tags;
        }
        for (key, value) in all {
            let path = format!("mlflow.tags.{}", key.name);
            if let Err((what, hint)) = tag(&key.name) {
                self.reject(&key.at, &path, what, hint);
            } else if let Some(value) = self.value_of(value, &path, tagged) {
                tags.insert(key.name.clone(), value);
            }
        }
        tags
    }
}

/// What is in a map; whatever else it is, is complained about elsewhere.
fn entries(node: Option<&Node>) -> &[(Key, Node)] {
    match node.map(|node| &node.value) {
        Some(Value::Map(entries)) => entries,
        _ => &[],
    }
}

/// An address of the web, without a secret in it.
fn address(text: &str) -> Result<String, Rejection> {
    let no_address = |why: &str| {
        let hint = "write it as `http://host:5000` or `https://host/path`";
        Err((format!("`{text}` {why}"), hint.to_owned()))
    };
    let authority = text.split_once("://").map_or(text, |(_, rest)| rest);
    let authority = authority.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        let what = "an address with a password in it would be seen by whoever sees the job";
        let hint = "say `user`, and put the password into a `token_file`";
        return Err((what.to_owned(), hint.to_owned()));
    }
    if text.contains(['?', '#']) {
        let what = "what stands behind a `?` or `#` would be seen by whoever sees the job, and not be sent";
        let hint = "write the address without it, and put a token into a `token_file`";
        return Err((what.to_owned(), hint.to_owned()));
    }
    if !["http://", "https://"].iter().any(|it| text.starts_with(it)) {
        let what = format!("`{text}` begins with neither `http://` nor `https://`");
        let hint = "masters and tasks reach a server (`mlflow server`), and no files of yours";
        return Err((what, hint.to_owned()));
    }
    let Ok(uri) = text.parse::<Uri>() else {
        return no_address("is no address");
    };
    if uri.host().is_none_or(str::is_empty) {
        return no_address("has no host");
    }
    // What follows the last colon, unless that is inside the brackets of an address.
    let port = authority.rsplit_once(':').map(|(_, port)| port);
    let port = port.filter(|port| !port.ends_with(']'));
    if port.is_some_and(|port| port.parse::<u16>().is_err()) {
        return no_address("has no proper port");
    }
    Ok(text.trim_end_matches('/').to_owned())
}

fn name(text: &str) -> Result<String, Rejection> {
    let hint = format!("write from 1 to {NAME_MAX} letters on one line");
    let letters = text.chars().count();
    match text.trim().is_empty() || letters > NAME_MAX || text.chars().any(char::is_control) {
        true => Err(("MLflow takes no such name".to_owned(), hint)),
        false => Ok(text.to_owned()),
    }
}

fn user(text: &str) -> Result<String, Rejection> {
    match text.contains(':') {
        // It ends where the password begins.
        true => Err((
            format!("`{text}` has a colon in it"),
            "name the user alone, and put the password into a `token_file`".to_owned(),
        )),
        false => name(text),
    }
}

/// The name of a tag is a path without a detour.
fn tag(text: &str) -> Result<(), Rejection> {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "-_./ ".contains(letter);
    let plain = |part: &str| !["", ".", ".."].contains(&part);
    if text == "ydl.job" {
        let hint = "leave it out, or choose another name";
        return Err(("it is how masters find their run".to_owned(), hint.to_owned()));
    }
    match text.len() <= NAME_MAX && text.chars().all(fits) && text.split('/').all(plain) {
        true => Ok(()),
        false => Err((
            "MLflow takes no tag of that name".to_owned(),
            "use letters from a to z, digits, spaces, `-`, `_`, `.`, and `/` between them"
                .to_owned(),
        )),
    }
}

fn tagged(text: &str) -> Result<String, Rejection> {
    match text.chars().count() > VALUE_MAX {
        true => Err((
            format!("it has more than {VALUE_MAX} letters"),
            "MLflow takes no longer value of a tag".to_owned(),
        )),
        false => Ok(text.to_owned()),
    }
}

/// A file that can be read. What is in it is read when the job is submitted.
fn token(path: &str, base: &str) -> Result<String, Rejection> {
    let hint = || "name a file that holds one line: the token, or the password".to_owned();
    let whole = match (path.strip_prefix("~/"), std::env::var("HOME")) {
        (Some(rest), Ok(home)) => format!("{home}/{rest}"),
        _ => absolute(path, base),
    };
    match fs::metadata(&whole) {
        Ok(found) if !found.is_file() => Err((format!("`{path}` is no file"), hint())),
        Ok(found) if found.len() > TOKEN_BYTES_MAX => {
            Err((format!("`{path}` is too large for a token"), hint()))
        }
        Ok(_) => Ok(whole),
        Err(error) => Err((format!("`{path}` cannot be read: {}", reason(&error)), hint())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_one_that_a_master_can_use_and_everybody_may_see() {
        for good in ["http://host", "https://host:443/a/b", "http://[::1]:5000", "http://[::1]"] {
            assert_eq!(address(good).unwrap(), good);
        }
        assert_eq!(address("http://host/").unwrap(), "http://host");
        for (bad, what) in [
            ("http://", "is no address"),
            ("http://:5000", "has no host"),
            ("http://a b", "is no address"),
            ("http://host:port", "no"),
            ("http://host:99999", "no"),
            ("mlruns", "begins with neither"),
            ("databricks://x", "begins with neither"),
        ] {
            let (said, hint) = address(bad).unwrap_err();
            assert!(said.contains(what) && said.contains(bad), "{said}");
            assert!(!hint.is_empty());
        }
        // A secret is not said again, wherever it stands.
        for secret in [
            "http://me:word@host",
            "HTTP://me:word@host",
            "me:word@host",
            "http://host/?token=word",
            "http://host#word",
        ] {
            let (said, hint) = address(secret).unwrap_err();
            assert!(!said.contains("word=") && !said.contains("=word"), "{said}");
            assert!(said.contains("would be seen"), "{said}");
            assert!(!hint.is_empty());
        }
    }

    #[test]
    fn what_mlflow_refuses_is_refused_here() {
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
        assert!(tagged(&"x".repeat(5001)).is_err());
    }
}
