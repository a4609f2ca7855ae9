//! Agents and their programs. An agent compares its order with what it does and acts on the difference; it repeats
//! its reports until they are acknowledged; cut off, it stops its program and leaves.

use super::{
    elastic::WHOLE_AFTER,
    report::{Fate, Report},
    world::{Happening, World},
};
use ydl_core::{
    ContainerEnd, Exit, Order, RoleName, TaskId,
    spec::{Completion, Reform},
};

/// What an agent exits with when it was cut off.
const CUT_OFF: i32 = 70;

#[derive(Debug)]
pub struct Agent {
    /// Which task it is, once it was told.
    pub task: Option<TaskId>,
    wants: Wants,
    /// The order it acts on is the newest it has seen.
    stamp: u64,
    outbox: Vec<(u64, Report)>,
    reported: u64,
    /// When an answer last came.
    answered: u64,
    /// When it last asked, while no answer has come.
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

#[derive(Debug)]
pub struct Program {
    pub round: u32,
    /// Which of its planned ends is the one that counts.
    plan: u64,
    stopping: bool,
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

    fn agent(&mut self, at: usize) -> Option<&mut Agent> {
        self.containers[at].agent.as_mut()
    }

    fn reaches_master(&self, at: usize) -> bool {
        let node = &self.nodes[self.containers[at].node];
        !node.dead && node.cut.is_none()
    }

    /// An agent's turn: it looks at its clock, and asks for its order.
    pub fn agent_turn(&mut self, at: usize, turn: u64) {
        let now = self.now;
        let silence = self.plan.spec.deadlines.silence.0;
        let Some(agent) = self.agent(at) else {
            return;
        };
        if agent.turn != turn || agent.hung || agent.quits {
            return;
        }
        let asking = agent.asked.is_some_and(|since| now < since + 1_000);
        if now >= agent.answered + silence && !asking {
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
            let hears = Happening::MasterHearsAgent {
                at,
                reports: reports.clone(),
                late: true,
            };
            self.after(wait, hears);
        }
        if self.reaches_master(at) && !self.struck(faults.requests_lost, 20) {
            let wait = self.random.from(2, 60);
            let hears = Happening::MasterHearsAgent {
                at,
                reports,
                late: false,
            };
            self.after(wait, hears);
        }
    }

