//! A life of a job as text: what is specified, then what happens, line by line; out comes what is done.

use crate::draft::draft;
use expect_test::Expect;
use std::{collections::BTreeMap, fmt::Write};
use ydl_core::{
    Action, Cluster, ContainerEnd, ContainerId, Draft, Endpoint, Event, Exit, Framework, Grant,
    Job, JobSpec, NodeName, Order, RoleName, Span, Time,
    spec::{
        Backoff, Completion, Input, InputForm, MemoryGrowth, Output, Range, Reform, Resources,
        RoleSpec, Scope,
    },
};

/// Lives the script and compares what was done.
pub fn check(script: &str, expected: Expect) {
    let mut life = Life::default();
    for line in script.lines() {
        let line = line.trim();
        if !line.is_empty() {
            life.line(line);
        }
    }
    expected.assert_eq(life.said.trim_end());
}

struct Life {
    draft: Draft,
    job: Option<Job>,
    journal: Vec<(Time, Event)>,
    now: Time,
    /// The time that was last printed.
    shown: Time,
    said: String,
    /// What only the rendezvous is told is printed, too.
    linked: bool,
}

impl Default for Life {
    fn default() -> Self {
        Life {
            draft: draft(Framework::None, &[]),
            job: None,
            journal: Vec::new(),
            now: Time(0),
            shown: Time(0),
            said: String::new(),
            linked: false,
        }
    }
}

impl Life {
    fn line(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[0] {
            "role" => self.draft.roles.push(role(&words[1..])),
            "gang" => {
                let gang = &mut self.draft.gang;
                gang.together = true;
                for (key, value) in options(&words[1..]) {
                    match key {
                        "hold" => gang.hold = span(value),
                        "retries" => gang.retries = value.parse().unwrap(),
                        "backoff" => gang.backoff = backoff(value),
                        "settle" => gang.settle = span(value),
                        "told" => gang.reform = Reform::Told,
                        _ => panic!("no option `{key}`"),
                    }
                }
            }
            "deadlines" => {
                let d = &mut self.draft.deadlines;
                for (key, value) in options(&words[1..]) {
                    match key {
                        "allocation" => d.allocation = span(value),
                        "launch" => d.launch = span(value),
                        "join" => d.join = span(value),
                        "fetch" => d.fetch = span(value),
                        "start" => d.start = span(value),
                        "run" => d.run = Some(span(value)),
                        "silence" => d.silence = span(value),
                        "grace" => d.grace = span(value),
                        "stop" => d.stop = span(value),
                        "save" => d.save = span(value),
                        "follow" => d.follow = span(value),
                        _ => panic!("no option `{key}`"),
                    }
                }
            }
            "blame" => {
                for (key, value) in options(&words[1..]) {
                    match key {
                        "failures" => self.draft.blame.failures = value.parse().unwrap(),
                        "forgive" => self.draft.blame.forgive_after = span(value),
                        _ => panic!("no option `{key}`"),
                    }
                }
            }
            "outputs" => {
                let (from, to) = match words[1..] {
                    [from, to] => (from, to),
                    _ => ("model/", "/out"),
                };
                self.draft.outputs.push(Output::new(from, to));
            }
            "inputs" => self.draft.inputs.push(Input {
                name: "data".into(),
                source: "/data".into(),
                form: match words.contains(&"split") {
                    true => InputForm::Split,
                    false => InputForm::Copy,
                },
                roles: Vec::new(),
                allow_empty: words.contains(&"allow-empty"),
            }),
            "linked" => self.linked = true,
            "asks" => self.asks(),
            "why" => {
                let why = self.job().why();
                self.say(&format!("why: {why}"));
            }
            "scalable" => {
                let (role, instances) = (RoleName::from(words[1]), words[2].parse().unwrap());
                let said = match self.job().scalable(&role, instances) {
                    Ok(()) => "yes".to_owned(),
                    Err(all) => all[0].what.clone(),
                };
                self.say(&format!("{role} to {instances}: {said}"));
            }
            "order" => self.order(words[1]),
            "deadline" => {
                let next = self.job().next_deadline();
                let text = next.map_or("none".into(), |at| (at - Time(0)).to_string());
                self.say(&format!("next deadline: {text}"));
            }
            "states" => {
                let tasks = self.job().view().tasks;
                let states = tasks
                    .iter()
                    .map(|it| format!("{} {}", it.task, it.state.word()));
                let text = states.collect::<Vec<_>>().join(", ");
                self.say(&text);
            }
            word if word.starts_with('+') => {
                self.now = self.now + span(&word[1..]);
                self.happened(Event::Ticked);
            }
            // Time that nobody was there to notice.
            "later" => self.now = self.now + span(words[1]),
            word if word.starts_with('-') => self.now = Time(self.now.0 - span(&word[1..]).0),
            _ => {
                for event in self.events(&words) {
                    self.happened(event);
                }
            }
        }
    }

