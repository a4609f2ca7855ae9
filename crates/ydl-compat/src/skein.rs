//! skein's application specifications, which `ydl submit` takes as job files.
//!
//! A specification becomes the tree of a job file, in which everything keeps the place where it was written; then it goes the
//! way of every other. What cannot be carried over is refused or noted by its name, never dropped.
//!
//! * `desk`: the two trees while one is made of the other. * `service`: services and the driver script, which become roles.
//! * `files`: what travels; here it is the whole job's. * `amounts`: sizes and counts as skein writes them.

mod amounts;
mod desk;
mod files;
mod service;

use amounts::{count, memory};
use desk::{Desk, Tree, find, text_of};
use ydl_jobfile::{Diagnostic, Location, Node, Value, name_of};

/// Result of the translation.
#[derive(Debug)]
pub struct Translated {
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
pub fn is_one(root: &Node) -> bool {
    let driver = || find(root, "master").and_then(|master| find(master, "script"));
    find(root, "roles").is_none() && (find(root, "services").is_some() || driver().is_some())
}

/// Makes a job file of it. `submitter` is who submits, as far as is known.
pub fn translate(root: &Node, submitter: Option<&str>) -> Translated {
    let mut desk = Desk::default();
    let mut job = Tree::at(&root.at);
    let entries = desk.entries(root, "", APPLICATION);
    if let Some(name) = find(root, "name").and_then(|name| desk.text(name, "name")) {
        let clean = name_of(&name);
        if clean != name {
            desk.note(format!(
                "`name`: the job is called `{clean}`: a name consists of letters, digits, `-`, `_` and `.`"
            ));
        }
        job.put("name", Node::text(root.at.clone(), clean));
    }
    for (key, node) in entries {
        match key.name.as_str() {
            "queue" => job.put(&key.name, node.clone()),
            // In skein it is the master's, too.
            "node_label" if !is_empty(node) => {
                job.put(&key.name, node.clone());
                job.put_in("master", &key.name, node.clone());
            }
            "tags" | "file_systems" if !is_empty(node) => job.put(&key.name, node.clone()),
            "max_attempts" => job.put_in("master", "attempts", node.clone()),
            "user" => user(&mut desk, node, submitter),
            "acls" => acls(&mut desk, &mut job, node),
            _ => {}
        }
    }
    let driver = find(root, "master").and_then(|node| master(&mut desk, &mut job, node));
    service::roles(&mut desk, &mut job, find(root, "services"), driver);
    Translated { root: job.node(), notes: desk.notes, diagnostics: desk.diagnostics }
}

fn is_empty(node: &Node) -> bool {
    match &node.value {
        Value::Null => true,
        Value::List(items) => items.is_empty(),
        Value::Map(entries) => entries.is_empty(),
        Value::Scalar { .. } => false,
    }
}

/// Rejects a `user` other than the submitter.
fn user(desk: &mut Desk, node: &Node, submitter: Option<&str>) {
    let Some(user) = desk.text(node, "user") else {
        return;
    };
    if !user.is_empty() && submitter != Some(user.as_str()) {
        let what = format!("`user`: the job would be submitted as somebody else than `{user}`");
        let hint = format!(
            "set the variable `HADOOP_PROXY_USER={user}`, which the cluster must allow, or leave `user` out"
        );
        desk.wrong(&node.at, what, &hint);
    }
}

/// Translates ACLs into YARN's form: `alice,bob group`.
fn acls(desk: &mut Desk, job: &mut Tree, node: &Node) {
    let entries = desk.entries(node, "acls", ACLS);
    let enabled = find(node, "enable").and_then(|it| desk.truth(it, "acls.enable"));
    if enabled != Some(true) {
        if !entries.is_empty() {
            desk.note("`acls`: they are not enabled (`enable: true`), and left out".into());
        }
        return;
    }
    for (kind, users, groups) in
        [("view", "view_users", "view_groups"), ("modify", "modify_users", "modify_groups")]
    {
        let mut names = |key: &str| {
            let listed = find(node, key).map(|it| desk.texts(it, &format!("acls.{key}")));
            listed.unwrap_or_default()
        };
        let (users, groups) = (names(users), names(groups));
        let all = |names: &[String]| names.iter().any(|name| name == "*");
        let list = match () {
            () if all(&users) || all(&groups) => "*".to_owned(),
            () if groups.is_empty() => users.join(","),
            () => format!("{} {}", users.join(","), groups.join(",")),
        };
        if !list.is_empty() {
            job.put_in("acls", kind, Node::text(node.at.clone(), list));
        }
    }
    if let Some(ui) = find(node, "ui_users").filter(|it| !is_empty(it)) {
        desk.note_at(&ui.at, "`acls.ui_users` is left out: who may view the job may see all of it");
    }
}

/// A script of the master, and what it runs with.
#[derive(Debug)]
pub struct Driver<'a> {
    script: &'a Node,
    node: &'a Node,
}

fn master<'a>(desk: &mut Desk, job: &mut Tree, node: &'a Node) -> Option<Driver<'a>> {
    let entries = desk.entries(node, "master", MASTER);
    for (key, value) in &entries {
        let why = match key.name.as_str() {
            "log_level" | "log_config" => "ydl's master has one level, and no log4j",
            "security" => "every job has a certificate and keys of its own",
            _ => continue,
        };
        desk.note_at(&value.at, &format!("`master.{}` is left out: {why}", key.name));
    }
    let script = find(node, "script");
    let has_script = script.and_then(text_of).is_some_and(|it| !it.trim().is_empty());
    if let (true, Some(script)) = (has_script, script) {
        desk.note(
            "`master.script` runs in a container of its own, as the role whose end is the job's"
                .into(),
        );
        return Some(Driver { script, node });
    }
    for name in ["files", "env"] {
        if let Some(it) = find(node, name).filter(|it| !is_empty(it)) {
            let what =
                format!("`master.{name}` is left out: there is no `master.script` to use it");
            desk.note_at(&it.at, &what);
        }
    }
    if let Some(resources) = find(node, "resources") {
        desk.entries(resources, "master.resources", service::RESOURCES);
        for name in ["gpus", "fpgas"] {
            let Some(it) = find(resources, name) else {
                continue;
            };
            if count(desk, it, &format!("master.resources.{name}")).is_some_and(|n| n > 0) {
                let what = format!("`master.resources.{name}`: a master computes nothing");
                desk.wrong(&it.at, what, "leave it out");
            }
        }
        if let Some(it) = find(resources, "memory")
            && let Some(mib) = memory(desk, it, "master.resources.memory")
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
const NOWHERE: Location = Location::Whole;
