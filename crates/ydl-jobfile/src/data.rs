//! Reads and prints inputs and outputs.

use super::{
    fields::{Map, Reader},
    files::{absolute, hdfs_url},
    formats::{Choice, Context, Format, Scalar, text_of},
    keys::{INPUT, OUTPUT},
    printer::{YamlValue, text},
    tree::{Node, Value},
    units::Rejection,
};
use ydl_core::{
    JobSpecBuilder, RoleName, TaskId,
    spec::{ExistingPolicy, Input, InputForm, Output, OutputScope},
};

/// Part of an input that a task gets.
pub(crate) const FORM: Choice<InputForm> = Choice(&[
    ("copy", InputForm::Copy),
    ("split", InputForm::Split),
    ("list", InputForm::List),
    ("split-list", InputForm::SplitList),
]);

/// Policy for an existing destination.
pub(crate) const EXISTING: Choice<ExistingPolicy> = Choice(&[
    ("fail", ExistingPolicy::Fail),
    ("overwrite", ExistingPolicy::Overwrite),
    ("number", ExistingPolicy::Number),
]);

/// Source of an input.
pub(crate) const SOURCE: Scalar<String> = text_of("path", source);

/// Destination of an output.
pub(crate) const DESTINATION: Scalar<String> = text_of("destination", destination);

/// Tasks of an output: a role, a task, or `all`.
pub(crate) const SCOPE: Scalar<OutputScope> = Scalar {
    kind: "a task, a role or `all`",
    python: "str",
    parse: |text, _| scope(text),
    print: |scope| match scope {
        OutputScope::All => "all".to_string(),
        OutputScope::Role(role) => text(role.as_str()),
        OutputScope::Task(task) => task.to_string(),
    },
};

impl Reader {
    pub(crate) fn inputs(&mut self, map: &Map, job: &mut JobSpecBuilder) {
        let Some(node) = map.find("inputs") else {
            return;
        };
        for (name, node) in self.entries(node, "inputs") {
            job.inputs.extend(self.input(&name.name, node));
        }
    }

    /// Reads `name: source`, or a map.
    fn input(&mut self, name: &str, node: &Node) -> Option<Input> {
        let path = format!("inputs.{name}");
        let mut input = Input { name: name.to_string(), ..Input::default() };
        let Value::Map(_) = &node.value else {
            input.source = SOURCE.value(self, node, &path)?;
            return Some(input);
        };
        let map = self.map(node, &path, INPUT.path());
        if map.find("source").is_none() && !self.reported.contains(&map.key("source")) {
            let hint = "add the source: `{source: hdfs:///data/train, as: split}`";
            self.reject(&node.at, &path, "missing `source`", hint);
        }
        self.section(&map, &INPUT, &mut input);
        self.is_valid(&map, "source").then_some(input)
    }

    pub(crate) fn outputs(&mut self, map: &Map, job: &mut JobSpecBuilder) {
        let Some(node) = map.find("outputs") else {
            return;
        };
        for (from, node) in self.entries(node, "outputs") {
            job.outputs.extend(self.output(&from.name, node));
        }
    }

    /// Reads `path: destination`, or a map.
    fn output(&mut self, from: &str, node: &Node) -> Option<Output> {
        let path = format!("outputs.{from}");
        let Value::Map(_) = &node.value else {
            let to = DESTINATION.value(self, node, &path)?;
            return Some(Output::new(from, to));
        };
        let map = self.map(node, &path, OUTPUT.path());
        if map.find("to").is_none() && !self.reported.contains(&map.key("to")) {
            let hint = "add the destination: `{to: out, from: worker:0}`";
            self.reject(&node.at, &path, "missing `to`", hint);
        }
        let mut output = Output::new(from, "");
        self.section(&map, &OUTPUT, &mut output);
        self.is_valid(&map, "to").then_some(output)
    }

    /// Returns true if a required key is present and valid.
    fn is_valid(&self, map: &Map, name: &str) -> bool {
        map.find(name).is_some() && !self.reported.contains(&map.key(name))
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
fn source(text: &str, context: &Context) -> Result<String, Rejection> {
    match text.split_once("://") {
        Some(("hdfs", _)) => hdfs_url(text).map(|url| url.trim_end_matches('/').to_string()),
        Some((scheme, _)) => {
            let what = format!("inputs from `{scheme}://` are not supported");
            Err((what, "use a local path, or one in HDFS".to_string()))
        }
        None => Ok(absolute(text.trim_end_matches('/'), &context.base)),
    }
}

/// Parses a destination. On a cluster a relative one is kept: it is below the user's home directory in HDFS.
fn destination(to: &str, context: &Context) -> Result<String, Rejection> {
    let cluster = context.cluster;
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
        None => Ok(absolute(to, &context.base)),
    }
}

/// Prints all inputs.
pub(crate) fn print_inputs(job: &JobSpecBuilder) -> YamlValue {
    let input = |input: &Input| (input.name.clone(), INPUT.print(input));
    YamlValue::Block(job.inputs.iter().map(input).collect())
}

/// Prints all outputs, as `path: destination` if they have no options.
pub(crate) fn print_outputs(job: &JobSpecBuilder) -> YamlValue {
    let output = |output: &Output| {
        let plain = *output == Output::new(&output.from, &output.to);
        let printed = if plain { DESTINATION.print(&output.to) } else { OUTPUT.print(output) };
        (output.from.clone(), printed)
    };
    YamlValue::Block(job.outputs.iter().map(output).collect())
}
