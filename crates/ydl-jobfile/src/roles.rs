//! Reads the roles.

use super::{
    fields::{Map, Reader, choice, count, or_none},
    tree::{Node, Value},
    units::{Rejection, size_mib, span},
    words,
};
use std::collections::BTreeMap;
use ydl_core::{
    Framework, RoleName, Span,
    framework::RoleDefaults,
    spec::{
        Backoff, Command, Completion, MAX_TASKS, MemoryGrowth, Range, Resources, Restart,
        RestartScope, RoleSpec,
    },
};

pub const SCOPES: [(&str, RestartScope); 3] =
    [("task", RestartScope::Task), ("role", RestartScope::Role), ("job", RestartScope::Job)];
pub const COMPLETIONS: [(&str, Completion); 6] = [
    ("all", Completion::All),
    ("any", Completion::Any),
    ("primary", Completion::Primary),
    ("service", Completion::Service),
    ("follows", Completion::Follows),
    ("sidecar", Completion::Sidecar),
];
/// Placeholder for a missing or invalid maximum, which has a diagnostic.
const GROWTH_MAX_MIB: u64 = u64::MAX;

/// Keys of `restart` that are set.
#[derive(Clone, Copy, Default)]
pub struct PartialRestart {
    scope: Option<RestartScope>,
    limit: Option<u32>,
    first: Option<Span>,
    most: Option<Span>,
    window: Option<Option<Span>>,
}

impl PartialRestart {
    /// Fills missing keys from another policy.
    fn or(self, other: PartialRestart) -> PartialRestart {
        PartialRestart {
            scope: self.scope.or(other.scope),
            limit: self.limit.or(other.limit),
            first: self.first.or(other.first),
            most: self.most.or(other.most),
            window: self.window.or(other.window),
        }
    }

    fn complete(self, scope: RestartScope, limit: u32) -> Restart {
        let backoff = Restart::default().backoff;
        let first = self.first.unwrap_or(backoff.initial);
        // The default maximum is never less than the initial delay.
        let most = self.most.unwrap_or(backoff.max.max(first));
        Restart {
            scope: self.scope.unwrap_or(scope),
            limit: self.limit.unwrap_or(limit),
            backoff: Backoff { initial: first, max: most },
            window: self.window.flatten(),
        }
    }
}

impl Reader {
    pub fn restart(&mut self, map: &Map) -> PartialRestart {
        let Some(node) = map.find("restart") else {
            return PartialRestart::default();
        };
        let map = self.map(node, &map.key("restart"), "restart");
        let (first, most) = self.backoff(&map, "restart.backoff");
        PartialRestart {
            scope: self.value(&map, "scope", choice(&SCOPES)),
            limit: self.value(&map, "limit", count),
            first,
            most,
            window: self.value(&map, "window", or_none(span)),
        }
    }

    pub fn backoff(&mut self, map: &Map, table: &str) -> (Option<Span>, Option<Span>) {
        let Some(node) = map.find("backoff") else {
            return (None, None);
        };
        let map = self.map(node, &map.key("backoff"), table);
        (self.value(&map, "initial", span), self.value(&map, "max", span))
    }

    pub fn env(&mut self, map: &Map) -> BTreeMap<String, String> {
        let Some(node) = map.find("env") else {
            return BTreeMap::new();
        };
        let path = map.key("env");
        let mut env = BTreeMap::new();
        for (name, value) in self.entries(node, &path) {
            if let Some(text) = self.text_of(value, &format!("{path}.{}", name.name)) {
                env.insert(name.name.clone(), text);
            }
        }
        env
    }

    /// Reads all roles, and completes commands that the framework shares.
    pub fn roles(&mut self, job: &Map, framework: Framework) -> Vec<RoleSpec> {
        let Some(node) = job.find("roles") else {
            return Vec::new();
        };
        let fallback = self.restart(job);
        let mut roles = Vec::new();
        let entries = self.entries(node, "roles");
        let names: Vec<_> = entries.iter().map(|(name, _)| name.name.as_str()).collect();
        for (name, node) in entries {
            let defaults = framework.role_defaults(&name.name, &names);
            roles.push(self.role(&name.name, node, defaults, fallback));
        }
        let commands: Vec<_> = roles.iter().map(|r| (r.name.clone(), r.command.clone())).collect();
        for role in &mut roles {
            let of = framework.command_fallbacks(role.name.as_str()).iter();
            let there = of.filter_map(|of| commands.iter().find(|(name, _)| name.as_str() == *of));
            // The first with a command, otherwise the first.
            let other = there.min_by_key(|(_, command)| is_empty(command));
            if let (true, Some((_, command))) = (is_empty(&role.command), other) {
                role.command = command.clone();
                if is_empty(command) {
                    // Reported once, for the other role.
                    self.reported.insert(format!("roles.{}.run", role.name));
                }
            }
        }
        roles
    }

