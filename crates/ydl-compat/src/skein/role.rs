//! Builder of a role of the job.

use super::{
    DEFAULT_LOCATION,
    context::{Context, MapBuilder, find, text_of},
    files::{self, ServiceFile},
    quantities::{count, memory},
};
use crate::container_runtime::{self, RuntimeVariable};
use ydl_jobfile::{Node, Value};

pub(crate) const RESOURCES: &[&str] = &["memory", "vcores", "gpus", "fpgas"];
const FPGA: &str = "yarn.io/fpga";
/// Sets the variables by which scripts find their application and container, and makes ydl's `skein` the first in Python's
/// path, and the last in the path of programs.
const PREAMBLE: &str = r#"export SKEIN_APPLICATION_ID="$YDL_JOB" SKEIN_CONTAINER_ID="${YDL_ROLE}_$YDL_INDEX" SKEIN_APPMASTER_ADDRESS="${YDL_MASTER#https://}"
ydl python-package .skein && export PYTHONPATH="$PWD/.skein${PYTHONPATH:+:$PYTHONPATH}" PATH="$PATH:$PWD/.skein/bin""#;

/// Builder of a role.
pub(crate) struct Role {
    pub name: String,
    pub tree: MapBuilder,
    script: Option<(Node, String)>,
    env: MapBuilder,
    /// Name in the specification.
    pub service: String,
    pub depends: Vec<String>,
}

/// Node of a default value.
const DEFAULT_NODE: Node = Node { at: DEFAULT_LOCATION, value: Value::Null };

impl Role {
    /// Creates a role without keys at the location of a node.
    pub(crate) fn new(name: String, node: &Node) -> Role {
        Role {
            name,
            tree: MapBuilder::at(&node.at),
            script: None,
            env: MapBuilder::at(&node.at),
            service: String::new(),
            depends: Vec::new(),
        }
    }

    /// Builds the node of the role. Its script first links files that have other names in the job.
    pub(crate) fn finish(mut self, files: &[ServiceFile]) -> Node {
        if let Some((written, script)) = self.script {
            let mut lines = vec![PREAMBLE.to_owned()];
            lines.extend(files::link_commands(&self.name, files));
            lines.push(script);
            let word = |text: String| Node::text(written.at.clone(), text);
            let words = ["bash".to_owned(), "-c".to_owned(), lines.join("\n")];
            let value = Value::List(words.map(word).into());
            let at = written.at.clone();
            self.tree.put("run", Node { at, value });
        }
        self.tree.put("env", self.env.node());
        self.tree.node()
    }

    /// Sets memory, cores and other resources, with variables for the first two.
    pub(crate) fn set_resources(
        &mut self,
        context: &mut Context,
        path: &str,
        node: Option<&Node>,
        default_mib: Option<u64>,
    ) {
        let path = format!("{path}.resources");
        let Some(node) = node else {
            if let Some(mib) = default_mib {
                self.set_memory(mib, &DEFAULT_NODE);
            }
            return;
        };
        context.known_entries(node, &path, RESOURCES);
        let mib = match find(node, "memory") {
            Some(it) => memory(context, it, &format!("{path}.memory")),
            None if default_mib.is_none() => {
                context.error(
                    &node.at,
                    format!("`{path}` has no `memory`"),
                    "add one, such as `2 GiB`",
                );
                None
            }
            None => default_mib,
        };
        if let Some(mib) = mib {
            self.set_memory(mib, find(node, "memory").unwrap_or(node));
        }
        let vcores = find(node, "vcores");
        if vcores.is_none() && default_mib.is_none() {
            context.error(&node.at, format!("`{path}` has no `vcores`"), "add them, such as `1`");
        }
        let vcores = vcores.cloned().unwrap_or_else(|| Node::plain(DEFAULT_LOCATION, "1"));
        self.default_variable(
            "SKEIN_RESOURCE_VCORES",
            text_of(&vcores).unwrap_or_default().to_owned(),
        );
        self.tree.put("vcores", vcores);
        if let Some(gpus) = find(node, "gpus") {
            self.tree.put("gpus", gpus.clone());
        }
        if let Some(fpgas) = find(node, "fpgas")
            && count(context, fpgas, &format!("{path}.fpgas")).is_some_and(|n| n > 0)
        {
            self.tree.put_in("resources", FPGA, fpgas.clone());
        }
    }

    fn set_memory(&mut self, mib: u64, from: &Node) {
        let text = Node::text(from.at.clone(), format!("{mib} MiB"));
        self.tree.put("memory", text);
        self.default_variable("SKEIN_RESOURCE_MEMORY", mib.to_string());
    }

    fn default_variable(&mut self, name: &str, value: String) {
        self.env.put(name, Node::text(DEFAULT_LOCATION, value));
    }

    /// Sets the variables of its scripts, and translates those of YARN's container runtime.
    pub(crate) fn set_variables(&mut self, context: &mut Context, path: &str, node: Option<&Node>) {
        let Some(node) = node else {
            return;
        };
        let path = format!("{path}.env");
        let mut runtime = Vec::new();
        for (key, value) in context.entries(node, &path) {
            if !container_runtime::is_runtime_variable(&key.name) {
                self.env.replace(&key.name, value.clone());
                continue;
            }
            let text = context.text(value, &format!("{path}.{}", key.name));
            runtime.extend(text.map(|text| RuntimeVariable {
                name: key.name.clone(),
                value: text,
                at: value.at.clone(),
            }));
        }
        let keys = container_runtime::translate(&runtime, false);
        context.diagnostics.extend(keys.diagnostics);
        for (key, node) in keys.keys {
            self.tree.put_in("environment", key, node);
        }
    }

    /// Returns the script with its location.
    pub(crate) fn script(&self) -> Option<(&Node, &str)> {
        self.script.as_ref().map(|(written, script)| (written, script.as_str()))
    }

    /// Sets the script of the role.
    pub(crate) fn set_script(
        &mut self,
        context: &mut Context,
        path: &str,
        written: &Node,
        script: String,
    ) {
        if script.trim().is_empty() {
            context.error(&written.at, format!("`{path}` is empty"), "write the commands to run");
            return;
        }
        self.script = Some((written.clone(), script));
    }
}
