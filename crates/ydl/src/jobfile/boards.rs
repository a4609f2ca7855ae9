//! Reading what is to be shown of a job while it runs: TensorBoard, as a role beside the job's own, and MLflow.

use super::{
    fields::{Map, Reader, count, truth},
    files::{absolute, hdfs_url},
    roles::BESIDE_RESTART,
    tree::Value,
    units::{Refusal, size_mib},
};
use crate::{env, os::reason};
use std::{collections::BTreeMap, fs};
use ydl_core::{
    RoleName,
    spec::{Command, Completion, Mlflow, Resources, RoleSpec},
};

/// Variables with which MLflow's own programs are given secrets. In a job they would be seen by whoever sees its job file.
const SECRETS: [&str; 2] = ["MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_PASSWORD"];
/// No token comes near this.
const TOKEN_BYTES_MAX: u64 = 64 << 10;

const ROLE: &str = "tensorboard";
/// What TensorBoard needs with a few runs.
const MEMORY_MIB: u64 = 1024;

impl Reader {
    /// `true`, a directory, or a map.
    pub fn tensorboard(&mut self, map: &Map, base: &str) -> Option<RoleSpec> {
        let node = map.find(ROLE)?;
        let cluster = self.cluster;
        let read = |text: &str| logdir(text, base, cluster);
        let (mut memory_mib, mut vcores) = (MEMORY_MIB, 1);
        let mut wanted = true;
        let dir = match &node.value {
            Value::Map(_) => {
                let map = self.map(node, ROLE, ROLE);
                memory_mib = self.value(&map, "memory", size_mib).unwrap_or(memory_mib);
                vcores = self.value(&map, "vcores", count).unwrap_or(vcores);
                self.value(&map, "logdir", read)
            }
            Value::Scalar { text, .. } if truth(text).is_ok() => {
                wanted = self.value_of(node, ROLE, truth).unwrap_or_default();
                None
            }
            Value::Scalar { .. } | Value::Null | Value::List(_) => self.value_of(node, ROLE, read),
        };
        let said = dir.map(|dir| format!(" --logdir {}", quoted(&dir)));
        let script = format!("exec \"$YDL_BINARY\" board{}", said.unwrap_or_default());
        wanted.then(|| RoleSpec {
            name: RoleName::from(ROLE),
            instances: 1,
            processes: 1,
            elastic: None,
            resources: Resources {
                memory_mib,
                vcores,
                gpus: 0,
                other: BTreeMap::new(),
            },
            command: Command::Shell(script),
            environment: None,
            env: BTreeMap::new(),
            restart: BESIDE_RESTART,
            completion: Completion::Beside,
            tolerate: 0,
            memory_growth: None,
            ports: vec!["http".to_owned()],
            after: Vec::new(),
            placement: Default::default(),
        })
    }
}

impl Reader {
    /// `true`, an address, or a map.
    pub fn mlflow(&mut self, map: &Map, base: &str) -> Option<Mlflow> {
        let node = map.find("mlflow")?;
        let secret = map.find("env").and_then(|env| match &env.value {
            Value::Map(entries) => entries
                .iter()
                .find(|(key, _)| SECRETS.contains(&key.name.as_str())),
            _ => None,
        });
        if let Some((key, _)) = secret {
            let what = format!("`{}` would be seen by whoever sees the job", key.name);
            let hint = "put it into a file of your own: `mlflow: {token_file: ~/.mlflow-token}`";
            self.refuse(&key.at, &format!("env.{}", key.name), what, hint);
        }
        let mut wanted = true;
        let mut found = Mlflow {
            uri: String::new(),
            experiment: self
                .text(map, "name")
                .unwrap_or_else(|| "Default".to_owned()),
            run_name: None,
            tags: BTreeMap::new(),
            user: None,
            token_file: None,
        };
        let said = match &node.value {
            Value::Map(_) => {
                let own = self.map(node, "mlflow", "mlflow");
                found.experiment = self.text(&own, "experiment").unwrap_or(found.experiment);
                found.run_name = self.text(&own, "run_name");
                found.user = self.text(&own, "user");
                if let Some(tags) = own.find("tags") {
                    for (name, value) in self.entries(tags, "mlflow.tags") {
                        let path = format!("mlflow.tags.{}", name.name);
                        if let Some(value) = self.text_of(value, &path) {
                            found.tags.insert(name.name.clone(), value);
                        }
                    }
                }
                found.token_file = self.value(&own, "token_file", |path| token(path, base));
                match own.find("uri") {
                    Some(_) => Some(self.value(&own, "uri", address)?),
                    None => None,
                }
            }
            Value::Scalar { text, .. } if truth(text).is_ok() => {
                wanted = self.value_of(node, "mlflow", truth)?;
                None
            }
            _ => Some(self.value_of(node, "mlflow", address)?),
        };
        if !wanted {
            return None;
        }
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
                self.refuse(&node.at, "mlflow.uri", what, hint);
                None
            }
        }
    }
}

/// An address of the web, without a secret in it.
fn address(text: &str) -> Result<String, Refusal> {
    let rest = ["http://", "https://"]
        .iter()
        .find_map(|scheme| text.strip_prefix(scheme));
    let Some(rest) = rest else {
        let what = format!("`{text}` begins with neither `http://` nor `https://`");
        let hint = "masters and tasks reach a server (`mlflow server`), and no files of yours";
        return Err((what, hint.to_owned()));
    };
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    if authority.contains('@') {
        let what = "an address with a password in it would be seen by whoever sees the job";
        let hint = "say `user`, and put the password into a `token_file`";
        return Err((what.to_owned(), hint.to_owned()));
    }
    if authority.is_empty() || text.contains(char::is_whitespace) {
        return Err((format!("`{text}` is no address"), String::new()));
    }
    Ok(text.trim_end_matches('/').to_owned())
}

/// A file that can be read. What is in it is read when the job is submitted.
fn token(path: &str, base: &str) -> Result<String, Refusal> {
    let whole = match (path.strip_prefix("~/"), std::env::var("HOME")) {
        (Some(rest), Ok(home)) => format!("{home}/{rest}"),
        _ => absolute(path, base),
    };
    match fs::metadata(&whole) {
        Ok(found) if !found.is_file() => Err((format!("`{path}` is no file"), String::new())),
        Ok(found) if found.len() > TOKEN_BYTES_MAX => {
            Err((format!("`{path}` is too large for a token"), String::new()))
        }
        Ok(_) => Ok(whole),
        Err(error) => Err((
            format!("`{path}` cannot be read: {}", reason(&error)),
            String::new(),
        )),
    }
}

/// On a cluster a path is one that all nodes share: on the nodes there is no directory that it could be relative to.
fn logdir(text: &str, base: &str, cluster: bool) -> Result<String, Refusal> {
    match text.split_once("://") {
        Some(("hdfs", _)) => hdfs_url(text),
        Some((scheme, _)) => {
            let what = format!("TensorBoard cannot look into `{scheme}://`");
            Err((what, "name a directory, or one in HDFS".to_owned()))
        }
        None if cluster && !text.starts_with('/') => {
            let what = format!("`{text}` is relative, and there is no such directory on the nodes");
            let hint = "name one in HDFS, or a path that all nodes share; without `logdir` it looks into `YDL_CHECKPOINT`";
            Err((what, hint.to_owned()))
        }
        None => Ok(absolute(text, base)),
    }
}

/// One word for a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