    fn role(
        &mut self,
        name: &str,
        node: &Node,
        mut defaults: RoleDefaults,
        fallback: PartialRestart,
    ) -> RoleSpec {
        let path = format!("roles.{name}");
        // `server:` without a value has all defaults.
        let empty = Node::map(node.at.clone());
        let node = if node.value == Value::Null { &empty } else { node };
        let map = self.map(node, &path, "roles.*");
        let (instances, elastic) = self.instances(&map);
        if elastic.is_some() && defaults.scope == RestartScope::Task {
            // A change of members affects all tasks of the round.
            defaults.scope = RestartScope::Job;
        }
        let limit = match elastic {
            Some(_) => Restart::ELASTIC_LIMIT,
            None => 0,
        };
        RoleSpec {
            name: RoleName::from(name),
            instances,
            elastic,
            processes: self.value(&map, "processes", count).unwrap_or(1),
            resources: self.resources(&map),
            command: self.command(&map),
            environment: self.role_environment(&map),
            env: self.env(&map),
            restart: self.restart(&map).or(fallback).complete(defaults.scope, limit),
            completion: self
                .value(&map, "completion", choice(&COMPLETIONS))
                .unwrap_or(defaults.completion),
            tolerate: self.value(&map, "tolerate", tolerated).unwrap_or(0),
            memory_growth: self.memory_growth(&map),
            ports: self.ports(&map),
            placement: self.placement(&map),
            depends_on: self.after(&map),
        }
    }

    fn after(&mut self, map: &Map) -> Vec<RoleName> {
        let path = map.key("depends_on");
        let mut after = Vec::new();
        for item in self.list(map, "depends_on") {
            let name = self.text_of(item, &path).map(RoleName::from);
            after.extend(name.filter(|name| !after.contains(name)));
        }
        after
    }

    /// Reads the initial number of tasks and the elastic range.
    fn instances(&mut self, map: &Map) -> (u32, Option<Range>) {
        let Some(node) = map.find("instances") else {
            return (1, None);
        };
        let path = map.key("instances");
        let Value::Map(_) = &node.value else {
            return (self.value_of(node, &path, instances).unwrap_or(1), None);
        };
        let map = self.map(node, &path, "roles.*.instances");
        for name in ["min", "max"] {
            if map.find(name).is_none() && !self.reported.contains(&map.key(name)) {
                let what = format!("an elastic role needs `{name}`");
                let hint = "write `instances: {min: 2, max: 4}`";
                self.reject(&node.at, &path, what, hint);
            }
        }
        let min = self.value(&map, "min", instances).unwrap_or(1);
        let max = self.value(&map, "max", instances).unwrap_or(min.max(1));
        let first = self.value(&map, "start", instances).unwrap_or(max);
        (first, Some(Range { min, max }))
    }

    fn resources(&mut self, map: &Map) -> Resources {
        let default = RoleSpec::default().resources;
        let mut other = BTreeMap::new();
        if let Some(node) = map.find("resources") {
            let path = map.key("resources");
            for (name, node) in self.entries(node, &path) {
                if let Some(n) = self.value_of(node, &format!("{path}.{}", name.name), count) {
                    other.insert(name.name.clone(), n);
                }
            }
        }
        Resources {
            memory_mib: self.value(map, "memory", size_mib).unwrap_or(default.memory_mib),
            vcores: self.value(map, "vcores", count).unwrap_or(default.vcores),
            gpus: self.value(map, "gpus", count).unwrap_or(default.gpus),
            other,
        }
    }

    /// Reads the command; empty if it is missing or invalid, which is reported.
    fn command(&mut self, map: &Map) -> Command {
        let Some(run) = map.find("run") else {
            let Some(shell) = map.find("shell") else {
                return Command::Program(Vec::new());
            };
            let script = self.text(map, "shell").unwrap_or_default();
            if script.trim().is_empty() {
                if !self.reported.contains(&map.key("shell")) {
                    self.reject(&shell.at, &map.key("shell"), "empty script", "");
                }
                self.reported.insert(map.key("run"));
            }
            return Command::Shell(script);
        };
        if let Some(shell) = map.find("shell") {
            let what = "a role has either `run` or `shell`, not both";
            self.reject(&shell.at, &map.key("shell"), what, "");
        }
        let path = map.key("run");
        if let Value::List(items) = &run.value {
            let words = items.iter().map(|item| self.text_of(item, &path));
            return Command::Program(words.collect::<Option<_>>().unwrap_or_default());
        }
        Command::Program(self.value_of(run, &path, words::split).unwrap_or_default())
    }

    fn memory_growth(&mut self, map: &Map) -> Option<MemoryGrowth> {
        let node = map.find("memory_growth")?;
        let map = self.map(node, &map.key("memory_growth"), "roles.*.memory_growth");
        if map.find("max").is_none() && !self.reported.contains(&map.path) {
            let hint = "add `max: 8 GiB`";
            self.reject(&node.at, &map.key("max"), "missing upper limit", hint);
        }
        Some(MemoryGrowth {
            percent: self.value(&map, "percent", count).unwrap_or(MemoryGrowth::PERCENT),
            max_mib: self.value(&map, "max", size_mib).unwrap_or(GROWTH_MAX_MIB),
        })
    }

    fn ports(&mut self, map: &Map) -> Vec<String> {
        let path = map.key("ports");
        self.list(map, "ports").iter().filter_map(|item| self.text_of(item, &path)).collect()
    }
}

fn instances(text: &str) -> Result<u32, Rejection> {
    let n = count(text)?;
    if u64::from(n) > MAX_TASKS {
        let what = format!("{n} instances exceed the maximum of {MAX_TASKS} tasks");
        return Err((what, String::new()));
    }
    Ok(n)
}

/// Parses the number of tolerated failures, or `all`.
fn tolerated(text: &str) -> Result<u32, Rejection> {
    match text {
        "all" => Ok(RoleSpec::ALL_MAY_FAIL),
        text => count(text),
    }
}

fn is_empty(command: &Command) -> bool {
    match command {
        Command::Program(words) => words.is_empty(),
        Command::Shell(_) => false,
    }
}
