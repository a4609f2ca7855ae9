//! Reads inputs and outputs.

use super::{
    fields::{Map, Reader, boolean, choice},
    files::{absolute, hdfs_url},
    tree::{Node, Value},
    units::{Rejection, span},
};
use ydl_core::{
    RoleName, TaskId,
    spec::{ExistingPolicy, Input, InputForm, Output, OutputScope},
};

pub const FORMS: [(&str, InputForm); 4] = [
    ("copy", InputForm::Copy),
    ("split", InputForm::Split),
    ("list", InputForm::List),
    ("split-list", InputForm::SplitList),
];
pub const EXISTING: [(&str, ExistingPolicy); 3] = [
    ("fail", ExistingPolicy::Fail),
    ("overwrite", ExistingPolicy::Overwrite),
    ("number", ExistingPolicy::Number),
];

impl Reader {
    pub fn inputs(&mut self, map: &Map, base: &str) -> Vec<Input> {
        let Some(node) = map.find("inputs") else {
            return Vec::new();
        };
        let mut inputs = Vec::new();
        for (name, node) in self.entries(node, "inputs") {
            inputs.extend(self.input(&name.name, node, base));
        }
        inputs
    }

    /// Reads `name: source`, or a map.
    fn input(&mut self, name: &str, node: &Node, base: &str) -> Option<Input> {
        let path = format!("inputs.{name}");
        let mut input = Input {
            name: name.to_string(),
            source: String::new(),
            form: InputForm::Copy,
            roles: Vec::new(),
            allow_empty: false,
        };
        let Value::Map(_) = &node.value else {
            input.source = self.value_of(node, &path, |text| source(text, base))?;
            return Some(input);
        };
        let map = self.map(node, &path, "inputs.*");
        if map.find("source").is_none() && !self.reported.contains(&map.key("source")) {
            let hint = "add the source: `{source: hdfs:///data/train, as: split}`";
            self.reject(&node.at, &path, "missing `source`", hint);
        }
        input.form = self.value(&map, "as", choice(&FORMS)).unwrap_or(input.form);
        for item in self.list(&map, "roles") {
            let role = self.text_of(item, &map.key("roles"));
            input.roles.extend(role.map(RoleName::from));
        }
        input.allow_empty = self.value(&map, "allow_empty", boolean).unwrap_or(false);
        input.source = self.value(&map, "source", |text| source(text, base))?;
        Some(input)
    }

    pub fn outputs(&mut self, map: &Map, base: &str) -> Vec<Output> {
        let Some(node) = map.find("outputs") else {
            return Vec::new();
        };
        let mut outputs = Vec::new();
        for (from, node) in self.entries(node, "outputs") {
            outputs.extend(self.output(&from.name, node, base));
        }
        outputs
    }

    /// Reads `path: destination`, or a map.
    fn output(&mut self, from: &str, node: &Node, base: &str) -> Option<Output> {
        let cluster = self.cluster;
        let path = format!("outputs.{from}");
        let read = |to: &str| destination(to, base, cluster);
        let Value::Map(_) = &node.value else {
            let to = self.value_of(node, &path, read)?;
            return Some(Output::new(from, to));
        };
        let map = self.map(node, &path, "outputs.*");
        if map.find("to").is_none() && !self.reported.contains(&map.key("to")) {
            let hint = "add the destination: `{to: out, from: worker:0}`";
            self.reject(&node.at, &path, "missing `to`", hint);
        }
        let scope = self.value(&map, "from", scope).unwrap_or_default();
        let every = self.value(&map, "every", span);
        let existing = self.value(&map, "existing", choice(&EXISTING));
        let to = self.value(&map, "to", read)?;
        Some(Output {
            scope,
            every,
            existing: existing.unwrap_or_default(),
            ..Output::new(from, to)
        })
    }
}

/// Parses a role, a task, or `all`.
fn scope(text: &str) -> Result<OutputScope, Rejection> {
    if text == "all" {
        return Ok(OutputScope::All);
    }
    if !text.contains(':') {
        return Ok(OutputScope::Role(RoleName::from(text)));
    }
    let task = text.parse::<TaskId>();
    task.map(OutputScope::Task).map_err(|what| (what, "expected a task, a role or `all`".into()))
}

/// Parses the source of an input. Its existence is checked at submit.
fn source(text: &str, base: &str) -> Result<String, Rejection> {
    match text.split_once("://") {
        Some(("hdfs", _)) => hdfs_url(text).map(|url| url.trim_end_matches('/').to_string()),
        Some((scheme, _)) => {
            let what = format!("inputs from `{scheme}://` are not supported");
            Err((what, "use a local path, or one in HDFS".to_string()))
        }
        None => Ok(absolute(text.trim_end_matches('/'), base)),
    }
}

/// Parses a destination. On a cluster a relative one is kept: it is below the user's home directory in HDFS.
fn destination(to: &str, base: &str, cluster: bool) -> Result<String, Rejection> {
    match to.split_once("://") {
        Some(("hdfs", _)) => hdfs_url(to),
        Some(("file", path)) if cluster && path.starts_with('/') => Ok(to.to_string()),
        Some((scheme, _)) => {
            let what = format!("outputs to `{scheme}://` are not supported");
            let hint = match cluster {
                true => "use a path in HDFS, such as `hdfs:///user/me/out`",
                false => "use a local directory, or a path in HDFS",
            };
            Err((what, hint.into()))
        }
        None if cluster => Ok(to.strip_prefix("./").unwrap_or(to).to_string()),
        None => Ok(absolute(to, base)),
    }
}
