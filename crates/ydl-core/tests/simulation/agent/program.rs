//! Programs: start, exit, and failures caused by the exits of their peers.

use super::{
    super::{
        checks::causes,
        elastic::WHOLE_AFTER,
        report::{Fate, Report},
        world::{Happening, World},
    },
    Wants,
};
use ydl_core::{
    ContainerExit, ProgramExit, RoleName, Span,
    spec::{Completion, ResizePolicy},
};

#[derive(Debug)]
pub struct Program {
    pub round: u32,
    /// Index of the planned exit that applies.
    pub plan: u64,
    pub stopping: bool,
    /// Number of changes of its probe.
    pub changes: u32,
    /// Time of its start.
    pub since: u64,
}

impl World {
    pub(super) fn begin_program(&mut self, at: usize, round: u32) {
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
            let exit = ProgramExit {
                not_started: Some("`program` was not found".into()),
                ..ProgramExit::default()
            };
            self.report(at, Report::Exited { round, exit });
            return;
        }
        self.checks.program_starts(&task, round, at, &self.containers);
        let (plan, since) = (self.stamp(), self.now);
        if let Some(agent) = self.agent(at) {
            agent.program = Some(Program { round, plan, stopping: false, changes: 0, since });
        }
        self.report(at, Report::Started { round });
        if self.plan.serves() {
            self.replica_starts(at, round, plan);
            return;
        }
        // Some followers never exit either.
        let service = match self.plan.spec.role(&task.role).map(|role| role.completion) {
            Some(Completion::Service | Completion::Sidecar) => true,
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
            let ends = Happening::ProgramEnds { at, round, fate, plan };
            self.after(wait, ends);
        }
    }

    fn fate(&mut self) -> Fate {
        let faults = self.faults();
        if !self.struck(faults.fails, 15) {
            return Fate::Code(0);
        }
        *self.random.pick(&[Fate::Code(1), Fate::Code(2), Fate::Signal(9), Fate::Signal(11)])
    }

    /// SIGTERM; after the grace SIGKILL.
    pub(super) fn stop_program(&mut self, at: usize) {
        let grace = self.plan.spec.timeouts.grace.0;
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
        let wait = if stubborn { grace } else { self.random.below(grace.min(800)) };
        let fate = match stubborn {
            true => Fate::Signal(9),
            // It had failed by itself, and was cleaning up.
            false if self.struck(faults.fails, 15) => Fate::Code(2),
            false => Fate::Signal(15),
        };
        let ends = Happening::ProgramEnds { at, round, fate, plan };
        self.after(wait, ends);
    }

    pub fn program_ends(&mut self, at: usize, round: u32, fate: Fate, plan: u64) {
        let Some(agent) = self.agent(at) else {
            return;
        };
        if agent.program.as_ref().map(|it| it.plan) != Some(plan) {
            return;
        }
        let program = agent.program.take();
        let (hung, task) = (agent.hung, agent.task.clone());
        let code = match fate {
            Fate::Code(code) => Some(code),
            Fate::Signal(_) | Fate::WithContainer => None,
        };
        let since = program.map_or(self.now, |program| program.since);
        let exit = ProgramExit {
            code,
            ran: Span(self.now.saturating_sub(since)),
            stderr_tail: causes::stderr_tail(code).into(),
            signal: match fate {
                Fate::Code(_) => None,
                Fate::Signal(signal) => Some(signal),
                Fate::WithContainer => Some(15),
            },
            container_signalled: fate == Fate::WithContainer,
            ..ProgramExit::default()
        };
        if let Some(task) = task {
            self.checks.program_ends(&task, round, at, fate == Fate::Code(0));
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

    /// The others of a round fail soon after one of them.
    fn bereave(&mut self, role: &RoleName, round: u32) {
        let elastic = self.plan.spec.role(role).and_then(|role| role.elastic);
        if elastic.is_none() || self.plan.spec.gang.resize == ResizePolicy::Notify {
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
                let ends = Happening::ProgramEnds { at, round, fate, plan };
                self.after(wait, ends);
            }
        }
    }

    /// The node ends the container: the program gets SIGTERM, the agent may still say so, then both are killed.
    pub fn signal_container(&mut self, at: usize, end: ContainerExit) {
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
            let ends = Happening::ProgramEnds { at, round, fate, plan };
            self.after(20, ends);
        }
        let wait = self.random.from(250, 1_500);
        self.after(wait, Happening::ContainerSignalled { at, end });
    }

    pub fn container_signalled(&mut self, at: usize, end: ContainerExit) {
        let node = &self.nodes[self.containers[at].node];
        if !node.dead && !self.containers[at].dead {
            self.container_dies(at, end);
        }
    }

    /// Kills all processes of a container without a report.
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
}
