//! Application specifications of skein, which `ydl submit` accepts as job files.
//!
//! A specification becomes the tree of a job file, in which all values keep their locations. The tree is then handled like any
//! other job file. Keys that cannot be translated are errors or noted by name, never dropped.
//!
//! * `context`: notes and errors, readers of nodes and a builder of maps. * `service`: services and the driver script, which
//!   become roles. * `role`: builder of a role.
//! * `files`: files, which belong to the whole job here. * `quantities`: sizes and counts in skein's notation.
//! * `programs`: scripts and files that use skein.

mod context;
mod files;
mod programs;
mod quantities;
mod role;
mod service;

use context::{Context, MapBuilder, find, text_of};
use quantities::{count, memory};
use ydl_jobfile::{Diagnostic, Location, Node, Value, valid_name};

pub use programs::read_program;

/// Result of the translation.
#[derive(Debug)]
pub struct Translation {
    /// The job file.
    pub root: Node,
    /// Notes for the user.
    pub notes: Vec<String>,
    /// Errors in the specification.
    pub diagnostics: Vec<Diagnostic>,
}

const APPLICATION: &[&str] = &[
    "name",
    "queue",
    "user",
    "node_label",
    "max_attempts",
    "tags",
    "file_systems",
    "acls",
    "master",
    "services",
];
const MASTER: &[&str] =
    &["resources", "script", "files", "env", "log_level", "log_config", "security"];
const ACLS: &[&str] =
    &["enable", "view_users", "view_groups", "modify_users", "modify_groups", "ui_users"];

/// Returns true if a tree is a specification rather than a job file, by its keys.
pub fn is_specification(root: &Node) -> bool {
    let driver = || find(root, "master").and_then(|master| find(master, "script"));
    find(root, "roles").is_none() && (find(root, "services").is_some() || driver().is_some())
}

/// Returns true if a specification names the user to submit as.
pub fn names_user(root: &Node) -> bool {
    is_specification(root)
        && find(root, "user").and_then(text_of).is_some_and(|user| !user.is_empty())
}

/// Translates a specification into a job file. `submitter` is the user who submits, if known. `read` returns the text of a
/// program in a file of this machine, and none for other files.
pub fn translate(
    root: &Node,
    submitter: Option<&str>,
    read: &dyn Fn(&str) -> Option<String>,
) -> Translation {
    let mut context = Context::default();
    let mut job = MapBuilder::at(&root.at);
    let entries = context.known_entries(root, "", APPLICATION);
    if let Some(name) = find(root, "name").and_then(|name| context.text(name, "name")) {
        let clean = valid_name(&name);
        if clean != name {
            context.note(format!(
                "`name`: the job is named `{clean}`: names consist of letters, digits, `-`, `_` and `.`"
            ));
        }
        job.put("name", Node::text(root.at.clone(), clean));
    }
    for (key, node) in entries {
        match key.name.as_str() {
            "queue" => job.put(&key.name, node.clone()),
            // In skein it applies to the master, too.
            "node_label" if !is_empty(node) => {
                job.put(&key.name, node.clone());
                job.put_in("master", &key.name, node.clone());
            }
            "tags" | "file_systems" if !is_empty(node) => job.put(&key.name, node.clone()),
            "max_attempts" => job.put_in("master", "attempts", node.clone()),
            "user" => user(&mut context, node, submitter),
            "acls" => acls(&mut context, &mut job, node),
            _ => {}
        }
    }
    let driver = find(root, "master").and_then(|node| master(&mut context, &mut job, node));
    service::roles(&mut context, &mut job, find(root, "services"), driver, read);
    Translation { root: job.node(), notes: context.notes, diagnostics: context.diagnostics }
}

fn is_empty(node: &Node) -> bool {
    match &node.value {
        Value::Null => true,
        Value::List(items) => items.is_empty(),
        Value::Map(entries) => entries.is_empty(),
        Value::Scalar { text, .. } => text.is_empty(),
    }
}

