//! Services, which become roles; and the driver script, which becomes one more.

use super::{
    Driver, NOWHERE,
    amounts::{count, memory},
    desk::{Desk, Tree, find, text_of},
    files::{self, Wanted},
    is_empty,
};
use crate::runtime::{self, Variable};
use ydl_jobfile::{Node, Value, name_of};

pub const RESOURCES: &[&str] = &["memory", "vcores", "gpus", "fpgas"];
const SERVICE: &[&str] = &[
    "resources",
    "script",
    "commands",
    "instances",
    "files",
    "env",
    "depends",
    "max_restarts",
    "allow_failures",
    "node_label",
    "nodes",
    "racks",
    "relax_locality",
];
/// Default memory of a master in skein.
const DRIVER_MIB: u64 = 512;
/// Limit for unlimited retries.
const WITHOUT_END: &str = "1000000";
const FPGA: &str = "yarn.io/fpga";
/// Scripts find who they are by these names.
const WHO: &str =
    "export SKEIN_APPLICATION_ID=\"$YDL_JOB\" SKEIN_CONTAINER_ID=\"${YDL_ROLE}_$YDL_INDEX\"";

/// A role while it is written.
struct Role {
    name: String,
    tree: Tree,
    script: Option<(Node, String)>,
    env: Tree,
    /// Name in the specification.
    written: String,
    depends: Vec<String>,
}

/// Every role of the job.
pub fn roles(desk: &mut Desk, job: &mut Tree, services: Option<&Node>, driver: Option<Driver<'_>>) {
    let mut files = Vec::new();
    let mut roles: Vec<Role> = Vec::new();
    let entries = services.map(|node| desk.any_entries(node, "services"));
    for (key, node) in entries.unwrap_or_default() {
        let role = service(desk, &key.name, node, &mut files);
        if roles.iter().any(|other| other.name == role.name) {
            let what =
                format!("`services.{}`: there is a service `{}` already", key.name, role.name);
            desk.wrong(&key.at, what, "give it another name");
            continue;
        }
        roles.push(role);
    }
    depends(desk, services, &roles);
    if let Some(driver) = driver {
        let usual = "driver".to_owned();
        let taken = roles.iter().any(|role| role.name == usual);
        let name = if taken { "application-driver".to_owned() } else { usual };
        roles.push(drive(desk, name, driver, &mut files));
    }
    if roles.is_empty() && desk.diagnostics.is_empty() {
        let at = services.map_or(NOWHERE, |node| node.at.clone());
        let what = "the specification has neither a service nor a `master.script`";
        desk.wrong(&at, what, "");
    }
    files::put(job, &mut files);
    let mut all = Tree::at(&services.map_or(NOWHERE, |node| node.at.clone()));
    for role in roles {
        let name = role.name.clone();
        all.put(&name, role.finish(&files));
    }
    job.put("roles", all.node());
}

/// Services that depend on what is not there, or on themselves.
fn depends(desk: &mut Desk, services: Option<&Node>, roles: &[Role]) {
    let named = |name: &str| roles.iter().find(|role| role.written == name);
    for role in roles.iter().filter(|role| !role.depends.is_empty()) {
        let path = format!("services.{}.depends", role.written);
        let node = services.and_then(|all| find(all, &role.written));
        let at = node.and_then(|node| find(node, "depends"));
        let at = at.map_or(NOWHERE, |depends| depends.at.clone());
        if let Some(unknown) = role.depends.iter().find(|name| named(name).is_none()) {
            let there: Vec<_> = roles.iter().map(|role| role.written.as_str()).collect();
            let what = format!("`{path}`: there is no service `{unknown}`");
            let hint = format!("the services are `{}`", there.join("`, `"));
            desk.wrong(&at, what, &hint);
            continue;
        }
        let (mut seen, mut next) = (Vec::new(), role.depends.clone());
        while let Some(name) = next.pop() {
            if name == role.written {
                let what = format!("`{path}`: service `{name}` would wait for itself");
                desk.wrong(&at, what, "leave one of them out");
                break;
            }
            if !seen.contains(&name) {
                next.extend(named(&name).into_iter().flat_map(|it| it.depends.clone()));
                seen.push(name);
            }
        }
    }
}

impl Role {
    fn new(name: String, node: &Node) -> Role {
        Role {
            name,
            tree: Tree::at(&node.at),
            script: None,
            env: Tree::at(&node.at),
            written: String::new(),
            depends: Vec::new(),
        }
    }

