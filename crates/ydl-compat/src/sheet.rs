//! The job file that a command line stands for, while it is written.

use super::{
    archive,
    flags::{Said, Typed},
    script::Script,
};
use std::{collections::BTreeMap, env, path::Path};
use ydl_jobfile::{
    Diagnostic, Diagnostics, Key, Location, Node, Source, Value, name_of, size_mib, written,
};
use ydl_os::report::Report;

/// Environment of the caller.
#[derive(Debug)]
pub struct Here {
    /// The variables of the user's shell.
    pub variables: BTreeMap<String, String>,
}

impl Here {
    /// This process's.
    pub fn now() -> Here {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Here { variables: env::vars_os().filter_map(text).collect() }
    }

    /// A variable that is set and not empty.
    pub fn variable(&self, name: &str) -> Option<&str> {
        let value = self.variables.get(name)?;
        (!value.is_empty()).then_some(value)
    }
}

/// Target of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cluster {
    /// The Hadoop cluster that `HADOOP_CONF_DIR` leads to.
    Yarn,
    /// This machine.
    Local,
}

/// Order of the first keys of a printed job file; the rest keeps its order.
const ORDER: [&str; 7] =
    ["name", "framework", "cluster_flags", "environment", "files", "roles", "restart"];

/// The job file, and what its writer has to say about it.
#[derive(Clone, Debug)]
pub struct Sheet {
    root: Node,
    name: String,
    diagnostics: Vec<Diagnostic>,
    /// Target of the job, if given.
    pub cluster: Option<Cluster>,
    /// Notes for the user.
    pub notes: Vec<String>,
    /// Script that prepares a task's directory.
    before: Script,
    /// True if archives or links add files of unknown names to a task's directory.
    opens: bool,
}

impl Sheet {
    /// An empty one.
    pub fn empty() -> Sheet {
        Sheet {
            root: Node::map(Location::Whole),
            name: "job".to_owned(),
            diagnostics: Vec::new(),
            cluster: None,
            notes: Vec::new(),
            before: Script::default(),
            opens: false,
        }
    }

    /// Puts a value below these keys, over what was there.
    pub fn put(&mut self, path: &[&str], value: Node) {
        let at = value.at.clone();
        put(&mut self.root, path, value, &at);
    }

    /// Puts what was typed there, to be read as if it stood in a file.
    pub fn put_said(&mut self, path: &[&str], said: &Said) {
        self.put(path, Node::plain(said.at(), said.value.as_str()));
    }

    /// Puts the value of a flag there, if it was given.
    pub fn put_flag(&mut self, path: &[&str], typed: &Typed, flag: &str) {
        if let Some(said) = typed.last(flag) {
            self.put_said(path, said);
        }
    }

    /// Puts a default value below these keys.
    pub fn put_own(&mut self, path: &[&str], value: impl ToString) {
        self.put(path, Node::plain(Location::Whole, value.to_string()));
    }

    /// Adds to a list.
    pub fn add(&mut self, path: &[&str], item: Node) {
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

    /// A variable of the job, or of a role. What comes later wins.
    pub fn variable(&mut self, role: Option<&str>, name: &str, value: &str, at: Location) {
        let value = Node::text(at, value);
        match role {
            Some(role) => self.put(&["roles", role, "env", name], value),
            None => self.put(&["env", name], value),
        }
    }

    /// A variable that was typed, as `NAME=VALUE`.
    pub fn assignment(&mut self, role: Option<&str>, said: &Said, separator: char) {
        match said.value.split_once(separator) {
            Some((name, value)) => self.variable(role, name, value, said.at()),
            None => {
                let what = format!("there is no `{separator}` in it");
                let hint = format!("write `NAME{separator}VALUE`");
                self.wrong(said, what, &hint);
            }
        }
    }

    /// A mistake that is told with those of the job file.
    pub fn wrong(&mut self, said: &Said, what: impl Into<String>, hint: &str) {
        self.diagnostics.push(Diagnostic::new(said.at(), what).hint(hint));
    }

    /// Adds errors found elsewhere.
    pub fn diagnostics(&mut self, diagnostics: Vec<Diagnostic>) {
        self.diagnostics.extend(diagnostics);
    }

    /// Returns the value below these keys.
    pub fn at(&self, path: &[&str]) -> Option<&Node> {
        path.iter().try_fold(&self.root, |node, name| {
            let Value::Map(entries) = &node.value else {
                return None;
            };
            let found = entries.iter().find(|(key, _)| key.name == *name);
            found.map(|(_, value)| value)
        })
    }

    /// A file that every task finds in its directory.
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
        self.add(&["files"], item);
    }

    /// Returns true if a file or directory of that name is shipped.
    pub fn has_file(&self, name: &str) -> bool {
        let Some(Value::List(items)) = self.at(&["files"]).map(|node| &node.value) else {
            return false;
        };
        items.iter().any(|item| match &item.value {
            Value::Scalar { text, .. } => last_of(text) == name,
            Value::Map(entries) => entries.iter().any(|(key, _)| key.name == name),
            Value::Null | Value::List(_) => false,
        })
    }

    /// Returns true if a task's directory may contain files of unknown names.
    pub fn unpacks(&self) -> bool {
        self.opens
    }