/// Rejects a `user` other than the submitter.
fn user(context: &mut Context, node: &Node, submitter: Option<&str>) {
    let Some(user) = context.text(node, "user") else {
        return;
    };
    if !user.is_empty() && submitter != Some(user.as_str()) {
        let what = match submitter {
            Some(submitter) => {
                format!("`user`: the job would be submitted as `{submitter}`, not as `{user}`")
            }
            None => format!("`user`: the job would not be submitted as `{user}`"),
        };
        let hint =
            format!("set `HADOOP_PROXY_USER={user}` if the cluster allows it, or remove `user`");
        context.error(&node.at, what, &hint);
    }
}

/// Translates ACLs into YARN's form: `alice,bob group`.
fn acls(context: &mut Context, job: &mut MapBuilder, node: &Node) {
    let entries = context.known_entries(node, "acls", ACLS);
    let enabled = find(node, "enable").and_then(|it| context.boolean(it, "acls.enable"));
    if enabled != Some(true) {
        if !entries.is_empty() {
            context.note("`acls` is ignored because it is not enabled (`enable: true`)".into());
        }
        return;
    }
    for (kind, users, groups) in
        [("view", "view_users", "view_groups"), ("modify", "modify_users", "modify_groups")]
    {
        let mut names = |key: &str| {
            let listed = find(node, key).map(|it| context.strings(it, &format!("acls.{key}")));
            listed.unwrap_or_default()
        };
        let (users, groups) = (names(users), names(groups));
        let has_wildcard = |names: &[String]| names.iter().any(|name| name == "*");
        let list = match () {
            () if has_wildcard(&users) || has_wildcard(&groups) => "*".to_owned(),
            () if groups.is_empty() => users.join(","),
            () => format!("{} {}", users.join(","), groups.join(",")),
        };
        if !list.is_empty() {
            job.put_in("acls", kind, Node::text(node.at.clone(), list));
        }
    }
    if let Some(ui) = find(node, "ui_users").filter(|it| !is_empty(it)) {
        context.note_at(&ui.at, "`acls.ui_users` is ignored: viewers see everything of a job");
    }
}

/// Driver script of the master, with the keys that apply to it.
#[derive(Debug)]
pub struct Driver<'a> {
    script: &'a Node,
    node: &'a Node,
}

fn master<'a>(context: &mut Context, job: &mut MapBuilder, node: &'a Node) -> Option<Driver<'a>> {
    let entries = context.known_entries(node, "master", MASTER);
    for (key, value) in &entries {
        let why = match key.name.as_str() {
            "log_level" | "log_config" => "the master has one log level and no log4j",
            "security" => "each job gets its own certificate and keys",
            _ => continue,
        };
        context.note_at(&value.at, &format!("`master.{}` is ignored: {why}", key.name));
    }
    let script = find(node, "script");
    let has_script = script.and_then(text_of).is_some_and(|it| !it.trim().is_empty());
    if let (true, Some(script)) = (has_script, script) {
        context.note(
            "`master.script` runs in its own container, as a role whose end ends the job".into(),
        );
        return Some(Driver { script, node });
    }
    for name in ["files", "env"] {
        if let Some(it) = find(node, name).filter(|it| !is_empty(it)) {
            let what = format!("`master.{name}` is ignored without `master.script`");
            context.note_at(&it.at, &what);
        }
    }
    if let Some(resources) = find(node, "resources") {
        context.known_entries(resources, "master.resources", role::RESOURCES);
        for name in ["gpus", "fpgas"] {
            let Some(it) = find(resources, name) else {
                continue;
            };
            if count(context, it, &format!("master.resources.{name}")).is_some_and(|n| n > 0) {
                let what = format!("`master.resources.{name}`: the master uses no {name}");
                context.error(&it.at, what, "remove it");
            }
        }
        if let Some(it) = find(resources, "memory")
            && let Some(mib) = memory(context, it, "master.resources.memory")
        {
            job.put_in("master", "memory", Node::text(it.at.clone(), format!("{mib} MiB")));
        }
        if let Some(it) = find(resources, "vcores") {
            job.put_in("master", "vcores", it.clone());
        }
    }
    None
}

/// Location of default values.
const DEFAULT_LOCATION: Location = Location::Whole;