    fn job(&mut self) -> &mut Job {
        if self.job.is_none() {
            let spec = JobSpec::new(self.draft.clone()).expect("the script's job is valid");
            let (job, actions) = Job::new(spec, Time(0));
            self.job = Some(job);
            self.done(actions);
        }
        self.job.as_mut().unwrap()
    }

    fn happened(&mut self, event: Event) {
        let now = self.now;
        let actions = self.job().handle(now, event.clone());
        self.journal.push((now, event));
        self.done(actions);
        let spec = JobSpec::new(self.draft.clone()).unwrap();
        let replayed = Job::replay(spec, Time(0), &self.journal);
        assert_eq!(replayed, *self.job(), "a replayed job is the same job");
    }

    fn done(&mut self, actions: Vec<Action>) {
        for action in actions {
            let text = match action {
                Action::Launch {
                    container, task, ..
                } => format!("launch {container} {task}"),
                Action::Release(container) => format!("release {container}"),
                Action::Tell(container) => {
                    let order = self.job().order(&container);
                    format!("tell {container}: {}", ordered(&order))
                }
                Action::Began(cluster) if self.linked => {
                    format!("began round {}: {}", cluster.round, members(&cluster))
                }
                Action::Over(run) if self.linked => {
                    format!("over: {} (attempt {})", run.task, run.attempt)
                }
                Action::Began(_) | Action::Over(_) => continue,
                Action::Changed(cluster) => format!("changed: {}", members(&cluster)),
                Action::Record(fact) => format!("· {}", fact.what),
                Action::Finish(outcome) => format!("finish: {outcome}"),
            };
            self.say(&text);
        }
    }

    fn say(&mut self, text: &str) {
        if self.now != self.shown {
            self.shown = self.now;
            let _ = writeln!(self.said, "[{}]", self.now - Time(0));
        }
        let _ = writeln!(self.said, "{text}");
    }

    fn asks(&mut self) {
        let asks = self.job().asks();
        let each = asks.asks.iter();
        let lines = each.map(|ask| format!("{} × {} ({})", ask.count, ask.role, ask.resources));
        let mut text = lines.collect::<Vec<_>>().join(", ");
        if text.is_empty() {
            text = "nothing".into();
        }
        for node in asks.avoid {
            let _ = write!(text, ", not on {node}");
        }
        self.say(&format!("asks: {text}"));
    }

    fn order(&mut self, container: &str) {
        let order = self.job().order(&ContainerId::from(container));
        self.say(&format!("order {container}: {}", ordered(&order)));
    }

    /// The round that the container's order names now, which is what an agent would answer with.
    fn round(&mut self, container: &str) -> u32 {
        match self.job().order(&ContainerId::from(container)) {
            Order::Wait { round, .. } => round,
            Order::Run(run) => run.round,
            Order::Stop { .. } => 1,
        }
    }

    fn events(&mut self, words: &[&str]) -> Vec<Event> {
        let at = |n: usize| words.get(n).copied().unwrap_or("");
        let rest = |n: usize| words.get(n..).unwrap_or_default().join(" ");
        let container = ContainerId::from(at(1));
        let event = match words[0] {
            "nodes" => Event::Counted {
                nodes: at(1).parse().unwrap(),
            },
            "granted" => Event::Granted {
                grants: vec![grant(&words[1..])],
            },
            // Granted, launched and ready: the three that nearly always follow each other.
            "up" => {
                let grants = vec![grant(&words[1..])];
                let launched = Event::Launched {
                    container: container.clone(),
                };
                self.happened(Event::Granted { grants });
                self.happened(launched);
                return self.events(&["ready", at(1)]);
            }
            "launched" => Event::Launched { container },
            "launch-failed" => Event::LaunchFailed {
                container,
                why: rest(2),
            },
            "ended" => Event::Ended {
                containers: rest(1).split(", ").map(ended).collect(),
            },
            "warned" => Event::Warned { container },
            "impossible" => Event::Impossible { why: rest(1) },
            "ready" => Event::Ready {
                round: at(2).parse().unwrap_or_else(|_| self.round(at(1))),
                endpoint: Endpoint {
                    host: format!("host-of-{container}"),
                    ports: BTreeMap::new(),
                },
                container,
            },
            "unready" | "unfit" => Event::Unready {
                container,
                why: rest(2),
                node: at(0) == "unfit",
            },
            "started" => Event::Started {
                round: at(2).parse().unwrap_or_else(|_| self.round(at(1))),
                container,
            },
            "exited" => {
                let (exit, round) = exit(&words[2..]);
                Event::Exited {
                    round: round.unwrap_or_else(|| self.round(at(1))),
                    container,
                    exit,
                }
            }
            "saved" => Event::Saved {
                container,
                error: words.get(2).map(|_| rest(2)),
            },
            "quiet" => Event::Quieted { container },
            "heard" => Event::Heard { container },
            "kill" => Event::Killed {
                by: at(1).into(),
                now: false,
            },
            "kill-now" => Event::Killed {
                by: at(1).into(),
                now: true,
            },
            "scale" => Event::Scaled {
                role: RoleName::from(at(1)),
                instances: at(2).parse().unwrap(),
            },
            "recovered" => Event::Recovered {
                live: words[1..].iter().copied().map(ContainerId::from).collect(),
            },
            other => panic!("no event `{other}`"),
        };
        vec![event]
    }
}