    /// An archive whose content every task finds in its directory.
    pub fn archive(&mut self, path: &str, at: Location) -> Result<(), String> {
        self.before.unpack(last_of(path))?;
        if !archive::is_one(Path::new(path)) {
            return Err(format!("`{path}` is no archive, whatever its name says"));
        }
        self.opens = true;
        self.file(path, None, at);
        Ok(())
    }

    /// A place of the node that every task finds at `target`, below its directory.
    pub fn link(&mut self, source: &str, target: &str) {
        self.opens = true;
        self.before.link(source, target);
    }

    /// Adds an output of workers: of a directory what each of them has in it, where there are several each below a name of its
    /// own; of anything else what the first has made.
    pub fn output(&mut self, source: &str, to: &str, said: &Said, several: bool) {
        let all = source.ends_with('/');
        let to = match all && several && !to.contains("{index}") {
            true => {
                let apart = format!("{}/{{role}}-{{index}}", to.trim_end_matches('/'));
                let note = format!(
                    "`{source}` of each worker goes to `{apart}`: two of them may have files of one name"
                );
                self.notes.push(note);
                apart
            }
            false => to.to_owned(),
        };
        if self.at(&["outputs", source]).is_some() {
            let what = format!("`{source}` goes somewhere already");
            self.wrong(said, what, "name each output once, and copy it further later");
            return;
        }
        let to = Node::text(said.at(), to);
        self.put(&["outputs", source, "to"], to);
        let whose = if all { "worker" } else { "worker:0" };
        let whose = Node::text(said.at(), whose);
        self.put(&["outputs", source, "from"], whose);
    }

    /// A command of the shell that is run in each task's directory before its program.
    pub fn before(&mut self, command: String) {
        self.before.step(command);
    }

    /// Sets the command of a role, after the preparation script.
    pub fn command(&mut self, role: &str, door: &str, words: &[String]) {
        let mut all = Vec::new();
        if let Some(script) = self.before.text() {
            all = vec!["/bin/sh".to_owned(), "-c".to_owned(), script, door.to_owned()];
        }
        all.extend(words.iter().cloned());
        let words = all.into_iter().map(|word| Node::text(Location::Whole, word));
        let value = Value::List(words.collect());
        let at = Location::Whole;
        self.put(&["roles", role, "run"], Node { at, value });
    }

    /// The job's name: what was typed, as far as a job can be called so, or what its program is called.
    pub fn name(&mut self, said: Option<&Said>, words: &[String]) {
        let script = words
            .iter()
            .find(|word| [".py", ".sh", ".R", ".jar"].iter().any(|end| word.ends_with(end)));
        let stem = script.or(words.first()).and_then(|word| Path::new(word).file_stem());
        self.name = name_of(&stem.map(|stem| stem.to_string_lossy()).unwrap_or_default());
        let mut at = Location::Whole;
        if let Some(said) = said {
            self.name = name_of(&said.value);
            at = said.at();
            if self.name != said.value {
                let note = format!(
                    "the job is called `{}`: a name consists of letters, digits, `-`, `_` and `.`",
                    self.name
                );
                self.notes.push(note);
            }
        }
        self.put(&["name"], Node::text(at, self.name.as_str()));
    }

    /// Parses a memory size in MiB. Errors are reported with those of the job file.
    pub fn memory_mib(text: &str) -> Option<u64> {
        size_mib(text).ok()
    }

    /// The environment that was asked for, by the flag that every door has.
    pub fn environment(&mut self, typed: &Typed) {
        self.put_flag(&["environment"], typed, "--environment");
    }

    /// The file as a person would write it, with its notes.
    pub fn page(&self, line: &str) -> String {
        // A comment ends with its line, whatever ends that.
        let plain = |text: &str| text.replace(char::is_control, " ");
        let mut page = format!("# {}\n", plain(line));
        for note in &self.notes {
            page += &format!("# note: {}\n", plain(note));
        }
        let mut root = self.root.clone();
        if let Value::Map(entries) = &mut root.value {
            let rank = |name: &str| ORDER.iter().position(|known| *known == name);
            entries.sort_by_key(|(key, _)| rank(&key.name).unwrap_or(ORDER.len()));
        }
        page + &written(&root)
    }

    /// The job, to be read as any other.
    pub fn source(self, typed: &Typed) -> Result<Source, Diagnostics> {
        let mut source = Source::of_flags(self.root, self.name, self.diagnostics)?;
        typed.all("--set").for_each(|said| source.set(&said.value));
        Ok(source)
    }

    /// Returns true if the job is known to run on this machine.
    pub fn is_local(&self) -> bool {
        self.cluster == Some(Cluster::Local)
    }
}

/// Parses the count given by a flag.
pub fn count(typed: &Typed, flag: &str) -> Result<Option<u32>, Report> {
    let Some(said) = typed.last(flag) else {
        return Ok(None);
    };
    let number = said.value.parse::<u32>();
    number.map(Some).map_err(|_| {
        let what = format!("`{}` is no number", said.value);
        Report::bad_input(format!("{}: {what}", said.written))
    })
}

/// The last part of a path.
pub fn last_of(path: &str) -> &str {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or(path)
}

/// A word as a shell takes it.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_./+=@%:-".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

fn put(root: &mut Node, path: &[&str], value: Node, at: &Location) {
    *entry(root, path, at) = value;
}

/// The value below these keys, made where there is none.
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
