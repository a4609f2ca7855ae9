//! Jobs from the command line: `--set` overrides, and flags instead of a file.

use super::{
    diagnostic::{Diagnostic, Diagnostics, Location},
    load::{Source, valid_name},
    tree::{self, Key, Node, Value},
};
use std::path::Path;

/// Sets `a.b.c=VALUE` in the tree. The value is YAML; names in the key may be quoted.
pub(crate) fn set(
    root: &mut Node,
    assignment: &str,
    diagnostics: &mut Vec<Diagnostic>,
) -> Result<(), Diagnostic> {
    let at = Location::flag(format!("--set {assignment}"));
    let Some((path, value)) = split_assignment(assignment) else {
        let what = "missing `=`";
        return Err(Diagnostic::new(at, what).hint("write `--set roles.worker.instances=4`"));
    };
    let location = |_, _| at.clone();
    let value = tree::parse(value, location, diagnostics)?;
    let value = value.unwrap_or(Node { at: at.clone(), value: Value::Null });
    put(root, path.trim(), value, &at)
}

/// Splits key and value at the first `=` outside of quotes.
fn split_assignment(assignment: &str) -> Option<(&str, &str)> {
    let mut from = 0;
    loop {
        if let Some((_, rest)) = quoted(&assignment[from..]) {
            from = assignment.len() - rest.len();
        }
        let at = from + assignment[from..].find(['.', '='])?;
        if assignment[at..].starts_with('=') {
            return Some((&assignment[..at], &assignment[at + 1..]));
        }
        from = at + 1;
    }
}

/// Splits a quoted name from the start of a key.
fn quoted(path: &str) -> Option<(&str, &str)> {
    let quote = path.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let (name, rest) = path[1..].split_once(quote)?;
    let ends = rest.is_empty() || rest.starts_with(['.', '=']);
    ends.then_some((name, rest))
}

fn put(node: &mut Node, path: &str, value: Node, at: &Location) -> Result<(), Diagnostic> {
    if node.value == Value::Null {
        node.value = Value::Map(Vec::new());
    }
    let Value::Map(entries) = &mut node.value else {
        let what = format!("cannot set `{path}` in a value that is not a map");
        return Err(Diagnostic::new(at.clone(), what));
    };
    // Existing names determine where a name with dots ends.
    let is_here = |name: &str| {
        path == name || path.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'))
    };
    let known = entries.iter().map(|(key, _)| key.name.clone()).filter(|name| is_here(name));
    let (name, rest) = match (known.max_by_key(String::len), quoted(path)) {
        (Some(name), _) => {
            let rest = &path[name.len()..];
            (name, rest)
        }
        (None, Some((name, rest))) => (name.to_owned(), rest),
        (None, None) => {
            let name = path.split('.').next().unwrap_or(path);
            (name.to_owned(), &path[name.len()..])
        }
    };
    if name.is_empty() {
        return Err(Diagnostic::new(at.clone(), "empty key"));
    }
    let index = match entries.iter().position(|(key, _)| key.name == name) {
        Some(index) => index,
        None => {
            entries.push((Key { at: at.clone(), name: name.clone() }, Node::map(at.clone())));
            entries.len() - 1
        }
    };
    let (key, inner) = &mut entries[index];
    match rest.strip_prefix('.') {
        Some(rest) => put(inner, rest, value, at),
        None => {
            *inner = value;
            key.at = at.clone();
            Ok(())
        }
    }
}

/// Job described by flags.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// `--name`.
    pub name: Option<String>,
    /// `--framework`.
    pub framework: Option<String>,
    /// `--environment`.
    pub environment: Option<String>,
    /// `--instances` or `--workers`.
    pub workers: Option<String>,
    /// `--servers`.
    pub servers: Option<String>,
    /// `--memory`.
    pub memory: Option<String>,
    /// `--vcores`.
    pub vcores: Option<String>,
    /// `--gpus`.
    pub gpus: Option<String>,
    /// `--env K=V`.
    pub env: Vec<String>,
    /// `--files F`.
    pub files: Vec<String>,
    /// `--output A=B`.
    pub outputs: Vec<String>,
    /// Words after `--`.
    pub command: Vec<String>,
}

