//! Builder of a job file.

use super::{
    archive,
    caller::{CallerEnv, Cluster},
    parser::{FlagValue, ParsedArgs},
    setup_script::SetupScript,
    text::file_name,
};
use std::path::Path;
use ydl_jobfile::{
    Diagnostic, Diagnostics, Key, Location, Node, Source, Value, print_tree, size_mib, valid_name,
};

/// Order of the first keys of a printed job file; the rest keeps its order.
const FIRST_KEYS: [&str; 7] =
    ["name", "framework", "cluster_flags", "environment", "files", "roles", "restart"];
/// Endings of scripts, which name a job.
const SCRIPT_ENDINGS: [&str; 4] = [".py", ".sh", ".R", ".jar"];

/// Job file of a command line, with notes and errors.
#[derive(Clone, Debug)]
pub struct JobFileBuilder {
    root: Node,
    name: String,
    diagnostics: Vec<Diagnostic>,
    /// Cluster type of the job, if given.
    cluster: Option<Cluster>,
    /// True if the job runs on this machine.
    is_local: bool,
    /// Notes for the user.
    pub notes: Vec<String>,
    /// Script that prepares a task's directory.
    setup: SetupScript,
    /// True if archives or links add files of unknown names to a task's directory.
    has_unknown_files: bool,
}

impl JobFileBuilder {
    /// Creates an empty job file.
    pub fn empty() -> JobFileBuilder {
        JobFileBuilder {
            root: Node::map(Location::Whole),
            name: "job".to_owned(),
            diagnostics: Vec::new(),
            cluster: None,
            is_local: false,
            notes: Vec::new(),
            setup: SetupScript::default(),
            has_unknown_files: false,
        }
    }

    /// Sets the given cluster type, or else the default one.
    pub fn set_cluster(&mut self, given: Option<Cluster>, caller: &CallerEnv) {
        self.cluster = given;
        self.is_local = given.unwrap_or(caller.default_cluster) == Cluster::Local;
    }

    /// Returns the cluster type if it was given.
    pub fn given_cluster(&self) -> Option<Cluster> {
        self.cluster
    }

    /// Sets the value at these keys.
    pub fn put(&mut self, path: &[&str], value: Node) {
        let at = value.at.clone();
        put(&mut self.root, path, value, &at);
    }

    /// Sets the value of a flag, parsed as if it stood in a file.
    pub(crate) fn put_arg(&mut self, path: &[&str], arg: &FlagValue) {
        self.put(path, Node::plain(arg.location(), arg.value.as_str()));
    }

    /// Sets the value of a flag, if it was given.
    pub fn put_flag(&mut self, path: &[&str], args: &ParsedArgs, flag: &str) {
        if let Some(arg) = args.last(flag) {
            self.put_arg(path, arg);
        }
    }

    /// Sets a default value.
    pub(crate) fn put_default(&mut self, path: &[&str], value: impl ToString) {
        self.put(path, Node::plain(Location::Whole, value.to_string()));
    }

    /// Appends an item to a list that does not contain it.
    pub fn append(&mut self, path: &[&str], item: Node) {
        let (at, empty) = (item.at.clone(), Value::List(Vec::new()));
        let node = entry(&mut self.root, path, &at);
        if !matches!(node.value, Value::List(_)) {
            node.value = empty;
        }
        if let Value::List(items) = &mut node.value
            && !items.iter().any(|other| other.value == item.value)
        {
            items.push(item);
        }
    }

    /// Sets a variable of the job, or of a role. Later values win.
    pub fn variable(&mut self, role: Option<&str>, name: &str, value: &str, at: Location) {
        let value = Node::text(at, value);
        match role {
            Some(role) => self.put(&["roles", role, "env", name], value),
            None => self.put(&["env", name], value),
        }
    }

    /// Sets a variable that a flag gives as `NAME=VALUE`.
    pub fn assignment(&mut self, role: Option<&str>, arg: &FlagValue, separator: char) {
        match arg.value.split_once(separator) {
            Some((name, value)) => self.variable(role, name, value, arg.location()),
            None => {
                let hint = format!("write `NAME{separator}VALUE`");
                self.error(arg, format!("missing `{separator}`"), &hint);
            }
        }
    }

