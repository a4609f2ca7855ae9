//! Services and the driver script, which become roles.

use super::{
    DEFAULT_LOCATION, Driver,
    context::{Context, MapBuilder, find, text_of},
    files::{self, ServiceFile},
    is_empty, programs,
    quantities::count,
    role::Role,
};
use ydl_jobfile::{Node, Value, valid_name};

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
/// Retry limit for `-1`.
const UNLIMITED: &str = "1000000";

/// Adds the roles of all services and of the driver script.
pub(crate) fn roles(
    context: &mut Context,
    job: &mut MapBuilder,
    services: Option<&Node>,
    driver: Option<Driver<'_>>,
    read: &dyn Fn(&str) -> Option<String>,
) {
    let mut files = Vec::new();
    let mut roles: Vec<Role> = Vec::new();
    let entries = services.map(|node| context.entries(node, "services"));
    for (key, node) in entries.unwrap_or_default() {
        let role = service(context, &key.name, node, &mut files);
        if roles.iter().any(|other| other.name == role.name) {
            let what = format!("`services.{}`: duplicate service `{}`", key.name, role.name);
            context.error(&key.at, what, "rename it");
            continue;
        }
        roles.push(role);
    }
    check_dependencies(context, services, &roles);
    if let Some(driver) = driver {
        let default = "driver".to_owned();
        let taken = roles.iter().any(|role| role.name == default);
        let name = if taken { "application-driver".to_owned() } else { default };
        roles.push(driver_role(context, name, driver, &mut files));
    }
    if roles.is_empty() && context.diagnostics.is_empty() {
        let at = services.map_or(DEFAULT_LOCATION, |node| node.at.clone());
        let what = "the specification has neither a service nor a `master.script`";
        context.error(&at, what, "");
    }
    programs::check(context, &roles, &files, read);
    files::add_to_job(job, &mut files);
    let mut all = MapBuilder::at(&services.map_or(DEFAULT_LOCATION, |node| node.at.clone()));
    for role in roles {
        let name = role.name.clone();
        all.put(&name, role.finish(&files));
    }
    job.put("roles", all.node());
}

/// Rejects dependencies on unknown services and cycles.
fn check_dependencies(context: &mut Context, services: Option<&Node>, roles: &[Role]) {
    let named = |name: &str| roles.iter().find(|role| role.service == name);
    for role in roles.iter().filter(|role| !role.depends.is_empty()) {
        let path = format!("services.{}.depends", role.service);
        let node = services.and_then(|all| find(all, &role.service));
        let at = node.and_then(|node| find(node, "depends"));
        let at = at.map_or(DEFAULT_LOCATION, |depends| depends.at.clone());
        if let Some(unknown) = role.depends.iter().find(|name| named(name).is_none()) {
            let known: Vec<_> = roles.iter().map(|role| role.service.as_str()).collect();
            let what = format!("`{path}`: unknown service `{unknown}`");
            let hint = format!("the services are `{}`", known.join("`, `"));
            context.error(&at, what, &hint);
            continue;
        }
        let (mut seen, mut next) = (Vec::new(), role.depends.clone());
        while let Some(name) = next.pop() {
            if name == role.service {
                let what = format!("`{path}`: service `{name}` depends on itself");
                context.error(&at, what, "remove one of the dependencies");
                break;
            }
            if !seen.contains(&name) {
                next.extend(named(&name).into_iter().flat_map(|it| it.depends.clone()));
                seen.push(name);
            }
        }
    }
}

fn service(context: &mut Context, name: &str, node: &Node, files: &mut Vec<ServiceFile>) -> Role {
    let path = format!("services.{name}");
    let role_name = valid_name(name);
    if role_name != name {
        context.note_at(&node.at, &format!("service `{name}` becomes role `{role_name}`"));
    }
    let mut role = Role::new(role_name, node);
    role.service = name.to_owned();
    context.known_entries(node, &path, SERVICE);
    let instances = find(node, "instances");
    if let Some(it) = instances
        && count(context, it, &format!("{path}.instances")).is_some()
    {
        role.tree.put("instances", it.clone());
    }
    if find(node, "resources").is_none() {
        let what = format!("`{path}` has no `resources`");
        context.error(&node.at, what, "add them, such as `{memory: 2 GiB, vcores: 1}`");
    }
    role.set_resources(context, &path, find(node, "resources"), None);
    let depends = find(node, "depends").filter(|it| !is_empty(it));
    if let Some(depends) = depends {
        role.depends = context.strings(depends, &format!("{path}.depends"));
        let names = role.depends.iter();
        let names = names.map(|name| Node::text(depends.at.clone(), valid_name(name)));
        let value = Value::List(names.collect());
        let at = depends.at.clone();
        role.tree.put("depends_on", Node { at, value });
    }
    set_restarts(context, &mut role, &path, node);
    set_placement(context, &mut role, &path, node);
    read_script(context, &mut role, &path, node);
    files::collect(context, &role.name, &path, find(node, "files"), files);
    role.set_variables(context, &path, find(node, "env"));
    role
}

