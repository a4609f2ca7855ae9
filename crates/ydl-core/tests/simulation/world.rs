//! The world around a job: a virtual clock, a cluster with its nodes, and what happens when.
//!
//! `shell` is the master around the core, `agent` the agents and their programs, `chaos` what strikes them, and
//! `checks` what must hold whatever happens.

use super::{
    agent::Agent,
    checks::Checks,
    faults::{Faults, Plan},
    random::Random,
    report::{Fate, Report},
    shell::{Item, Shell},
};
use std::collections::BTreeMap;
use ydl_core::{ContainerEnd, ContainerId, NodeName, Order, RoleName, job::Mutant};

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
    pub happened: u64,
    pub trace: Option<Vec<String>>,
    queue: BTreeMap<(u64, u64), Happening>,
    next: u64,
}

/// What the resource manager knows.
#[derive(Default)]
pub struct Cluster {
    /// What the master has not confirmed yet, in order.
    pub outbox: Vec<(u64, Item)>,
    pub sent: u64,
}

pub struct Node {
    pub name: NodeName,
    pub slots: u32,
    pub dead: bool,
    /// Nobody reaches it; a number that tells one partition from the next.
    pub cut: Option<u64>,
    /// The cluster has given it up.
    pub lost: bool,
}

pub struct Container {
    pub id: ContainerId,
    pub role: RoleName,
    pub memory_mib: u64,
    pub node: usize,
    /// The cluster counts it.
    pub allocated: bool,
    /// The cluster wants it ended.
    pub condemned: bool,
    /// Nothing runs in it any more.
    pub dead: bool,
    pub agent: Option<Agent>,
    /// Why its node is ending it: what it says, however the processes end.
    pub sentence: Option<ContainerEnd>,
    /// How it ended, while its node cannot tell.
    pub unreported: Option<ContainerEnd>,
}

/// What happens at some moment.
#[derive(Clone, Debug)]
pub enum Happening {
    // Between master and cluster.
    Beat {
        number: u64,
    },
    ClusterHears {
        number: u64,
    },
    MasterHearsCluster {
        items: Vec<(u64, Item)>,
        number: u64,
    },
    LaunchArrives {
        at: usize,
    },
    LaunchAnswered {
        at: usize,
        why: Option<String>,
    },
    KillArrives {
        at: usize,
        end: ContainerEnd,
    },
    EndReported {
        at: usize,
        end: ContainerEnd,
    },
    Wake {
        due: u64,
    },
    Watch {
        life: u64,
    },
    // Agents and programs; a number tells one plan of an agent from the next.
    AgentTurn {
        at: usize,
        turn: u64,
    },
    MasterHearsAgent {
        at: usize,
        reports: Vec<(u64, Report)>,
        late: bool,
    },
    AgentHears {
        at: usize,
        order: Order,
        stamp: u64,
        acked: u64,
    },
    ProgramStarts {
        at: usize,
        round: u32,
    },
    ProgramEnds {
        at: usize,
        round: u32,
        fate: Fate,
        plan: u64,
    },
    GetsReady {
        at: usize,
        round: u32,
    },
    SaveEnds {
        at: usize,
    },
    AgentLeaves {
        at: usize,
        status: i32,
    },
    ContainerSignalled {
        at: usize,
        end: ContainerEnd,
    },
    // Chaos.
    Strike,
    NodeExpires {
        node: usize,
        cut: Option<u64>,
    },
    NodeReturns {
        node: usize,
    },
    PartitionHeals {
        node: usize,
        cut: u64,
    },
    MasterReturns,
    Calm,
    Whole,
    ClientKills {
        now: bool,
    },
}

