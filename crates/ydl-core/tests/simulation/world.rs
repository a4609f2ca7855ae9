//! Simulated environment of a job: a virtual clock and scheduled events.
//!
//! `cluster` simulates the nodes and the resource manager, `shell` the master around the core,
//! `agent` the agents and their programs, `chaos` injects faults, and `checks` verifies the
//! invariants.

use super::{
    checks::Checks,
    cluster::{Cluster, Container, Node},
    faults::{Faults, Plan},
    random::Random,
    report::{Fate, Report},
    serving::gateway::Gateways,
    shell::{Item, Shell},
};
use std::collections::BTreeMap;
use ydl_core::{ContainerExit, NodeName, Order, job::Mutant};

/// So long after the faults have ended every job must be over, in milliseconds.
const PATIENCE: u64 = 1_200_000;
/// So long after its end everything must have been given back.
const AFTERMATH: u64 = 180_000;
/// More than this happens in no schedule.
const MOST_HAPPENINGS: u64 = 2_000_000;

/// A schedule being lived.
pub struct World {
    pub random: Random,
    pub plan: Plan,
    pub now: u64,
    pub calm: bool,
    pub nodes: Vec<Node>,
    pub containers: Vec<Container>,
    pub cluster: Cluster,
    pub shell: Shell,
    pub checks: Checks,
    pub gateways: Gateways,
    pub happened: u64,
    pub trace: Option<Vec<String>>,
    queue: BTreeMap<(u64, u64), Happening>,
    next: u64,
}

/// Event at a point in time.
#[derive(Clone, Debug)]
pub enum Happening {
    // Between master and cluster.
    Beat { number: u64 },
    ClusterHears { number: u64 },
    MasterHearsCluster { items: Vec<(u64, Item)>, number: u64 },
    LaunchArrives { at: usize },
    LaunchAnswered { at: usize, why: Option<String> },
    KillArrives { at: usize, end: ContainerExit },
    EndReported { at: usize, end: ContainerExit },
    Wake { due: u64 },
    Watch { life: u64 },
    // Agents and programs; a number tells one plan of an agent from the next.
    AgentTurn { at: usize, turn: u64 },
    MasterHearsAgent { at: usize, reports: Vec<(u64, Report)>, late: bool },
    AgentHears { at: usize, order: Order, stamp: u64, acked: u64 },
    ProgramStarts { at: usize, round: u32 },
    ProgramEnds { at: usize, round: u32, fate: Fate, plan: u64 },
    GetsReady { at: usize, round: u32 },
    SaveEnds { at: usize },
    AgentLeaves { at: usize, status: i32 },
    ContainerSignalled { at: usize, end: ContainerExit },
    // Gateways, replicas and their requests.
    GatewayTurn { gateway: usize, life: u64 },
    GatewayReturns { gateway: usize },
    RequestEnds { gateway: usize, life: u64, at: usize },
    ProbeChanges { at: usize, round: u32, serves: bool },
    Judgement,
    MustServe,
    // Chaos.
    Strike,
    NodeExpires { node: usize, cut: Option<u64> },
    NodeReturns { node: usize },
    PartitionHeals { node: usize, cut: u64 },
    MasterReturns,
    Calm,
    Whole,
    ClientKills { now: bool },
}

impl World {
    pub fn new(seed: u64, mutant: Mutant, traced: bool) -> World {
        let mut random = Random::new(seed);
        let mut third = Random::new(seed ^ 3_000);
        let plan = Plan::new(&mut random, &mut Random::new(seed ^ 0xe1a5), &mut third);
        World::of(plan, random, mutant, traced)
    }

    /// A schedule of a job that serves.
    pub fn serving(seed: u64, mutant: Mutant, traced: bool) -> World {
        let mut random = Random::new(seed ^ 0x5e12e);
        let plan = Plan::serving(&mut random);
        World::of(plan, random, mutant, traced)
    }