    /// Adds an error, which is reported with those of the job file.
    pub fn error(&mut self, arg: &FlagValue, what: impl Into<String>, hint: &str) {
        self.diagnostics.push(Diagnostic::new(arg.location(), what).hint(hint));
    }

    /// Adds errors found elsewhere.
    pub fn diagnostics(&mut self, diagnostics: Vec<Diagnostic>) {
        self.diagnostics.extend(diagnostics);
    }

    /// Returns the value at these keys.
    pub fn get(&self, path: &[&str]) -> Option<&Node> {
        path.iter().try_fold(&self.root, |node, name| {
            let Value::Map(entries) = &node.value else {
                return None;
            };
            let found = entries.iter().find(|(key, _)| key.name == *name);
            found.map(|(_, value)| value)
        })
    }

    /// Adds a file to the directory of every task.
    pub fn file(&mut self, path: &str, name: Option<&str>, at: Location) {
        let source = Node::text(at.clone(), path);
        let item = match name {
            None => source,
            Some(name) => {
                let mut named = Node::map(at.clone());
                put(&mut named, &[name], source, &at);
                named
            }
        };
        self.append(&["files"], item);
    }

    /// Adds a directory to the directory of every task, without files that a pattern matches.
    pub fn directory(&mut self, name: &str, path: &str, ignore: Vec<Node>) {
        let at = Location::Whole;
        let mut item = Node::map(at.clone());
        put(&mut item, &[name, "source"], Node::text(at.clone(), path), &at);
        let ignore = Node { at: at.clone(), value: Value::List(ignore) };
        put(&mut item, &[name, "ignore"], ignore, &at);
        self.append(&["files"], item);
    }

    /// Returns true if a file or directory of that name is shipped.
    pub(crate) fn has_file(&self, name: &str) -> bool {
        let Some(Value::List(items)) = self.get(&["files"]).map(|node| &node.value) else {
            return false;
        };
        items.iter().any(|item| match &item.value {
            Value::Scalar { text, .. } => file_name(text) == name,
            Value::Map(entries) => entries.iter().any(|(key, _)| key.name == name),
            Value::Null | Value::List(_) => false,
        })
    }

    /// Returns true if a task's directory may contain files of unknown names.
    pub(crate) fn has_unknown_files(&self) -> bool {
        self.has_unknown_files
    }

    /// Adds the content of an archive to the directory of every task.
    pub fn archive(&mut self, path: &str, at: Location) -> Result<(), String> {
        self.setup.unpack(file_name(path))?;
        if !archive::is_valid(Path::new(path)) {
            return Err(format!("`{path}` is not a valid archive"));
        }
        self.has_unknown_files = true;
        self.file(path, None, at);
        Ok(())
    }

    /// Links a path of the node to `target` below the directory of every task.
    pub fn link(&mut self, source: &str, target: &str) {
        self.has_unknown_files = true;
        self.setup.link(source, target);
    }

    /// Adds an output of workers: a directory (`source/`) of each worker, with a separate destination for each if there are
    /// several, or anything else of the first worker.
    pub fn output(&mut self, source: &str, to: &str, arg: &FlagValue, several: bool) {
        let is_dir = source.ends_with('/');
        let to = match is_dir && several && !to.contains("{index}") {
            true => {
                let separate = format!("{}/{{role}}-{{index}}", to.trim_end_matches('/'));
                self.notes.push(format!(
                    "`{source}` of each worker goes to `{separate}`, because file names may collide"
                ));
                separate
            }
            false => to.to_owned(),
        };
        if self.get(&["outputs", source]).is_some() {
            let what = format!("output `{source}` has a destination already");
            self.error(arg, what, "list each output once, and copy it afterwards");
            return;
        }
        let to = Node::text(arg.location(), to);
        self.put(&["outputs", source, "to"], to);
        let from = if is_dir { "worker" } else { "worker:0" };
        let from = Node::text(arg.location(), from);
        self.put(&["outputs", source, "from"], from);
    }