    fn finish(mut self, files: &[Wanted]) -> Node {
        if let Some((written, script)) = self.script {
            let mut lines = vec![WHO.to_owned()];
            lines.extend(files::links(&self.name, files));
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

    /// Memory, cores and what else is counted; programs are told the first two.
    fn resources(&mut self, desk: &mut Desk, path: &str, node: Option<&Node>, usual: Option<u64>) {
        let path = format!("{path}.resources");
        let Some(node) = node else {
            if let Some(mib) = usual {
                self.size(mib, &NOWHERE_NODE);
            }
            return;
        };
        desk.entries(node, &path, RESOURCES);
        let mib = match find(node, "memory") {
            Some(it) => memory(desk, it, &format!("{path}.memory")),
            None if usual.is_none() => {
                desk.wrong(&node.at, format!("`{path}` has no `memory`"), "such as `2 GiB`");
                None
            }
            None => usual,
        };
        if let Some(mib) = mib {
            self.size(mib, find(node, "memory").unwrap_or(node));
        }
        let vcores = find(node, "vcores");
        if vcores.is_none() && usual.is_none() {
            desk.wrong(&node.at, format!("`{path}` has no `vcores`"), "such as `1`");
        }
        let vcores = vcores.cloned().unwrap_or_else(|| Node::plain(NOWHERE, "1"));
        self.told("SKEIN_RESOURCE_VCORES", text_of(&vcores).unwrap_or_default().to_owned());
        self.tree.put("vcores", vcores);
        if let Some(gpus) = find(node, "gpus") {
            self.tree.put("gpus", gpus.clone());
        }
        if let Some(fpgas) = find(node, "fpgas")
            && count(desk, fpgas, &format!("{path}.fpgas")).is_some_and(|n| n > 0)
        {
            self.tree.put_in("resources", FPGA, fpgas.clone());
        }
    }

    fn size(&mut self, mib: u64, from: &Node) {
        let text = Node::text(from.at.clone(), format!("{mib} MiB"));
        self.tree.put("memory", text);
        self.told("SKEIN_RESOURCE_MEMORY", mib.to_string());
    }

    fn told(&mut self, name: &str, value: String) {
        self.env.put(name, Node::text(NOWHERE, value));
    }

    /// Variables of its scripts. Those by which YARN is told of an image say what the role runs in.
    fn variables(&mut self, desk: &mut Desk, path: &str, node: Option<&Node>) {
        let Some(node) = node else {
            return;
        };
        let path = format!("{path}.env");
        let mut of_yarn = Vec::new();
        for (key, value) in desk.any_entries(node, &path) {
            if !runtime::is_one(&key.name) {
                self.env.replace(&key.name, value.clone());
                continue;
            }
            let text = desk.text(value, &format!("{path}.{}", key.name));
            of_yarn.extend(text.map(|text| Variable {
                name: key.name.clone(),
                value: text,
                at: value.at.clone(),
            }));
        }
        let told = runtime::read(&of_yarn, false);
        desk.diagnostics.extend(told.diagnostics);
        for (key, node) in told.keys {
            self.tree.put_in("environment", key, node);
        }
    }

    fn runs(&mut self, desk: &mut Desk, path: &str, written: &Node, script: String) {
        if script.trim().is_empty() {
            desk.wrong(&written.at, format!("`{path}` is empty"), "say what it runs");
            return;
        }
        let words = script.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        if words.clone().any(|word| word == "skein") {
            desk.note_at(
                &written.at,
                &format!(
                    "`{path}` calls skein, which cannot talk to this master: `skein kv get current --key K --wait` is `ydl kv get K --wait 1h` here, \
                     and `skein.ApplicationClient` is `ydl.kv` in Python"
                ),
            );
        }
        self.script = Some((written.clone(), script));
    }
}

/// Node of a default value.
const NOWHERE_NODE: Node = Node { at: NOWHERE, value: Value::Null };

fn service(desk: &mut Desk, name: &str, node: &Node, files: &mut Vec<Wanted>) -> Role {
    let path = format!("services.{name}");
    let own = name_of(name);
    if own != name {
        desk.note_at(&node.at, &format!("the service `{name}` is the role `{own}`"));
    }
    let mut role = Role::new(own, node);
    role.written = name.to_owned();
    desk.entries(node, &path, SERVICE);
    let instances = find(node, "instances");
    if let Some(it) = instances {
        match count(desk, it, &format!("{path}.instances")) {
            Some(0) => {
                let what =
                    format!("`{path}.instances` is 0: nobody can add containers to it later");
                desk.wrong(&it.at, what, "leave the service out, or begin with 1");
            }
            Some(_) => role.tree.put("instances", it.clone()),
            None => {}
        }
    }
    if find(node, "resources").is_none() {
        let what = format!("`{path}` has no `resources`");
        desk.wrong(&node.at, what, "such as `{memory: 2 GiB, vcores: 1}`");
    }
    role.resources(desk, &path, find(node, "resources"), None);
    let depends = find(node, "depends").filter(|it| !is_empty(it));
    if let Some(depends) = depends {
        role.depends = desk.texts(depends, &format!("{path}.depends"));
        let names = role.depends.iter();
        let names = names.map(|name| Node::text(depends.at.clone(), name_of(name)));
        let value = Value::List(names.collect());
        let at = depends.at.clone();
        role.tree.put("depends_on", Node { at, value });
    }
    restarts(desk, &mut role, &path, node);
    places(desk, &mut role, &path, node);
    script(desk, &mut role, &path, node);
    files::of(desk, &role.name, &path, find(node, "files"), files);
    role.variables(desk, &path, find(node, "env"));
    role
}

/// Translates restarts and tolerated failures.
fn restarts(desk: &mut Desk, role: &mut Role, path: &str, node: &Node) {
    if let Some(it) = find(node, "max_restarts") {
        let path = format!("{path}.max_restarts");
        let limit = match text_of(it).map(str::trim) {
            Some("-1") => Some(WITHOUT_END.to_owned()),
            _ => count(desk, it, &path).map(|limit| limit.to_string()),
        };
        let several = find(node, "instances").and_then(text_of);
        let several = several.is_some_and(|n| n.trim() != "1");
        if let Some(limit) = limit.filter(|limit| limit != "0") {
            if several && limit != WITHOUT_END {
                let what =
                    format!("`{path}` counts for each task here, and not for all of them together");
                desk.note_at(&it.at, &what);
            }
            let limit = Node::plain(it.at.clone(), limit);
            role.tree.put_in("restart", "limit", limit);
        }
    }
    if let Some(it) = find(node, "allow_failures")
        && desk.truth(it, &format!("{path}.allow_failures")) == Some(true)
    {
        role.tree.put("tolerate", Node::plain(it.at.clone(), "all"));
    }
}

/// Translates placement.
fn places(desk: &mut Desk, role: &mut Role, path: &str, node: &Node) {
    if let Some(label) = find(node, "node_label").filter(|it| !is_empty(it)) {
        role.tree.put("node_label", label.clone());
    }
    let relaxed = find(node, "relax_locality");
    let relaxed = relaxed.and_then(|it| desk.truth(it, &format!("{path}.relax_locality")));
    for name in ["nodes", "racks"] {
        let Some(it) = find(node, name).filter(|it| !is_empty(it)) else {
            continue;
        };
        if relaxed == Some(true) {
            role.tree.put_in("placement", name, it.clone());
            continue;
        }
        let what = format!(
            "`{path}.{name}`: which {name} a task runs on can be wished for, and not demanded"
        );
        let hint = "set `relax_locality: true`, or use `node_label`";
        desk.wrong(&it.at, what, hint);
    }
}

fn script(desk: &mut Desk, role: &mut Role, path: &str, node: &Node) {
    let (script, commands) = (find(node, "script"), find(node, "commands"));
    match (script, commands) {
        (None, None) => {
            let what = format!("`{path}` has no `script`");
            desk.wrong(&node.at, what, "say what it runs");
        }
        (Some(_), Some(commands)) => {
            let what = format!("`{path}` has a `script` and `commands`");
            desk.wrong(&commands.at, what, "leave out `commands`");
        }
        (Some(script), None) => {
            let path = format!("{path}.script");
            if let Some(text) = desk.text(script, &path) {
                role.runs(desk, &path, script, text);
            }
        }
        // Before 0.6 a service had these, one after the other until one failed.
        (None, Some(commands)) => {
            let path = format!("{path}.commands");
            let lines = desk.texts(commands, &path);
            let script = match lines.is_empty() {
                true => String::new(),
                false => format!("set -e\n{}", lines.join("\n")),
            };
            role.runs(desk, &path, commands, script);
        }
    }
}

/// The job ends when the driver does, and as it does.
fn drive(desk: &mut Desk, name: String, driver: Driver<'_>, files: &mut Vec<Wanted>) -> Role {
    let Driver { script, node } = driver;
    let mut role = Role::new(name, node);
    role.resources(desk, "master", find(node, "resources"), Some(DRIVER_MIB));
    let primary = Node::plain(script.at.clone(), "primary");
    role.tree.put("completion", primary);
    if let Some(text) = desk.text(script, "master.script") {
        role.runs(desk, "master.script", script, text);
    }
    files::of(desk, &role.name, "master", find(node, "files"), files);
    role.variables(desk, "master", find(node, "env"));
    role
}
