//! A ledger that speaks for a master on a real cluster: what is wanted comes, and no more than that.

mod cluster_support;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cluster_support::{Master, options, registration, scratch, soon, wait_then_exit};
use testbed::{Cluster, Options, field};
use tokio::time::{Instant, sleep};
use yarn_native::ledger::{Key, Ledger, NodeLocality, Want};
use yarn_native::scheduler::{AllocateRequest, AllocateResponse, SchedulerError};
use yarn_native::types::{Container, ContainerId, ExitStatus, LaunchContext, Resource};

const WORKERS: Key = Key { priority: 5, allocation: 17 };
const CHIEF: Key = Key { priority: 6, allocation: 18 };
const PROBE: Key = Key { priority: 7, allocation: 19 };

/// Four of these fill the two nodes.
fn half() -> Resource {
    Resource::new(4096, 1)
}

/// A master that says nothing but what its ledger does.
struct Wanting<'a> {
    cluster: &'a Cluster,
    master: Master,
    ledger: Ledger<ContainerId>,
    held: BTreeMap<ContainerId, Container>,
    surplus: usize,
}

impl Wanting<'_> {
    fn want(&mut self, wants: impl IntoIterator<Item = (Key, Want)>) {
        let seen = self.ledger.reply_count();
        self.ledger.set_wants(wants.into_iter().collect(), seen);
    }

    async fn exchange(&mut self) -> Result<AllocateResponse, SchedulerError> {
        let (scheduler, ledger) = (&mut self.master.scheduler, &mut self.ledger);
        let beat = scheduler.exchange(ledger, AllocateRequest::default, soon()).await;
        let (answer, taken) = match beat {
            Err(SchedulerError::NotRegistered) => {
                let registered = scheduler.register(&registration(), soon()).await?;
                self.master.nodes.add_tokens(registered.node_tokens);
                self.master.registrations += 1;
                return Err(SchedulerError::NotRegistered);
            }
            other => other?,
        };
        self.master.nodes.add_tokens(answer.node_tokens.iter().cloned());
        assert_eq!(answer.granted.len(), taken.wanted.len());
        self.surplus += taken.surplus.len();
        for container in &answer.granted {
            self.held.insert(container.id, container.clone());
        }
        for status in &answer.completed {
            self.held.remove(&status.id);
            let end = self.master.ended.entry(status.id);
            end.or_insert_with(|| status.clone());
        }
        Ok(answer)
    }

    /// Beats until the ResourceManager counts so many containers in use and so many awaited, and the
    /// ledger knows of as many.
    async fn until(&mut self, in_use: usize, awaited: usize) {
        let deadline = soon();
        loop {
            let metrics = self.metrics();
            if metrics == Some((in_use, awaited))
                && self.held.len() == in_use
                && self.ledger.outstanding() == awaited as u64
            {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{in_use} in use and {awaited} awaited is not {metrics:?}; held are {:?}, {:?}",
                self.held.keys(),
                self.ledger,
            );
            self.exchange().await.expect("a beat");
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// What the ResourceManager counts: containers in use, and containers awaited.
    fn metrics(&self) -> Option<(usize, usize)> {
        let metrics = self.cluster.rest("/ws/v1/cluster/metrics").ok()?;
        let number = |name| field(&metrics, name)?.parse().ok();
        Some((number("containersAllocated")?, number("containersPending")?))
    }

    async fn start(&self, launch: &LaunchContext) {
        for container in self.held.values() {
            self.master.start(container, launch).await;
        }
    }
}

#[tokio::test]
async fn a_ledger_gets_what_is_wanted_and_no_more_over_changes_and_a_restart() {
    let cluster = Cluster::start(Options { nodes: 2, ..options() });
    let cluster = cluster.unwrap_or_else(|failure| panic!("{failure}"));
    let hosts: Vec<String> = cluster.nodes().iter().map(|node| host(node.address)).collect();
    let mut wanting = Wanting {
        master: Master::new(&cluster, "ledger").await,
        cluster: &cluster,
        ledger: Ledger::new(),
        held: BTreeMap::new(),
        surplus: 0,
    };

    // Up: what is held does not count, and what is sent twice would be granted twice.
    wanting.want([(WORKERS, Want::anywhere(1, half()))]);
    wanting.until(1, 0).await;
    wanting.want([(WORKERS, Want::anywhere(5, half()))]);
    wanting.until(4, 2).await;
    // Down, before it is granted: nothing comes in the place of what is given back.
    wanting.want([]);
    wanting.until(4, 0).await;
    for id in wanting.held.keys().copied().take(3).collect::<Vec<_>>() {
        wanting.ledger.release(id);
    }
    wanting.until(1, 0).await;

    // Down, when it has been granted and nobody here knows: that is a surplus, and is given back. What came with the
    // very answer to the ask is known here, and none.
    let kept: Vec<ContainerId> = wanting.held.keys().copied().collect();
    while wanting.surplus == 0 {
        wanting.want([(CHIEF, Want::anywhere(2, half()))]);
        wanting.exchange().await.expect("a beat");
        let granted =
            cluster.wait("two containers more", || (wanting.metrics()? == (3, 0)).then_some(()));
        granted.unwrap_or_else(|failure| panic!("{failure}"));
        let mut known: Vec<ContainerId> = wanting.held.keys().copied().collect();
        known.retain(|id| !kept.contains(id));
        for id in &known {
            wanting.ledger.release(*id);
        }
        wanting.want([]);
        wanting.until(1, 0).await;
        assert_eq!(wanting.surplus, 2 - known.len());
    }
    let surplus = wanting.surplus;

    // A host by name, and another that is named and to be avoided.
    let first: Vec<ContainerId> = wanting.held.keys().copied().collect();
    wanting.ledger.release(first[0]);
    wanting.until(0, 0).await;
    wanting.want([(WORKERS, only(&hosts[1], 3072))]);
    wanting.until(2, 0).await;
    assert!(wanting.held.values().all(|one| one.node.host == hosts[1]));
    let go = scratch(&cluster, "ledger").join("go");
    wanting.start(&wait_then_exit(&go, 51)).await;
    let excluded = BTreeSet::from([hosts[0].clone()]);
    wanting.ledger.set_excluded(excluded);
    wanting.want([(CHIEF, only(&hosts[0], 4096))]);
    wanting.until(2, 2).await;

    // Whoever comes back knows nothing of it, and is told everything at once.
    restart(&mut wanting).await;
    wanting.exchange().await.expect("a beat");
    let told = cluster
        .wait("two containers to be awaited", || (wanting.metrics()? == (2, 2)).then_some(()));
    told.unwrap_or_else(|failure| panic!("{failure}"));
    // Granted after the chiefs would have been.
    let chiefs = (CHIEF, only(&hosts[0], 4096));
    let probe = (PROBE, Want::anywhere(1, Resource::new(1024, 1)));
    wanting.want([chiefs, probe]);
    wanting.until(3, 2).await;
    assert!(wanting.held.values().all(|one| one.node.host == hosts[1]));
    wanting.ledger.set_excluded(BTreeSet::new());
    wanting.until(5, 0).await;

    std::fs::write(go, "").expect("a file");
    wanting.until(3, 0).await;
    let ended = wanting.master.ended.values();
    let ended = ended.filter(|end| end.exit == ExitStatus::Exited(51));
    assert_eq!(ended.count(), 2);
    assert_eq!(wanting.master.registrations, 2);
    assert_eq!(wanting.surplus, surplus);
    wanting.master.finish().await;
}

/// A ResourceManager that is killed and comes back, as the ledger's master sees it.
async fn restart(wanting: &mut Wanting<'_>) {
    let cluster = wanting.cluster;
    let must = |outcome: Result<(), testbed::Error>| outcome.unwrap_or_else(|f| panic!("{f}"));
    must(cluster.kill("rm"));
    must(cluster.start_daemon("rm"));
    must(cluster.wait_nodes(2));
    let deadline = soon();
    loop {
        match wanting.exchange().await {
            Err(SchedulerError::NotRegistered) => break,
            Ok(_) | Err(SchedulerError::NoResponse(_)) => assert!(Instant::now() < deadline),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Two containers on a host and nowhere else.
fn only(host: &str, memory_mib: i64) -> Want {
    let mut want = Want::anywhere(2, Resource::new(memory_mib, 1));
    want.localities.strict = true;
    want.localities.nodes.push(NodeLocality {
        host: host.to_owned(),
        rack: "/default-rack".into(),
        count: 2,
    });
    want
}

fn host(address: std::net::SocketAddr) -> String {
    address.ip().to_string()
}