    /// Adds a shell command that runs in each task's directory before its program.
    pub(crate) fn add_step(&mut self, command: String) {
        self.setup.step(command);
    }

    /// Sets the command of a role, after the setup script.
    pub(crate) fn set_command(&mut self, role: &str, name: &str, words: &[String]) {
        let mut all = Vec::new();
        if let Some(script) = self.setup.text() {
            all = vec!["/bin/sh".to_owned(), "-c".to_owned(), script, name.to_owned()];
        }
        all.extend(words.iter().cloned());
        let words = all.into_iter().map(|word| Node::text(Location::Whole, word));
        let value = Value::List(words.collect());
        let at = Location::Whole;
        self.put(&["roles", role, "run"], Node { at, value });
    }

    /// Sets the job's name: the given one with invalid characters replaced, or the name of its program.
    pub(crate) fn set_name(&mut self, arg: Option<&FlagValue>, words: &[String]) {
        let is_script = |word: &&String| SCRIPT_ENDINGS.iter().any(|end| word.ends_with(end));
        let program = words.iter().find(is_script).or(words.first());
        let stem = program.and_then(|word| Path::new(word).file_stem());
        self.name = valid_name(&stem.map(|stem| stem.to_string_lossy()).unwrap_or_default());
        let mut at = Location::Whole;
        if let Some(arg) = arg {
            self.name = valid_name(&arg.value);
            at = arg.location();
            if self.name != arg.value {
                self.notes.push(format!(
                    "the job is named `{}`: names consist of letters, digits, `-`, `_` and `.`",
                    self.name
                ));
            }
        }
        self.put(&["name"], Node::text(at, self.name.as_str()));
    }

    /// Parses a memory size in MiB. Errors are reported with those of the job file.
    pub fn memory_mib(text: &str) -> Option<u64> {
        size_mib(text).ok()
    }

    /// Sets the environment given by the common flag.
    pub fn set_environment(&mut self, args: &ParsedArgs) {
        self.put_flag(&["environment"], args, "--environment");
    }

    /// Formats the job file, with the command line and notes as comments.
    pub fn to_yaml(&self, line: &str) -> String {
        // Control characters would end a comment.
        let plain = |text: &str| text.replace(char::is_control, " ");
        let mut yaml = format!("# {}\n", plain(line));
        for note in &self.notes {
            yaml += &format!("# note: {}\n", plain(note));
        }
        let mut root = self.root.clone();
        if let Value::Map(entries) = &mut root.value {
            let rank = |name: &str| FIRST_KEYS.iter().position(|known| *known == name);
            entries.sort_by_key(|(key, _)| rank(&key.name).unwrap_or(FIRST_KEYS.len()));
        }
        yaml + &print_tree(&root)
    }

    /// Converts it into a source that is parsed like any other job file.
    pub fn into_source(self, args: &ParsedArgs) -> Result<Source, Diagnostics> {
        let mut source = Source::of_flags(self.root, self.name, self.diagnostics)?;
        args.all("--set").for_each(|arg| source.set(&arg.value));
        Ok(source)
    }

    /// Returns true if the job runs on this machine.
    pub fn is_local(&self) -> bool {
        self.is_local
    }
}

fn put(root: &mut Node, path: &[&str], value: Node, at: &Location) {
    *entry(root, path, at) = value;
}

/// Returns the value at these keys, created if missing.
fn entry<'a>(mut node: &'a mut Node, path: &[&str], at: &Location) -> &'a mut Node {
    for name in path {
        if !matches!(node.value, Value::Map(_)) {
            node.value = Value::Map(Vec::new());
        }
        let Value::Map(entries) = &mut node.value else {
            unreachable!("it was made a map");
        };
        let index = match entries.iter().position(|(key, _)| key.name == *name) {
            Some(index) => index,
            None => {
                let key = Key { at: at.clone(), name: (*name).to_owned() };
                entries.push((key, Node::map(at.clone())));
                entries.len() - 1
            }
        };
        node = &mut entries[index].1;
    }
    node
}
