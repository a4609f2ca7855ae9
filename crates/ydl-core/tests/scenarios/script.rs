//! Runs scripts: a job specification and events, one per line. The output lists the core's actions.

mod events;
mod orders;
mod spec;

use crate::builder::builder;
use events::parse_event;
use expect_test::Expect;
use orders::{format_order, members};
use spec::{span, specified};
use std::fmt::Write;
use ydl_core::{
    Action, ContainerId, Event, Framework, Job, JobSpecBuilder, Order, RoleName, Time,
    serve::RouteState,
};

/// Runs the script and compares its output.
pub fn check(script: &str, expected: Expect) {
    let mut scenario = Scenario::default();
    for line in script.lines() {
        let line = line.trim();
        if !line.is_empty() {
            scenario.run_line(line);
        }
    }
    expected.assert_eq(scenario.output.trim_end());
}

struct Scenario {
    builder: JobSpecBuilder,
    job: Option<Job>,
    journal: Vec<(Time, Event)>,
    now: Time,
    /// The time that was last printed.
    shown: Time,
    output: String,
    /// Actions for the rendezvous are printed, too.
    with_rendezvous: bool,
}

impl Default for Scenario {
    fn default() -> Self {
        Scenario {
            builder: builder(Framework::None, &[]),
            job: None,
            journal: Vec::new(),
            now: Time(0),
            shown: Time(0),
            output: String::new(),
            with_rendezvous: false,
        }
    }
}

impl Scenario {
    fn run_line(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if specified(&mut self.builder, &words) {
            return;
        }
        match words[0] {
            "rendezvous" => self.with_rendezvous = true,
            "asks" => self.asks(),
            "reason" => {
                let reason = self.job().waiting_reason();
                self.print(&format!("reason: {reason}"));
            }
            "round" => {
                let round = self.job().view().round;
                self.print(&format!("round {round}"));
            }
            "scalable" => {
                let (role, instances) = (RoleName::from(words[1]), words[2].parse().unwrap());
                let verdict = match self.job().check_scale(&role, instances) {
                    Ok(()) => "yes".to_owned(),
                    Err(all) => all[0].message.clone(),
                };
                self.print(&format!("{role} to {instances}: {verdict}"));
            }
            "routes" => self.routes(),
            "revisions" => {
                let all = self.job().revisions(&RoleName::from(words[1]));
                let each = all.iter().map(|it| {
                    format!(
                        "{} wants {} and has {}, {} serve",
                        it.revision, it.want, it.replicas, it.serving
                    )
                });
                let text = each.collect::<Vec<_>>().join("; ");
                self.print(&text);
            }
            "updatable" => {
                let (role, revision) = (RoleName::from(words[1]), words[2].parse().unwrap());
                let verdict = match self.job().check_update(&role, revision, None) {
                    Ok(()) => "yes".to_owned(),
                    Err(issue) => issue.message,
                };
                self.print(&format!("{role} to revision {revision}: {verdict}"));
            }
            "attempts" => self.attempts(words[1], words[2]),
            "order" => self.order(words[1]),
            "deadline" => {
                let next = self.job().next_wakeup();
                let text = next.map_or("none".into(), |at| (at - Time(0)).to_string());
                self.print(&format!("next deadline: {text}"));
            }
            "states" => {
                let tasks = self.job().view().tasks;
                let states = tasks.iter().map(|it| format!("{} {}", it.task, it.state.word()));
                let text = states.collect::<Vec<_>>().join(", ");
                self.print(&text);
            }
            word if word.starts_with('+') => {
                self.now = self.now + span(&word[1..]);
                self.handle(Event::Ticked);
            }
            // Time that passes without a master.
            "without-master" => self.now = self.now + span(words[1]),
            word if word.starts_with('-') => self.now = Time(self.now.0 - span(&word[1..]).0),
            "up" => self.up(&words[1..]),
            "running" => self.running(&words[1..]),
            _ => self.run_event(&words),
        }
    }

    fn job(&mut self) -> &mut Job {
        if self.job.is_none() {
            let spec = self.builder.clone().build().expect("the script's job is valid");
            let (job, actions) = Job::new(spec, Time(0));
            self.job = Some(job);
            self.print_actions(actions);
        }
        self.job.as_mut().unwrap()
    }

    fn handle(&mut self, event: Event) {
        let now = self.now;
        let actions = self.job().handle(now, event.clone());
        self.journal.push((now, event));
        self.print_actions(actions);
        let spec = self.builder.clone().build().unwrap();
        let replayed = Job::replay(spec, Time(0), &self.journal);
        assert_eq!(replayed, *self.job(), "a replayed job is the same job");
    }