impl Flags {
    /// Returns the first flag that is set.
    pub fn first(&self) -> Option<&'static str> {
        let given = [
            ("--name", self.name.is_some()),
            ("--framework", self.framework.is_some()),
            ("--environment", self.environment.is_some()),
            ("--instances", self.workers.is_some()),
            ("--servers", self.servers.is_some()),
            ("--memory", self.memory.is_some()),
            ("--vcores", self.vcores.is_some()),
            ("--gpus", self.gpus.is_some()),
            ("--env", !self.env.is_empty()),
            ("--files", !self.files.is_empty()),
            ("--output", !self.outputs.is_empty()),
        ];
        given.iter().find(|(_, given)| *given).map(|(flag, _)| *flag)
    }

    /// Returns the job: a role `worker`, and `server` with `--servers`.
    pub fn source(&self) -> Result<Source, Diagnostics> {
        let mut diagnostics = Vec::new();
        let mut root = Node::map(Location::Whole);
        let mut put_at = |path: &str, value: Node| {
            let at = value.at.clone();
            // The tree contains only maps created here: this cannot fail.
            let _ = put(&mut root, path, value, &at);
        };
        let plain = |flag: &str, text: &String| {
            Node::plain(Location::flag(format!("{flag} {text}")), text.clone())
        };
        let job = [
            ("name", &self.name),
            ("framework", &self.framework),
            ("environment", &self.environment),
        ];
        for (key, value) in job {
            if let Some(text) = value {
                put_at(key, plain(&format!("--{key}"), text));
            }
        }
        let words = self.command.iter().map(|word| Node::text(Location::Whole, word.clone()));
        if !self.command.is_empty() {
            put_at(
                "roles.worker.run",
                Node { at: Location::Whole, value: Value::List(words.collect()) },
            );
        } else {
            put_at("roles.worker", Node::map(Location::Whole));
        }
        let counts =
            [("worker", "--instances", &self.workers), ("server", "--servers", &self.servers)];
        for (role, flag, value) in counts {
            if let Some(text) = value {
                put_at(&format!("roles.{role}.instances"), plain(flag, text));
            }
            if value.is_none() && role != "worker" {
                continue;
            }
            let sizes = [("memory", &self.memory), ("vcores", &self.vcores), ("gpus", &self.gpus)];
            for (key, value) in sizes {
                // Servers get no GPUs.
                if let Some(text) = value.as_ref().filter(|_| key != "gpus" || role == "worker") {
                    put_at(&format!("roles.{role}.{key}"), plain(&format!("--{key}"), text));
                }
            }
        }
        let pairs = [
            ("env", "--env", "NAME=VALUE", &self.env),
            ("outputs", "--output", "FROM=TO", &self.outputs),
        ];
        for (key, flag, form, values) in pairs {
            let mut entries: Vec<(Key, Node)> = Vec::new();
            for text in values {
                let at = Location::flag(format!("{flag} {text}"));
                match text.split_once('=') {
                    Some((name, value)) => {
                        entries.retain(|(key, _)| key.name != name);
                        let key = Key { at: at.clone(), name: name.to_string() };
                        entries.push((key, Node::text(at, value)));
                    }
                    None => {
                        let what = "missing `=`";
                        diagnostics
                            .push(Diagnostic::new(at, what).hint(format!("write `{flag} {form}`")));
                    }
                }
            }
            if !entries.is_empty() {
                put_at(key, Node { at: Location::Whole, value: Value::Map(entries) });
            }
        }
        if !self.files.is_empty() {
            let files = self
                .files
                .iter()
                .map(|file| Node::text(Location::flag(format!("--files {file}")), file.clone()));
            put_at("files", Node { at: Location::Whole, value: Value::List(files.collect()) });
        }
        Source::of_flags(root, self.default_name(), diagnostics)
    }

    /// Derives the job's name from the script, or from the program.
    fn default_name(&self) -> String {
        let script =
            self.command.iter().find(|word| word.ends_with(".py") || word.ends_with(".sh"));
        let stem = script.or(self.command.first()).and_then(|word| Path::new(word).file_stem());
        valid_name(&stem.map(|stem| stem.to_string_lossy()).unwrap_or_default())
    }
}
