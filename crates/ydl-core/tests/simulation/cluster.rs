//! The cluster: its nodes and containers, what it grants, and how it ends what it granted.

use super::{
    agent::Agent,
    shell::Item,
    world::{Happening, World},
};
use ydl_core::{Asks, ContainerExit, ContainerId, NodeName, RoleName};

/// State of the resource manager.
#[derive(Default)]
pub struct Cluster {
    /// Unacknowledged messages to the master, in order.
    pub outbox: Vec<(u64, Item)>,
    pub sent: u64,
}

pub struct Node {
    pub name: NodeName,
    pub slots: u32,
    pub dead: bool,
    /// Id of the network partition that contains it, if any.
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
    pub sentence: Option<ContainerExit>,
    /// Exit that its unreachable node cannot report.
    pub unreported: Option<ContainerExit>,
}

impl World {
    pub fn cluster_hears(&mut self, number: u64) {
        let (acked, asks, releases) = self.shell.beat_sent.clone();
        self.cluster.outbox.retain(|(n, _)| *n > acked);
        for id in releases {
            self.condemn(index(&id), ContainerExit::Released);
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

    fn grant(&mut self, asks: Asks) {
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
        let free: Vec<usize> =
            self.nodes.iter().enumerate().filter(fits).map(|(at, _)| at).collect();
        (!free.is_empty()).then(|| *self.random.pick(&free))
    }

    pub fn tell_master(&mut self, item: Item) {
        self.cluster.sent += 1;
        self.cluster.outbox.push((self.cluster.sent, item));
    }

    pub fn launch_arrives(&mut self, at: usize) {
        let container = &self.containers[at];
        let node = &self.nodes[container.node];
        let refused = node.dead || node.cut.is_some() || node.lost || !container.allocated;
        let refused = refused || container.condemned || container.agent.is_some();
        let faults = self.faults();
        if refused {
            let why = Some("the node did not answer".to_string());
            self.after(3_000, Happening::LaunchAnswered { at, why });
            return;
        }
        if self.struck(faults.launches_vanish, 8) {
            return;
        }
        let fails = self.struck(faults.launches_fail, 15);
        // An answer that says no is not always true.
        if !fails || self.random.percent(20) {
            self.agent_is_born(at);
        }
        let why = fails.then(|| "the launch failed".to_string());
        let lost = self.struck(faults.launches_vanish, 10);
        let wait = self.random.from(5, 300);
        if !lost {
            self.after(wait, Happening::LaunchAnswered { at, why });
        }
    }

    /// The cluster wants a container ended.
    pub fn condemn(&mut self, at: usize, end: ContainerExit) {
        let container = &mut self.containers[at];
        if !container.allocated || container.condemned {
            return;
        }
        container.condemned = true;
        let wait = self.random.from(20, 900);
        self.after(wait, Happening::KillArrives { at, end });
    }

    pub fn kill_arrives(&mut self, at: usize, end: ContainerExit) {
        let node = self.containers[at].node;
        // A node that cannot be reached hears of it when it is back; a dead one never.
        if self.nodes[node].cut.is_none() && !self.nodes[node].dead {
            self.container_dies(at, end);
        }
    }

    /// Ends a container with all of its processes.
    pub fn container_dies(&mut self, at: usize, end: ContainerExit) {
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

    pub fn end_reported(&mut self, at: usize, end: ContainerExit) {
        if self.containers[at].allocated {
            self.containers[at].allocated = false;
            self.tell_master(Item::Ended(at, end));
        }
    }
}

/// The container of that name: `c17` is the seventeenth.
pub fn index(id: &ContainerId) -> usize {
    id.as_str()[1..].parse().expect("every container of the world is a `c` and its number")
}
