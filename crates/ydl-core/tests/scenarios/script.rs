//! A life of a job as text: what is specified, then what happens, line by line; out comes what is done.

mod events;
mod orders;
mod spec;

use crate::builder::builder;
use events::event;
use expect_test::Expect;
use orders::{members, ordered};
use spec::{span, specified};
use std::fmt::Write;
use ydl_core::{Action, ContainerId, Event, Framework, Job, JobSpecBuilder, Order, RoleName, Time};

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
    builder: JobSpecBuilder,
    job: Option<Job>,
    journal: Vec<(Time, Event)>,
    now: Time,
    /// The time that was last printed.
    shown: Time,
    said: String,
    /// Actions for the rendezvous are printed, too.
    linked: bool,
}

impl Default for Life {
    fn default() -> Self {
        Life {
            builder: builder(Framework::None, &[]),
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
        if specified(&mut self.builder, &words) {
            return;
        }
        match words[0] {
            "linked" => self.linked = true,
            "asks" => self.asks(),
            "why" => {
                let why = self.job().why();
                self.say(&format!("why: {why}"));
            }
            "round" => {
                let round = self.job().view().round;
                self.say(&format!("round {round}"));
            }
            "scalable" => {
                let (role, instances) = (RoleName::from(words[1]), words[2].parse().unwrap());
                let said = match self.job().check_scale(&role, instances) {
                    Ok(()) => "yes".to_owned(),
                    Err(all) => all[0].message.clone(),
                };
                self.say(&format!("{role} to {instances}: {said}"));
            }
            "attempts" => self.attempts(words[1], words[2]),
            "order" => self.order(words[1]),
            "deadline" => {
                let next = self.job().next_wakeup();
                let text = next.map_or("none".into(), |at| (at - Time(0)).to_string());
                self.say(&format!("next deadline: {text}"));
            }
            "states" => {
                let tasks = self.job().view().tasks;
                let states = tasks.iter().map(|it| format!("{} {}", it.task, it.state.word()));
                let text = states.collect::<Vec<_>>().join(", ");
                self.say(&text);
            }
            word if word.starts_with('+') => {
                self.now = self.now + span(&word[1..]);
                self.happened(Event::Ticked);
            }
            // Time that passes without a master.
            "later" => self.now = self.now + span(words[1]),
            word if word.starts_with('-') => self.now = Time(self.now.0 - span(&word[1..]).0),
            "up" => self.up(&words[1..]),
            "running" => self.running(&words[1..]),
            _ => self.happens(&words),
        }
    }

    fn job(&mut self) -> &mut Job {
        if self.job.is_none() {
            let spec = self.builder.clone().build().expect("the script's job is valid");
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
        let spec = self.builder.clone().build().unwrap();
        let replayed = Job::replay(spec, Time(0), &self.journal);
        assert_eq!(replayed, *self.job(), "a replayed job is the same job");
    }

    fn done(&mut self, actions: Vec<Action>) {
        for action in actions {
            let text = match action {
                Action::Launch { container, task, .. } => format!("launch {container} {task}"),
                Action::Release(container) => format!("release {container}"),
                Action::OrderChanged(container) => {
                    let order = self.job().order(&container);
                    format!("tell {container}: {}", ordered(&order))
                }
                Action::RoundStarted(cluster) if self.linked => {
                    format!("began round {}: {}", cluster.round, members(&cluster))
                }
                Action::AttemptOver(run) if self.linked => {
                    format!("over: {} (attempt {})", run.task, run.attempt)
                }
                Action::RoundStarted(_) | Action::AttemptOver(_) => continue,
                Action::MembersChanged(cluster) => format!("changed: {}", members(&cluster)),
                Action::Record(fact) => format!("· {}", fact.kind),
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

    /// The attempt that a task is at, and the one whose program is in a container.
    fn attempts(&mut self, task: &str, container: &str) {
        let job = self.job();
        let of = job.current_attempt(&task.parse().unwrap());
        let inside = job.attempt_in_container(&ContainerId::from(container));
        let said = |it: Option<u32>| it.map_or("none".to_owned(), |it| it.to_string());
        let text = format!("{task} is at {}, {container} has {}", said(of), said(inside));
        self.say(&text);
    }

    /// The round that the container's order names now, which is what an agent would answer with.
    fn round(&mut self, container: &str) -> u32 {
        match self.job().order(&ContainerId::from(container)) {
            Order::Wait { round, .. } => round,
            Order::Run(run) => run.round,
            Order::Stop { .. } => 1,
        }
    }

    fn happens(&mut self, words: &[&str]) {
        let round = self.round(words.get(1).copied().unwrap_or(""));
        self.happened(event(words, round));
    }

    /// Granted, launched and ready: the three that nearly always follow each other.
    fn up(&mut self, words: &[&str]) {
        self.happens(&[&["granted"], words].concat());
        for word in ["launched", "ready"] {
            self.happens(&[word, words[0]]);
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
        let before = self.said.len();
        for (container, role) in &containers {
            self.up(&[container, role]);
        }
        for (container, _) in &containers {
            self.happens(&["started", container]);
        }
        for line in self.said.split_off(before).lines() {
            let begins = ["· the job started", "launch c", "· round 1 started with "];
            let expected = begins.iter().any(|it| line.starts_with(it))
                || line.starts_with("tell c") && line.contains(": run ")
                || line.ends_with(" runs on `n1` (attempt 1)");
            assert!(expected, "more happened than that everybody runs: {line}");
        }
        let (mut all, mut whole) = (Vec::new(), Vec::new());
        for (container, _) in &containers {
            let order = self.job().order(&ContainerId::from(container.as_str()));
            let Order::Run(run) = order else {
                panic!("{container} does not run: {}", ordered(&order));
            };
            all.push(format!("{} in {container}", run.task));
            whole.push(format!("round {}, of {}", run.round, members(&run.cluster)));
        }
        whole.dedup();
        assert_eq!(whole.len(), 1, "they run in different rounds: {whole:?}");
        self.say(&format!("running: {} in {}", all.join(", "), whole[0]));
    }
}