impl World {
    pub fn new(seed: u64, mutant: Mutant, traced: bool) -> World {
        let mut random = Random::new(seed);
        let mut third = Random::new(seed ^ 3_000);
        let plan = Plan::new(&mut random, &mut Random::new(seed ^ 0xe1a5), &mut third);
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

    /// Whether nothing of interest can happen any more.
    fn over(&mut self) -> bool {
        let Some(ended) = self.checks.finished_at else {
            let last = self.plan.hostile + PATIENCE;
            assert!(
                self.now < last,
                "the job does not end: {}",
                self.shell.why()
            );
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
        if self.calm {
            Faults::default()
        } else {
            self.plan.faults
        }
    }

    /// Whether a message is struck by a fault that there is.
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
            Happening::AgentHears {
                at,
                order,
                stamp,
                acked,
            } => self.agent_hears(at, order, stamp, acked),
            Happening::ProgramStarts { at, round } => self.program_starts(at, round),
            Happening::ProgramEnds {
                at,
                round,
                fate,
                plan,
            } => self.program_ends(at, round, fate, plan),
            Happening::GetsReady { at, round } => self.gets_ready(at, round),
            Happening::SaveEnds { at } => self.save_ends(at),
            Happening::AgentLeaves { at, status } => {
                self.container_dies(at, ContainerEnd::Completed { status });
            }
            Happening::ContainerSignalled { at, end } => self.container_signalled(at, end),
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

    // The cluster.

    fn cluster_hears(&mut self, number: u64) {
        let (acked, asks, releases) = self.shell.beat_sent.clone();
        self.cluster.outbox.retain(|(n, _)| *n > acked);
        for id in releases {
            self.condemn(index(&id), ContainerEnd::Released);
        }
        self.grant(asks);
        let items = self.cluster.outbox.clone();
        let late = self.faults().beats_late;
        let wait = if self.struck(late, 20) {
            self.random.from(500, 6_000)
        } else {
            self.random.from(5, 60)
        };
        let lost = self.faults().beats_lost;
        if !self.struck(lost, 20) {
            self.after(wait, Happening::MasterHearsCluster { items, number });
        }
    }

    fn grant(&mut self, asks: ydl_core::Asks) {
        for ask in asks.asks {
            let memory_mib = ask.resources.memory_mib;
            let unseen = self.cluster.outbox.iter().filter(|(_, item)| match item {
                Item::Granted(at) => {
                    let it = &self.containers[*at];
                    it.role == ask.role && it.memory_mib == memory_mib
                }
                Item::Ended(..) | Item::Warned(_) => false,
            });
            let unseen = unseen.count() as u32;
            let surplus = self.faults().surplus;
            let more = u32::from(self.struck(surplus, 15));
            for _ in 0..ask.count.saturating_sub(unseen) + more {
                let scarce = self.faults().scarcity;
                if self.struck(scarce, 60) {
                    continue;
                }
                let Some(node) = self.room(&asks.avoid) else {
                    return;
                };
                let at = self.containers.len();
                self.containers.push(Container {
                    id: ContainerId::from(format!("c{at}")),
                    role: ask.role.clone(),
                    memory_mib,
                    node,
                    allocated: true,
                    condemned: false,
                    dead: true,
                    agent: None,
                    sentence: None,
                    unreported: None,
                });
                self.tell_master(Item::Granted(at));
            }
        }
    }

    /// A node that has room and may be used.
    fn room(&mut self, avoid: &[NodeName]) -> Option<usize> {
        let mut used = vec![0; self.nodes.len()];
        for container in self.containers.iter().filter(|it| it.allocated) {
            used[container.node] += 1;
        }
        let fits = |(at, node): &(usize, &Node)| {
            !node.lost && used[*at] < node.slots && !avoid.contains(&node.name)
        };
        let free: Vec<usize> = self
            .nodes
            .iter()
            .enumerate()
            .filter(fits)
            .map(|(at, _)| at)
            .collect();
        (!free.is_empty()).then(|| *self.random.pick(&free))
    }

    pub fn tell_master(&mut self, item: Item) {
        self.cluster.sent += 1;
        self.cluster.outbox.push((self.cluster.sent, item));
    }

    /// The cluster wants a container ended.
    pub fn condemn(&mut self, at: usize, end: ContainerEnd) {
        let container = &mut self.containers[at];
        if !container.allocated || container.condemned {
            return;
        }
        container.condemned = true;
        let wait = self.random.from(20, 900);
        self.after(wait, Happening::KillArrives { at, end });
    }

    fn kill_arrives(&mut self, at: usize, end: ContainerEnd) {
        let node = self.containers[at].node;
        // A node that cannot be reached hears of it when it is back; a dead one never.
        if self.nodes[node].cut.is_none() && !self.nodes[node].dead {
            self.container_dies(at, end);
        }
    }

    /// Whatever ran in a container is gone.
    pub fn container_dies(&mut self, at: usize, end: ContainerEnd) {
        self.kill_inside(at);
        let container = &mut self.containers[at];
        let end = container.sentence.clone().unwrap_or(end);
        let node = &self.nodes[container.node];
        if node.dead || !container.allocated {
            return;
        }
        if node.cut.is_some() {
            container.unreported = Some(end);
            return;
        }
        let wait = self.random.from(10, 700);
        self.after(wait, Happening::EndReported { at, end });
    }

    pub fn end_reported(&mut self, at: usize, end: ContainerEnd) {
        if self.containers[at].allocated {
            self.containers[at].allocated = false;
            self.tell_master(Item::Ended(at, end));
        }
    }
}

/// The container of that name: `c17` is the seventeenth.
pub fn index(id: &ContainerId) -> usize {
    id.as_str()[1..]
        .parse()
        .expect("every container of the world is a `c` and its number")
}