fn ordered(order: &Order) -> String {
    match order {
        Order::Wait { round, task, .. } => format!("wait as {task} for round {round}"),
        Order::Run(run) => {
            let rank = match run.cluster.roles.iter().all(|it| it.indexes.is_empty()) {
                true => String::new(),
                false => format!(" as rank {}", run.cluster.rank(&run.task)),
            };
            format!(
                "run {}{rank} in round {}, attempt {}, of {}",
                run.task,
                run.round,
                run.attempt,
                members(&run.cluster)
            )
        }
        Order::Stop { save: true, .. } => "stop and save".into(),
        Order::Stop { save: false, .. } => "stop".into(),
    }
}

fn members(cluster: &Cluster) -> String {
    let known = |hosts: usize, all: u32| {
        if hosts == 0 {
            String::new()
        } else {
            format!(" at {hosts} of {all} addresses")
        }
    };
    let sizes = cluster.roles.iter().map(|it| {
        let hosts = it.endpoints.iter().filter(|it| !it.host.is_empty()).count();
        let which = match it.indexes.is_empty() {
            true => String::new(),
            false => format!(" {:?}", it.indexes),
        };
        let known = known(hosts, it.instances);
        format!("{} {}{which}{known}", it.instances, it.role)
    });
    sizes.collect::<Vec<_>>().join(", ")
}

fn options<'a>(words: &'a [&str]) -> impl Iterator<Item = (&'a str, &'a str)> {
    words
        .iter()
        .map(|word| word.split_once('=').unwrap_or((word, "")))
}

fn span(text: &str) -> Span {
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
    Backoff {
        first: span(first),
        most: span(most),
    }
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
    let mut role = draft(Framework::None, &[(words[0], first)]).roles.remove(0);
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
                    most_mib: most.parse().unwrap(),
                });
            }
            "scope" => {
                role.restart.scope = match value {
                    "task" => Scope::Task,
                    "role" => Scope::Role,
                    "job" => Scope::Job,
                    _ => panic!("no scope `{value}`"),
                }
            }
            "after" => role.after = value.split(',').map(RoleName::from).collect(),
            "any" => role.completion = Completion::Any,
            "decides" => role.completion = Completion::Decides,
            "service" => role.completion = Completion::Service,
            "follows" => role.completion = Completion::Follows,
            "beside" => role.completion = Completion::Beside,
            _ => panic!("no option `{key}`"),
        }
    }
    role
}

/// `c1 worker n1 1024`: node and memory may be left out.
fn grant(words: &[&str]) -> Grant {
    Grant {
        container: ContainerId::from(words[0]),
        role: RoleName::from(words[1]),
        node: NodeName::from(words.get(2).copied().unwrap_or("n1")),
        resources: Resources {
            memory_mib: words.get(3).map_or(1024, |it| it.parse().unwrap()),
            vcores: 1,
            ..Resources::default()
        },
    }
}

fn ended(text: &str) -> (ContainerId, ContainerEnd) {
    let words: Vec<&str> = text.split_whitespace().collect();
    let number = |at: usize| words[at].parse().unwrap();
    let end = match words[1] {
        "completed" => ContainerEnd::Completed {
            status: words[2].parse().unwrap(),
        },
        "memory" => ContainerEnd::MemoryLimit {
            used_mib: number(2),
            limit_mib: number(3),
        },
        "preempted" => ContainerEnd::Preempted,
        "lost" => ContainerEnd::NodeLost,
        "fault" => ContainerEnd::NodeFault {
            why: words[2..].join(" "),
        },
        "released" => ContainerEnd::Released,
        other => panic!("no end `{other}`"),
    };
    (ContainerId::from(words[0]), end)
}

/// `0`, `1`, `sig9`, `not-started`, then `container` where the container was signalled, `round=2` where it is not
/// the round of the standing order.
fn exit(words: &[&str]) -> (Exit, Option<u32>) {
    let mut exit = Exit {
        stderr_tail: "last words".into(),
        ..Exit::default()
    };
    if let Some(signal) = words[0].strip_prefix("sig") {
        exit.signal = Some(signal.parse().unwrap());
    } else if words[0] == "not-started" {
        exit.not_started = Some("`trian.py` was not found".into());
    } else {
        exit.code = Some(words[0].parse().unwrap());
    }
    exit.container_signalled = words.contains(&"container");
    let port = words.iter().find_map(|word| word.strip_prefix("port="));
    exit.port_taken = port.map(|it| it.parse().unwrap());
    exit.outdated = words.contains(&"outdated");
    let round = words.iter().find_map(|word| word.strip_prefix("round="));
    (exit, round.map(|it| it.parse().unwrap()))
}