    /// A new report is sent at once, and again until it is acknowledged.
    fn report(&mut self, at: usize, report: Report) {
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
            Order::Stop { save, .. } => Wants::Stop { save: *save },
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

    fn begin_program(&mut self, at: usize, round: u32) {
        let faults = self.faults();
        if self.struck(faults.stuck, 5) {
            // It beats, and nothing ever comes of it.
            return;
        }
        let wait = self.random.from(10, 500);
        self.after(wait, Happening::ProgramStarts { at, round });
    }

    pub fn program_starts(&mut self, at: usize, round: u32) {
        let Some(agent) = self.agent(at) else {
            return;
        };
        if agent.wants != Wants::Run(round) || agent.quits || agent.hung {
            return;
        }
        let Some(task) = agent.task.clone() else {
            return;
        };
        let faults = self.faults();
        if self.struck(faults.not_started, 5) {
            let exit = Exit {
                not_started: Some("`program` was not found".into()),
                ..Exit::default()
            };
            self.report(at, Report::Exited { round, exit });
            return;
        }
        self.checks
            .program_starts(&task, round, at, &self.containers);
        let plan = self.stamp();
        if let Some(agent) = self.agent(at) {
            agent.program = Some(Program {
                round,
                plan,
                stopping: false,
            });
        }
        self.report(at, Report::Started { round });
        // Some of those who should follow the others never end either.
        let service = match self.plan.spec.role(&task.role).map(|role| role.completion) {
            Some(Completion::Service | Completion::Beside) => true,
            Some(Completion::Follows) => task.index == 0,
            _ => false,
        };
        let fate = self.fate();
        let mut wait = self.random.from(200, 20_000);
        let role = self.plan.spec.role(&task.role);
        if self.plan.lasting && role.is_some_and(|role| role.elastic.is_some()) {
            wait += 40_000;
        }
        if self.plan.patient {
            let until = self.plan.hostile + WHOLE_AFTER;
            wait += until.saturating_sub(self.now);
        }
        if !service || (fate != Fate::Code(0) && self.random.percent(50)) {
            let ends = Happening::ProgramEnds {
                at,
                round,
                fate,
                plan,
            };
            self.after(wait, ends);
        }
    }

    fn fate(&mut self) -> Fate {
        let faults = self.faults();
        if !self.struck(faults.fails, 15) {
            return Fate::Code(0);
        }
        *self.random.pick(&[
            Fate::Code(1),
            Fate::Code(2),
            Fate::Signal(9),
            Fate::Signal(11),
        ])
    }

    /// SIGTERM; after the grace SIGKILL.
    fn stop_program(&mut self, at: usize) {
        let grace = self.plan.spec.deadlines.grace.0;
        let faults = self.faults();
        let plan = self.stamp();
        let Some(agent) = self.agent(at) else {
            return;
        };
        let Some(program) = &mut agent.program else {
            self.program_is_gone(at);
            return;
        };
        if program.stopping {
            return;
        }
        program.stopping = true;
        program.plan = plan;
        let round = program.round;
        let quits = agent.quits;
        if !quits && self.struck(faults.stuck, 8) {
            return;
        }
        let stubborn = self.struck(faults.stubborn, 30);
        let wait = if stubborn {
            grace
        } else {
            self.random.below(grace.min(800))
        };
        let fate = Fate::Signal(if stubborn { 9 } else { 15 });
        let ends = Happening::ProgramEnds {
            at,
            round,
            fate,
            plan,
        };
        self.after(wait, ends);
    }

    pub fn program_ends(&mut self, at: usize, round: u32, fate: Fate, plan: u64) {
        let Some(agent) = self.agent(at) else {
            return;
        };
        if agent.program.as_ref().map(|it| it.plan) != Some(plan) {
            return;
        }
        agent.program = None;
        let (hung, task) = (agent.hung, agent.task.clone());
        let exit = Exit {
            code: match fate {
                Fate::Code(code) => Some(code),
                Fate::Signal(_) | Fate::WithContainer => None,
            },
            signal: match fate {
                Fate::Code(_) => None,
                Fate::Signal(signal) => Some(signal),
                Fate::WithContainer => Some(15),
            },
            container_signalled: fate == Fate::WithContainer,
            ..Exit::default()
        };
        if let Some(task) = task {
            self.checks
                .program_ends(&task, round, at, fate == Fate::Code(0));
            if self.plan.bereaved && fate == Fate::WithContainer {
                self.bereave(&task.role, round);
            }
        }
        if hung {
            return;
        }
        self.report(at, Report::Exited { round, exit });
        if fate != Fate::WithContainer {
            self.program_is_gone(at);
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
            Report::Unready {
                node: at.is_multiple_of(2),
            }
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

    /// The node ends the container: the program gets SIGTERM, the agent may still say so, then both are killed.
    pub fn signal_container(&mut self, at: usize, end: ContainerEnd) {
        let plan = self.stamp();
        let tells = self.random.percent(60);
        self.containers[at].sentence = Some(end.clone());
        let Some(agent) = self.agent(at) else {
            self.container_dies(at, end);
            return;
        };
        if let Some(program) = &mut agent.program
            && tells
        {
            program.plan = plan;
            let round = program.round;
            let fate = Fate::WithContainer;
            let ends = Happening::ProgramEnds {
                at,
                round,
                fate,
                plan,
            };
            self.after(20, ends);
        }
        let wait = self.random.from(250, 1_500);
        self.after(wait, Happening::ContainerSignalled { at, end });
    }

    pub fn container_signalled(&mut self, at: usize, end: ContainerEnd) {
        let node = &self.nodes[self.containers[at].node];
        if !node.dead && !self.containers[at].dead {
            self.container_dies(at, end);
        }
    }

    /// Whatever ran in a container is gone, without a word.
    pub fn kill_inside(&mut self, at: usize) {
        let container = &mut self.containers[at];
        container.dead = true;
        if let Some(agent) = container.agent.take()
            && let (Some(program), Some(task)) = (agent.program, agent.task)
        {
            self.checks.program_ends(&task, program.round, at, false);
            if self.plan.bereaved && !program.stopping {
                self.bereave(&task.role, program.round);
            }
        }
    }

    /// The others of a round fail soon after one of them.
    fn bereave(&mut self, role: &RoleName, round: u32) {
        let elastic = self.plan.spec.role(role).and_then(|role| role.elastic);
        if elastic.is_none() || self.plan.spec.gang.reform == Reform::Told {
            return;
        }
        for at in 0..self.containers.len() {
            let plan = self.stamp();
            let wait = 20 + 37 * at as u64 % 400;
            let Some(agent) = self.agent(at) else {
                continue;
            };
            let peer = agent.task.as_ref().is_some_and(|task| task.role == *role);
            let Some(program) = agent.program.as_mut().filter(|_| peer) else {
                continue;
            };
            if program.round == round && !program.stopping {
                program.plan = plan;
                let fate = Fate::Code(1);
                let ends = Happening::ProgramEnds {
                    at,
                    round,
                    fate,
                    plan,
                };
                self.after(wait, ends);
            }
        }
    }
}
