//! Seeded choice of the job, its policies, the cluster and the faults.

use super::{
    jobs::{beside, elastic, ordered, serving, spec},
    random::Random,
};
use ydl_core::{
    JobSpec,
    spec::{ResizePolicy, RestartScope},
};

/// Everything about a schedule that is settled before it begins.
#[derive(Clone, Debug)]
pub struct Plan {
    pub spec: JobSpec,
    pub faults: Faults,
    /// Number of containers per node.
    pub nodes: Vec<u32>,
    /// Until when, in milliseconds, faults happen. 0: never.
    pub hostile: u64,
    /// Time without contact before the cluster reports a node as lost.
    pub expiry: u64,
    /// Programs run until long after the faults have ended.
    pub patient: bool,
    /// Programs of elastic roles run on when the others have long ended.
    pub lasting: bool,
    /// Programs of elastic roles fail when one of their round dies with its container.
    pub bereaved: bool,
}

/// Enabled faults. Faults of messages apply to each message with some probability; the others occur
/// at random times.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    // Between master and cluster.
    pub beats_lost: bool,
    pub beats_late: bool,
    pub surplus: bool,
    pub scarcity: bool,
    pub launches_fail: bool,
    pub launches_vanish: bool,
    // Between master and agents.
    pub requests_lost: bool,
    pub replies_lost: bool,
    pub requests_late: bool,
    // Agents and programs.
    pub hung: bool,
    pub crashes: bool,
    pub unready: bool,
    pub stuck: bool,
    pub stubborn: bool,
    pub fails: bool,
    pub not_started: bool,
    pub unsaved: bool,
    // The cluster.
    pub memory: bool,
    pub preempts: bool,
    pub warns: bool,
    pub nodes_die: bool,
    pub partitions: bool,
    // People and the master itself.
    pub scales: bool,
    /// Single tasks are stopped and added.
    pub stops: bool,
    /// A client ends the job with an outcome.
    pub ends: bool,
    pub kills: bool,
    pub master_dies: bool,
    pub clock_jumps: bool,
}

impl Faults {
    fn some(random: &mut Random) -> Faults {
        let mut half = || random.percent(50);
        let mut faults = Faults {
            beats_lost: half(),
            beats_late: half(),
            surplus: half(),
            scarcity: half(),
            launches_fail: half(),
            launches_vanish: half(),
            requests_lost: half(),
            replies_lost: half(),
            requests_late: half(),
            hung: half(),
            crashes: half(),
            unready: half(),
            stuck: half(),
            stubborn: half(),
            fails: half(),
            not_started: half(),
            unsaved: half(),
            memory: half(),
            preempts: half(),
            warns: half(),
            nodes_die: half(),
            partitions: half(),
            scales: half(),
            stops: false,
            ends: false,
            kills: half() && half() && half(),
            master_dies: half(),
            clock_jumps: half(),
        };
        // An agent that hangs cannot stop its program when it is cut off; the node must be there to do it.
        if half() {
            faults.partitions = false;
        } else {
            faults.hung = false;
            faults.stuck = false;
        }
        // Some schedules have no task failures: their jobs may not fail.
        if half() && half() {
            faults.forget_the_counted();
        }
        faults
    }

    fn forget_the_counted(&mut self) {
        self.hung = false;
        self.crashes = false;
        self.unready = false;
        self.stuck = false;
        self.fails = false;
        self.not_started = false;
        self.unsaved = false;
        self.memory = false;
        self.partitions = false;
        self.requests_lost = false;
        self.replies_lost = false;
        self.clock_jumps = false;
        self.beats_lost = false;
        self.beats_late = false;
        self.requests_late = false;
        self.launches_fail = false;
        self.launches_vanish = false;
        self.nodes_die = false;
    }

    /// Returns true if no planned ending is a failure of a task.
    pub fn blameless(&self) -> bool {
        let counted = self.hung
            || self.crashes
            || self.unready
            || self.stuck
            || self.fails
            || self.not_started
            || self.unsaved
            || self.memory
            || self.partitions
            || self.requests_lost
            || self.replies_lost
            || self.clock_jumps
            || self.beats_lost
            || self.beats_late
            || self.requests_late
            || self.launches_fail
            || self.launches_vanish
            || self.nodes_die;
        !counted
    }
}

/// Returns true if single tasks of some role can be stopped and added.
fn stops_single_tasks(spec: &JobSpec) -> bool {
    let scopes = || spec.roles.iter().map(|role| role.restart.scope);
    let alone = scopes().all(|scope| scope != RestartScope::Job);
    !spec.gang.together && alone && scopes().any(|scope| scope == RestartScope::Task)
}

impl Plan {
    /// A plan of a job that serves.
    pub fn serving(random: &mut Random) -> Plan {
        let calm = random.percent(10);
        let spec = serving(random);
        let mut faults = if calm { Faults::default() } else { Faults::some(random) };
        faults.kills = false;
        let nodes = random.from(2, 5);
        // Replicas of an update and those that drain need room, too.
        let slots = random.from(12, 20).div_ceil(nodes);
        Plan {
            spec,
            faults,
            nodes: (0..nodes).map(|_| slots as u32).collect(),
            hostile: random.from(30, 150) * 1_000,
            expiry: random.from(4, 25) * 1_000,
            patient: false,
            lasting: false,
            bereaved: false,
        }
    }

    /// Returns true if the job serves.
    pub fn serves(&self) -> bool {
        self.spec.roles.iter().any(|role| role.serve.is_some())
    }

    /// `apart` and `third` draw independently of the other choices.
    pub fn new(random: &mut Random, apart: &mut Random, third: &mut Random) -> Plan {
        let calm = random.percent(8);
        let bereaved = apart.percent(50);
        let spec = elastic(spec(random, calm), bereaved, apart);
        let changes = spec.roles.iter().any(|role| role.elastic.is_some());
        let tasks = spec.task_count();
        let mut faults = if calm { Faults::default() } else { Faults::some(random) };
        let told = changes && spec.gang.resize == ResizePolicy::Notify;
        if told && !calm && apart.percent(50) {
            // More faults for notified tasks, whose protocol is more complex.
            faults.scarcity = true;
            faults.scales = true;
            faults.preempts = true;
            faults.unsaved = true;
        }
        let mut patient = changes && !calm && apart.percent(50);
        if changes && !calm && bereaved && apart.percent(40) {
            // Only the cluster takes, again and again: no job may fail for that.
            faults.forget_the_counted();
            faults.preempts = true;
            patient = true;
        }
        let nodes = random.from(1, 5);
        // Some schedules lack room for all tasks, temporarily or permanently.
        let room = if calm || random.percent(75) { tasks + 8 } else { random.from(1, tasks) };
        let slots = room.div_ceil(nodes);
        let spec = beside(ordered(spec, apart), third);
        // Not in every schedule, so that scaling happens as often in the others.
        let stops = faults.scales && third.percent(50);
        faults.stops = stops && stops_single_tasks(&spec);
        faults.ends = !calm && third.percent(4);
        Plan {
            spec,
            faults,
            nodes: (0..nodes).map(|_| slots as u32).collect(),
            hostile: if calm { 0 } else { random.from(10, 120) * 1_000 },
            expiry: random.from(4, 25) * 1_000,
            patient,
            lasting: apart.percent(50),
            bereaved,
        }
    }
}
