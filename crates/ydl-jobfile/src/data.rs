//! Reading what data comes to tasks, and what goes from them.

use super::{
    fields::{Map, Reader, choice, truth},
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

    /// `name: source`, or a map.
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
            let hint = "say where it comes from: `{source: hdfs:///data/train, as: split}`";
            self.reject(&node.at, &path, "there is no `source`", hint);
        }
        input.form = self.value(&map, "as", choice(&FORMS)).unwrap_or(input.form);
        for item in self.list(&map, "roles") {
            let role = self.text_of(item, &map.key("roles"));
            input.roles.extend(role.map(RoleName::from));
        }
        input.allow_empty = self.value(&map, "allow_empty", truth).unwrap_or(false);
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

    /// `path: destination`, or a map.
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
            let hint = "say where it goes: `{to: out, from: worker:0}`";
            self.reject(&node.at, &path, "there is no `to`", hint);
        }
        let whose = self.value(&map, "from", whose).unwrap_or_default();
        let every = self.value(&map, "every", span);
        let existing = self.value(&map, "existing", choice(&EXISTING));
        let to = self.value(&map, "to", read)?;
        Some(Output {
            scope: whose,
            every,
            existing: existing.unwrap_or_default(),
            ..Output::new(from, to)
        })
    }
}

/// A role, a task, or `all`.
fn whose(text: &str) -> Result<OutputScope, Rejection> {
    if text == "all" {
        return Ok(OutputScope::All);
    }
    if !text.contains(':') {
        return Ok(OutputScope::Role(RoleName::from(text)));
    }
    let task = text.parse::<TaskId>();
    task.map(OutputScope::Task).map_err(|what| (what, "name a task, a role or `all`".into()))
}

/// Where data comes from. What is there is looked at at submit.
fn source(text: &str, base: &str) -> Result<String, Rejection> {
    match text.split_once("://") {
        Some(("hdfs", _)) => hdfs_url(text).map(|url| url.trim_end_matches('/').to_string()),
        Some((scheme, _)) => {
            let what = format!("inputs cannot come from `{scheme}://`");
            Err((what, "name a local path or one in HDFS".to_string()))
        }
        None => Ok(absolute(text.trim_end_matches('/'), base)),
    }
}

/// On a cluster a relative destination is below the user's home directory in HDFS, and left as it is.
fn destination(to: &str, base: &str, cluster: bool) -> Result<String, Rejection> {
    match to.split_once("://") {
        Some(("hdfs", _)) => hdfs_url(to),
        Some(("file", path)) if cluster && path.starts_with('/') => Ok(to.to_string()),
        Some((scheme, _)) => {
            let what = format!("outputs cannot go to `{scheme}://`");
            let hint = match cluster {
                true => "name a place in HDFS, such as `hdfs:///user/me/out`",
                false => "name a local directory, or a place in HDFS",
            };
            Err((what, hint.into()))
        }
        None if cluster => Ok(to.strip_prefix("./").unwrap_or(to).to_string()),
        None => Ok(absolute(to, base)),
    }
}