    fn of(plan: Plan, random: Random, mutant: Mutant, traced: bool) -> World {
        let nodes = plan.nodes.iter().enumerate().map(|(at, slots)| Node {
            name: NodeName::from(format!("n{at}")),
            slots: *slots,
            dead: false,
            cut: None,
            lost: false,
        });
        let mut world = World {
            nodes: nodes.collect(),
            shell: Shell::new(&plan, mutant),
            checks: Checks::new(&plan),
            gateways: Gateways::default(),
            random,
            plan,
            now: 0,
            calm: false,
            containers: Vec::new(),
            cluster: Cluster::default(),
            happened: 0,
            trace: traced.then(Vec::new),
            queue: BTreeMap::new(),
            next: 0,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        let hostile = self.plan.hostile;
        if hostile > 0 {
            self.after(500, Happening::Strike);
        }
        self.after(hostile, Happening::Calm);
        self.begin_serving();
        self.start_shell();
    }

    /// Lives the schedule to its end and says what it saw.
    pub fn live(&mut self) {
        while let Some(((now, _), happening)) = self.queue.pop_first() {
            self.now = now;
            self.happened += 1;
            assert!(self.happened < MOST_HAPPENINGS, "too much happens");
            if self.over() {
                break;
            }
            if self.trace.is_some() {
                self.say(format!("{happening:?}"));
            }
            self.happen(happening);
        }
        self.checks.at_the_end(&self.containers, &self.shell);
        self.shell.check_replay();
    }

    /// Returns true if no relevant event is left.
    fn over(&mut self) -> bool {
        let Some(ended) = self.checks.finished_at else {
            let last = self.plan.hostile + PATIENCE;
            assert!(self.now < last, "the job does not end: {}", self.shell.waiting_reason());
            return false;
        };
        let rest = self.containers.iter().find(|it| it.allocated || !it.dead);
        let rest = rest.map(|it| it.id.clone());
        let pending = !self.shell.releases.is_empty() || self.shell.job.is_none();
        if rest.is_none() && !pending && self.calm && self.cluster.outbox.is_empty() {
            return true;
        }
        assert!(
            self.now < ended.max(self.plan.hostile) + AFTERMATH,
            "a container outlives the job: {rest:?}"
        );
        false
    }

    pub fn say(&mut self, text: String) {
        let now = self.now;
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>9.3}  {text}", now as f64 / 1000.0));
        }
    }

    pub fn after(&mut self, wait: u64, happening: Happening) {
        let order = self.stamp();
        self.queue.insert((self.now + wait, order), happening);
    }

    /// A number larger than any before.
    pub fn stamp(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub fn faults(&self) -> Faults {
        if self.calm { Faults::default() } else { self.plan.faults }
    }

    /// Returns true if a fault affects a message.
    pub fn struck(&mut self, fault: bool, percent: u64) -> bool {
        fault && self.random.percent(percent)
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Beat { number } => self.beat(number),
            Happening::ClusterHears { number } => self.cluster_hears(number),
            Happening::MasterHearsCluster { items, number } => self.hear_cluster(items, number),
            Happening::LaunchArrives { at } => self.launch_arrives(at),
            Happening::LaunchAnswered { at, why } => self.launch_answered(at, why),
            Happening::KillArrives { at, end } => self.kill_arrives(at, end),
            Happening::EndReported { at, end } => self.end_reported(at, end),
            Happening::Wake { due } => self.wake(due),
            Happening::Watch { life } => self.watch(life),
            Happening::AgentTurn { at, turn } => self.agent_turn(at, turn),
            Happening::MasterHearsAgent { at, reports, late } => {
                self.hear_agent(at, reports, late);
            }
            Happening::AgentHears { at, order, stamp, acked } => {
                self.agent_hears(at, order, stamp, acked)
            }
            Happening::ProgramStarts { at, round } => self.program_starts(at, round),
            Happening::ProgramEnds { at, round, fate, plan } => {
                self.program_ends(at, round, fate, plan)
            }
            Happening::GetsReady { at, round } => self.gets_ready(at, round),
            Happening::SaveEnds { at } => self.save_ends(at),
            Happening::AgentLeaves { at, status } => {
                self.container_dies(at, ContainerExit::Completed { status });
            }
            Happening::ContainerSignalled { at, end } => self.container_signalled(at, end),
            Happening::GatewayTurn { gateway, life } => self.gateway_turn(gateway, life),
            Happening::GatewayReturns { gateway } => self.gateway_returns(gateway),
            Happening::RequestEnds { gateway, life, at } => self.request_ends(gateway, life, at),
            Happening::ProbeChanges { at, round, serves } => self.probe_changes(at, round, serves),
            Happening::Judgement => self.judge_open(),
            Happening::MustServe => self.must_serve(),
            Happening::Strike => self.strike(),
            Happening::NodeExpires { node, cut } => self.node_expires(node, cut),
            Happening::NodeReturns { node } => self.node_returns(node),
            Happening::PartitionHeals { node, cut } => self.partition_heals(node, cut),
            Happening::MasterReturns => self.master_returns(),
            Happening::Calm => self.calm_down(),
            Happening::Whole => self.must_be_whole(),
            Happening::ClientKills { now } => self.client_kills(now),
        }
    }
}
