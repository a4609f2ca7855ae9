//! Job specifications in scenario scripts: roles, timeouts, inputs and outputs.

use crate::builder::builder as plain;
use ydl_core::{
    Framework, JobSpecBuilder, RoleName, Span,
    spec::{
        Backoff, Completion, Input, InputForm, MemoryGrowth, Output, Range, ResizePolicy,
        RestartScope, RoleSpec, Serve,
    },
};

/// Applies a specification line to the builder; returns false for other lines.
pub fn specified(builder: &mut JobSpecBuilder, words: &[&str]) -> bool {
    match words[0] {
        "framework" => builder.framework = words[1].parse().expect("a framework"),
        "role" => builder.roles.push(role(&words[1..])),
        "gang" => {
            let gang = &mut builder.gang;
            gang.together = true;
            for (key, value) in options(&words[1..]) {
                match key {
                    "hold" => gang.hold = span(value),
                    "retries" => gang.retries = value.parse().unwrap(),
                    "backoff" => gang.backoff = backoff(value),
                    "settle" => gang.settle = span(value),
                    "told" => gang.resize = ResizePolicy::Notify,
                    _ => panic!("no option `{key}`"),
                }
            }
        }
        "timeouts" => {
            let d = &mut builder.timeouts;
            for (key, value) in options(&words[1..]) {
                match key {
                    "allocation" => d.allocation = span(value),
                    "launch" => d.launch = span(value),
                    "join" => d.join = span(value),
                    "fetch" => d.fetch = span(value),
                    "start" => d.start = span(value),
                    "run" => d.run = Some(span(value)),
                    "heartbeat" => d.heartbeat = span(value),
                    "grace" => d.grace = span(value),
                    "stop" => d.stop = span(value),
                    "upload" => d.upload = span(value),
                    "follow" => d.follow = span(value),
                    _ => panic!("no option `{key}`"),
                }
            }
        }
        "blame" => {
            for (key, value) in options(&words[1..]) {
                match key {
                    "failures" => builder.node_exclusion.failures = value.parse().unwrap(),
                    "forgive" => builder.node_exclusion.timeout = span(value),
                    _ => panic!("no option `{key}`"),
                }
            }
        }
        "outputs" => {
            let (from, to) = match words[1..] {
                [from, to] => (from, to),
                _ => ("model/", "/out"),
            };
            builder.outputs.push(Output::new(from, to));
        }
        "inputs" => builder.inputs.push(Input {
            name: "data".into(),
            source: "/data".into(),
            form: match words.contains(&"split") {
                true => InputForm::Split,
                false => InputForm::Copy,
            },
            roles: Vec::new(),
            allow_empty: words.contains(&"allow-empty"),
        }),
        _ => return false,
    }
    true
}

fn options<'a>(words: &'a [&str]) -> impl Iterator<Item = (&'a str, &'a str)> {
    words.iter().map(|word| word.split_once('=').unwrap_or((word, "")))
}

pub fn span(text: &str) -> Span {
    let digits = text.trim_end_matches(char::is_alphabetic);
    let n: u64 = digits.parse().unwrap();
    match &text[digits.len()..] {
        "ms" => Span(n),
        "s" => Span::seconds(n),
        "m" => Span::minutes(n),
        "h" => Span::hours(n),
        unit => panic!("no unit `{unit}`"),
    }
}

fn backoff(text: &str) -> Backoff {
    let (first, most) = text.split_once("..").unwrap_or((text, text));
    Backoff { initial: span(first), max: span(most) }
}

/// `4`, `2..4`, or `2..4:3` where it begins with three.
fn instances(text: &str) -> (u32, u32, u32) {
    let (range, first) = text.split_once(':').unwrap_or((text, ""));
    let (min, max) = range.split_once("..").unwrap_or((range, range));
    let max: u32 = max.parse().unwrap();
    (min.parse().unwrap(), max, first.parse().unwrap_or(max))
}

fn elastic(text: &str) -> Option<Range> {
    let (min, max, _) = instances(text);
    text.contains("..").then_some(Range { min, max })
}

fn role(words: &[&str]) -> RoleSpec {
    let first = instances(words[1]).2;
    let mut role = plain(Framework::None, &[(words[0], first)]).roles.remove(0);
    role.elastic = elastic(words[1]);
    for (key, value) in options(&words[2..]) {
        match key {
            "limit" => role.restart.limit = value.parse().unwrap(),
            "window" => role.restart.window = Some(span(value)),
            "backoff" => role.restart.backoff = backoff(value),
            "tolerate" => role.tolerate = value.parse().unwrap(),
            "grows" => {
                let (percent, most) = value.split_once("%..").unwrap();
                role.memory_growth = Some(MemoryGrowth {
                    percent: percent.parse().unwrap(),
                    max_mib: most.parse().unwrap(),
                });
            }
            "scope" => {
                role.restart.scope = match value {
                    "task" => RestartScope::Task,
                    "role" => RestartScope::Role,
                    "job" => RestartScope::Job,
                    _ => panic!("no scope `{value}`"),
                }
            }
            "after" => role.depends_on = value.split(',').map(RoleName::from).collect(),
            "any" => role.completion = Completion::Any,
            "decides" => role.completion = Completion::Primary,
            "service" => role.completion = Completion::Service,
            "follows" => role.completion = Completion::Follows,
            "beside" => role.completion = Completion::Sidecar,
            "serves" => {
                let (min, max, _) = instances(words[1]);
                role.elastic = None;
                role.completion = Completion::Service;
                role.serve = Some(Serve { replicas: Range { min, max }, ..Serve::default() });
            }
            "within" | "drain" | "watch" | "surge" | "unavailable" => {
                let serve = role.serve.as_mut().expect("the role serves");
                match key {
                    "within" => serve.within = span(value),
                    "drain" => serve.drain = span(value),
                    "watch" => serve.update.watch = span(value),
                    "surge" => serve.update.surge = value.parse().unwrap(),
                    _ => serve.update.unavailable = value.parse().unwrap(),
                }
            }
            _ => panic!("no option `{key}`"),
        }
    }
    role
}
