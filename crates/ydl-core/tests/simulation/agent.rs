//! Agents and their programs. An agent compares its order with what it does and acts on the difference; it repeats
//! its reports until they are acknowledged; cut off, it stops its program and leaves.

mod program;

use super::{
    report::Report,
    world::{Happening, World},
};
use program::Program;
use ydl_core::{Order, TaskId};

/// Exit status of a partitioned agent.
const CUT_OFF: i32 = 70;

#[derive(Debug)]
pub struct Agent {
    /// Its task, once known.
    pub task: Option<TaskId>,
    wants: Wants,
    /// The order it acts on is the newest it has seen.
    stamp: u64,
    outbox: Vec<(u64, Report)>,
    reported: u64,
    /// Time of the last response.
    answered: u64,
    /// Time of the last request without a response.
    asked: Option<u64>,
    turn: u64,
    pub program: Option<Program>,
    /// The newest round that it started a program for, or tried to.
    began: u32,
    /// The newest round that it said it is ready for.
    ready: u32,
    /// It says nothing and does nothing any more.
    pub hung: bool,
    /// It is leaving by itself.
    quits: bool,
    saving: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wants {
    Nothing,
    Wait(u32),
    Run(u32),
    Stop { save: bool },
}

impl World {
    pub fn agent_is_born(&mut self, at: usize) {
        self.containers[at].dead = false;
        let faults = self.faults();
        if self.struck(faults.launches_vanish, 4) {
            // The container runs, and no agent will ever be heard.
            return;
        }
        if self.struck(faults.launches_fail, 6) {
            self.after(50, Happening::AgentLeaves { at, status: 1 });
        }
        self.containers[at].agent = Some(Agent {
            task: None,
            wants: Wants::Nothing,
            stamp: 0,
            outbox: Vec::new(),
            reported: 0,
            answered: self.now,
            asked: None,
            turn: 0,
            program: None,
            began: 0,
            ready: 0,
            hung: false,
            quits: false,
            saving: false,
        });
        let wait = self.random.from(20, 400);
        self.after(wait, Happening::AgentTurn { at, turn: 0 });
    }

    pub fn agent(&mut self, at: usize) -> Option<&mut Agent> {
        self.containers[at].agent.as_mut()
    }

    fn reaches_master(&self, at: usize) -> bool {
        let node = &self.nodes[self.containers[at].node];
        !node.dead && node.cut.is_none()
    }

    /// An agent's turn: it looks at its clock, and asks for its order.
    pub fn agent_turn(&mut self, at: usize, turn: u64) {
        let now = self.now;
        // Replicas stay without a master.
        let silence = match self.plan.serves() {
            true => u64::MAX,
            false => self.plan.spec.timeouts.heartbeat.0,
        };
        let Some(agent) = self.agent(at) else {
            return;
        };
        if agent.turn != turn || agent.hung || agent.quits {
            return;
        }
        let asking = agent.asked.is_some_and(|since| now < since + 1_000);
        if now >= agent.answered.saturating_add(silence) && !asking {
            agent.quits = true;
            self.stop_program(at);
            return;
        }
        agent.asked.get_or_insert(now);
        agent.turn += 1;
        let next = agent.turn;
        let reports = agent.outbox.clone();
        // What it has to say again is said again soon.
        let pause = if reports.is_empty() { 900 } else { 400 };
        let pause = self.random.from(pause, pause + 400);
        self.after(pause, Happening::AgentTurn { at, turn: next });
        let faults = self.faults();
        if self.struck(faults.requests_late, 12) && self.reaches_master(at) {
            let wait = self.random.from(200, 12_000);
            let hears = Happening::MasterHearsAgent { at, reports: reports.clone(), late: true };
            self.after(wait, hears);
        }
        if self.reaches_master(at) && !self.struck(faults.requests_lost, 20) {
            let wait = self.random.from(2, 60);
            let hears = Happening::MasterHearsAgent { at, reports, late: false };
            self.after(wait, hears);
        }
    }

    /// A new report is sent at once, and again until it is acknowledged.
    pub fn report(&mut self, at: usize, report: Report) {
        let Some(agent) = self.agent(at) else {
            return;
        };
        agent.reported += 1;
        agent.outbox.push((agent.reported, report));
        agent.turn += 1;
        let turn = agent.turn;
        self.after(1, Happening::AgentTurn { at, turn });
    }