    fn print_actions(&mut self, actions: Vec<Action>) {
        for action in actions {
            let text = match action {
                Action::Launch { container, task, .. } => format!("launch {container} {task}"),
                Action::Release(container) => format!("release {container}"),
                Action::OrderChanged(container) => {
                    let order = self.job().order(&container);
                    format!("tell {container}: {}", format_order(&order))
                }
                Action::RoundStarted(cluster) if self.with_rendezvous => {
                    format!("began round {}: {}", cluster.round, members(&cluster))
                }
                Action::AttemptOver(run) if self.with_rendezvous => {
                    format!("over: {} (attempt {})", run.task, run.attempt)
                }
                Action::RoundStarted(_) | Action::AttemptOver(_) => continue,
                Action::MembersChanged(cluster) => format!("changed: {}", members(&cluster)),
                Action::Record(fact) => format!("· {}", fact.kind),
                Action::Finish(outcome) => format!("finish: {outcome}"),
            };
            self.print(&text);
        }
    }

    fn print(&mut self, text: &str) {
        if self.now != self.shown {
            self.shown = self.now;
            let _ = writeln!(self.output, "[{}]", self.now - Time(0));
        }
        let _ = writeln!(self.output, "{text}");
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
        self.print(&format!("asks: {text}"));
    }

    /// The replicas that gateways send requests to.
    fn routes(&mut self) {
        let table = self.job().routes().clone();
        let each = table.replicas.iter().map(|it| match it.state {
            RouteState::Serving => {
                format!("{} (revision {}, weight {})", it.container, it.revision, it.weight)
            }
            RouteState::Draining => format!("{} drains", it.container),
        });
        let mut text = each.collect::<Vec<_>>().join(", ");
        if text.is_empty() {
            text = "none".into();
        }
        self.print(&format!("routes {}: {text}", table.version));
    }

    fn order(&mut self, container: &str) {
        let order = self.job().order(&ContainerId::from(container));
        self.print(&format!("order {container}: {}", format_order(&order)));
    }

    /// The attempt that a task is at, and the one whose program is in a container.
    fn attempts(&mut self, task: &str, container: &str) {
        let job = self.job();
        let of = job.current_attempt(&task.parse().unwrap());
        let inside = job.attempt_in_container(&ContainerId::from(container));
        let format = |it: Option<u32>| it.map_or("none".to_owned(), |it| it.to_string());
        let text = format!("{task} is at {}, {container} has {}", format(of), format(inside));
        self.print(&text);
    }

    /// The round that the container's order names now, which is what an agent would answer with.
    fn round(&mut self, container: &str) -> u32 {
        match self.job().order(&ContainerId::from(container)) {
            Order::Wait { round, .. } => round,
            Order::Run(run) => run.round,
            Order::Stop { .. } => 1,
        }
    }

    fn run_event(&mut self, words: &[&str]) {
        let round = self.round(words.get(1).copied().unwrap_or(""));
        self.handle(parse_event(words, round));
    }

    /// Granted, launched and ready: the three that nearly always follow each other.
    fn up(&mut self, words: &[&str]) {
        self.run_event(&[&["granted"], words].concat());
        for word in ["launched", "ready"] {
            self.run_event(&[word, words[0]]);
        }
    }

    /// Usual start of a scenario: all tasks become ready in `c1`, `c2` and so on, then all start.
    /// `running` alone starts all tasks of all roles, `running worker 2 server 1` those. The
    /// details are tested in `start`; here one line summarizes them, and no other effect is
    /// allowed.
    fn running(&mut self, words: &[&str]) {
        let roles: Vec<(String, u32)> = match words {
            [] => {
                let all = self.builder.roles.iter();
                all.map(|it| (it.name.to_string(), it.instances)).collect()
            }
            _ => {
                let pairs = words.chunks(2);
                pairs.map(|it| (it[0].into(), it[1].parse().unwrap())).collect()
            }
        };
        let tasks = roles.iter().flat_map(|(role, n)| (0..*n).map(move |_| role));
        let containers: Vec<_> =
            tasks.enumerate().map(|(n, role)| (format!("c{}", n + 1), role.as_str())).collect();
        let before = self.output.len();
        for (container, role) in &containers {
            self.up(&[container, role]);
        }
        for (container, _) in &containers {
            self.run_event(&["started", container]);
        }
        for line in self.output.split_off(before).lines() {
            let begins = ["· the job started", "launch c", "· round 1 started with "];
            let expected = begins.iter().any(|it| line.starts_with(it))
                || line.starts_with("tell c") && line.contains(": run ")
                || line.ends_with(" runs on `n1` (attempt 1)");
            assert!(expected, "unexpected output of a start: {line}");
        }
        let (mut all, mut whole) = (Vec::new(), Vec::new());
        for (container, _) in &containers {
            let order = self.job().order(&ContainerId::from(container.as_str()));
            let Order::Run(run) = order else {
                panic!("{container} does not run: {}", format_order(&order));
            };
            all.push(format!("{} in {container}", run.task));
            whole.push(format!("round {}, of {}", run.round, members(&run.cluster)));
        }
        whole.dedup();
        assert_eq!(whole.len(), 1, "tasks run in different rounds: {whole:?}");
        self.print(&format!("running: {} in {}", all.join(", "), whole[0]));
    }
}