/// Translates restarts and tolerated failures.
fn set_restarts(context: &mut Context, role: &mut Role, path: &str, node: &Node) {
    if let Some(it) = find(node, "max_restarts") {
        let path = format!("{path}.max_restarts");
        let limit = match text_of(it).map(str::trim) {
            Some("-1") => Some(UNLIMITED.to_owned()),
            _ => count(context, it, &path).map(|limit| limit.to_string()),
        };
        let several = find(node, "instances").and_then(text_of);
        let several = several.is_some_and(|n| n.trim() != "1");
        if let Some(limit) = limit.filter(|limit| limit != "0") {
            if several && limit != UNLIMITED {
                let what = format!("`{path}` applies to each task, not to all of them together");
                context.note_at(&it.at, &what);
            }
            let limit = Node::plain(it.at.clone(), limit);
            role.tree.put_in("restart", "limit", limit);
        }
    }
    if let Some(it) = find(node, "allow_failures")
        && context.boolean(it, &format!("{path}.allow_failures")) == Some(true)
    {
        role.tree.put("tolerate", Node::plain(it.at.clone(), "all"));
    }
}

/// Translates placement.
fn set_placement(context: &mut Context, role: &mut Role, path: &str, node: &Node) {
    if let Some(label) = find(node, "node_label").filter(|it| !is_empty(it)) {
        role.tree.put("node_label", label.clone());
    }
    let mut is_strict = false;
    let relaxed = find(node, "relax_locality");
    let relaxed = relaxed.and_then(|it| context.boolean(it, &format!("{path}.relax_locality")));
    for name in ["nodes", "racks"] {
        let Some(it) = find(node, name).filter(|it| !is_empty(it)) else {
            continue;
        };
        role.tree.put_in("placement", name, it.clone());
        if relaxed != Some(true) && !is_strict {
            is_strict = true;
            role.tree.put_in("placement", "strict", Node::plain(it.at.clone(), "true"));
        }
    }
}

fn read_script(context: &mut Context, role: &mut Role, path: &str, node: &Node) {
    let (script, commands) = (find(node, "script"), find(node, "commands"));
    match (script, commands) {
        (None, None) => {
            let what = format!("`{path}` has no `script`");
            context.error(&node.at, what, "write the commands to run");
        }
        (Some(_), Some(commands)) => {
            let what = format!("`{path}` has a `script` and `commands`");
            context.error(&commands.at, what, "remove `commands`");
        }
        (Some(script), None) => {
            let path = format!("{path}.script");
            if let Some(text) = context.text(script, &path) {
                role.set_script(context, &path, script, text);
            }
        }
        // Before skein 0.6 a service had commands, which ran until one failed.
        (None, Some(commands)) => {
            let path = format!("{path}.commands");
            let lines = context.strings(commands, &path);
            let script = match lines.is_empty() {
                true => String::new(),
                false => format!("set -e\n{}", lines.join("\n")),
            };
            role.set_script(context, &path, commands, script);
        }
    }
}

/// Creates the role of the driver script, whose end ends the job with its result.
fn driver_role(
    context: &mut Context,
    name: String,
    driver: Driver<'_>,
    files: &mut Vec<ServiceFile>,
) -> Role {
    let Driver { script, node } = driver;
    let mut role = Role::new(name, node);
    role.set_resources(context, "master", find(node, "resources"), Some(DRIVER_MIB));
    let primary = Node::plain(script.at.clone(), "primary");
    role.tree.put("completion", primary);
    if let Some(text) = context.text(script, "master.script") {
        role.set_script(context, "master.script", script, text);
    }
    files::collect(context, &role.name, "master", find(node, "files"), files);
    role.set_variables(context, "master", find(node, "env"));
    role
}