    pub fn agent_hears(&mut self, at: usize, order: Order, stamp: u64, acked: u64) {
        let now = self.now;
        if !self.reaches_master(at) {
            return;
        }
        let Some(agent) = self.agent(at) else {
            return;
        };
        if agent.hung || agent.quits {
            return;
        }
        agent.answered = now;
        agent.asked = None;
        agent.outbox.retain(|(n, _)| *n > acked);
        if stamp < agent.stamp {
            return;
        }
        agent.stamp = stamp;
        self.obey(at, order);
    }

    fn obey(&mut self, at: usize, order: Order) {
        let Some(agent) = self.agent(at) else {
            return;
        };
        // Once it is leaving there is no way back.
        if matches!(agent.wants, Wants::Stop { .. }) {
            return;
        }
        let task = match &order {
            Order::Wait { task, .. } => Some(task.clone()),
            Order::Run(run) => Some(run.task.clone()),
            Order::Stop { .. } => agent.task.clone(),
        };
        assert!(
            agent.task.is_none() || agent.task == task,
            "a container is another task than before"
        );
        agent.task = task;
        let wants = match &order {
            Order::Wait { round, .. } => Wants::Wait(*round),
            Order::Run(run) => Wants::Run(run.round),
            Order::Stop { upload: save, .. } => Wants::Stop { save: *save },
        };
        if wants == agent.wants {
            return;
        }
        agent.wants = wants;
        let runs = agent.program.is_some();
        let began = agent.began;
        match wants {
            Wants::Nothing => {}
            Wants::Wait(_) | Wants::Stop { .. } if runs => self.stop_program(at),
            Wants::Wait(_) | Wants::Stop { .. } => self.program_is_gone(at),
            Wants::Run(round) => {
                let stale = agent.program.as_ref().is_some_and(|it| it.round != round);
                assert!(!stale, "told to run while a program of another round runs");
                if began < round {
                    agent.began = round;
                    self.begin_program(at, round);
                }
            }
        }
    }

    /// No program runs: what was waited for can be done.
    fn program_is_gone(&mut self, at: usize) {
        let outputs = !self.plan.spec.outputs.is_empty();
        let faults = self.faults();
        let slow = self.struck(faults.unsaved, 10);
        let long = self.random.from(50, 2_000);
        let quick = self.random.from(5, 300);
        let Some(agent) = self.agent(at) else {
            return;
        };
        if agent.quits {
            let status = CUT_OFF;
            self.after(50, Happening::AgentLeaves { at, status });
            return;
        }
        match agent.wants {
            Wants::Wait(round) if agent.ready < round => {
                self.after(quick, Happening::GetsReady { at, round });
            }
            Wants::Stop { save } if !agent.saving => {
                agent.saving = true;
                let saves = save && outputs;
                let wait = match (saves, slow) {
                    (true, true) => 60_000,
                    (true, false) => long,
                    (false, _) => quick,
                };
                self.after(wait, Happening::SaveEnds { at });
            }
            Wants::Nothing | Wants::Wait(_) | Wants::Run(_) | Wants::Stop { .. } => {}
        }
    }

    pub fn gets_ready(&mut self, at: usize, round: u32) {
        let faults = self.faults();
        let unready = self.struck(faults.unready, 5);
        let Some(agent) = self.agent(at) else {
            return;
        };
        let ready = agent.wants == Wants::Wait(round) && agent.ready < round;
        if !ready || agent.quits || agent.hung {
            return;
        }
        agent.ready = round;
        let report = if unready {
            Report::Unready { node: at.is_multiple_of(2) }
        } else {
            Report::Ready { round }
        };
        self.report(at, report);
    }

    pub fn save_ends(&mut self, at: usize) {
        let faults = self.faults();
        let fails = !self.plan.spec.outputs.is_empty() && self.struck(faults.unsaved, 10);
        let Some(agent) = self.agent(at) else {
            return;
        };
        if agent.quits || agent.hung {
            return;
        }
        let saves = matches!(agent.wants, Wants::Stop { save: true });
        let error = (fails && saves).then(|| "the disk is full".to_string());
        self.report(at, Report::Saved { error });
        let wait = self.random.from(1_500, 4_000);
        self.after(wait, Happening::AgentLeaves { at, status: 0 });
    }
}
