//! A master with a ledger on a real cluster gets exactly the containers it wants.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::support::master::{
    Master, cluster_lock, options, registration, scratch, soon, wait_then_exit,
};
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

/// Master with all asks, releases and exclusions made by its ledger.
struct LedgerMaster<'a> {
    cluster: &'a Cluster,
    inner: Master,
    ledger: Ledger<ContainerId>,
    held: BTreeMap<ContainerId, Container>,
    surplus: usize,
}

impl LedgerMaster<'_> {
    fn want(&mut self, wants: impl IntoIterator<Item = (Key, Want)>) {
        let seen = self.ledger.reply_count();
        self.ledger.set_wants(wants.into_iter().collect(), seen);
    }

    async fn exchange(&mut self) -> Result<AllocateResponse, SchedulerError> {
        let (scheduler, ledger) = (&mut self.inner.scheduler, &mut self.ledger);
        let result = scheduler.exchange(ledger, AllocateRequest::default, soon()).await;
        let (answer, outcome) = match result {
            Err(SchedulerError::NotRegistered) => {
                let registered = scheduler.register(&registration(), soon()).await?;
                self.inner.nodes.add_tokens(registered.node_tokens);
                self.inner.registrations += 1;
                return Err(SchedulerError::NotRegistered);
            }
            other => other?,
        };
        self.inner.nodes.add_tokens(answer.node_tokens.iter().cloned());
        assert_eq!(answer.granted.len(), outcome.wanted.len());
        self.surplus += outcome.surplus.len();
        for container in &answer.granted {
            self.held.insert(container.id, container.clone());
        }
        for status in &answer.completed {
            self.held.remove(&status.id);
            let end = self.inner.ended.entry(status.id);
            end.or_insert_with(|| status.clone());
        }
        Ok(answer)
    }

    /// Heartbeats until the ResourceManager counts these containers in use and awaited, and the
    /// ledger agrees.
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
            self.exchange().await.expect("a heartbeat");
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Returns the ResourceManager's counts of containers in use and awaited.
    fn metrics(&self) -> Option<(usize, usize)> {
        let metrics = self.cluster.rest("/ws/v1/cluster/metrics").ok()?;
        let number = |name| field(&metrics, name)?.parse().ok();
        Some((number("containersAllocated")?, number("containersPending")?))
    }

    async fn start(&self, launch: &LaunchContext) {
        for container in self.held.values() {
            self.inner.start(container, launch).await;
        }
    }
}

#[tokio::test]
async fn a_ledger_gets_exactly_the_wanted_containers_across_changes_and_a_restart() {
    let _lock = cluster_lock().await;
    let cluster = Cluster::start(Options { nodes: 2, ..options() });
    let cluster = cluster.unwrap_or_else(|failure| panic!("{failure}"));
    let hosts: Vec<String> = cluster.nodes().iter().map(|node| host(node.address)).collect();
    let mut master = LedgerMaster {
        inner: Master::new(&cluster, "ledger").await,
        cluster: &cluster,
        ledger: Ledger::new(),
        held: BTreeMap::new(),
        surplus: 0,
    };

    // Scale up: held containers do not count, and a row sent twice would be granted twice.
    master.want([(WORKERS, Want::anywhere(1, half()))]);
    master.until(1, 0).await;
    master.want([(WORKERS, Want::anywhere(5, half()))]);
    master.until(4, 2).await;
    // Scale down before the grant: released containers are not replaced.
    master.want([]);
    master.until(4, 0).await;
    for id in master.held.keys().copied().take(3).collect::<Vec<_>>() {
        master.ledger.release(id);
    }
    master.until(1, 0).await;

    // Scale down after a grant that is still unknown here: it is surplus, and is released. Grants
    // in the response to the ask itself are known here, and are no surplus.
    let kept: Vec<ContainerId> = master.held.keys().copied().collect();
    while master.surplus == 0 {
        master.want([(CHIEF, Want::anywhere(2, half()))]);
        master.exchange().await.expect("a heartbeat");
        let granted =
            cluster.wait("two containers more", || (master.metrics()? == (3, 0)).then_some(()));
        granted.unwrap_or_else(|failure| panic!("{failure}"));
        let mut known: Vec<ContainerId> = master.held.keys().copied().collect();
        known.retain(|id| !kept.contains(id));
        for id in &known {
            master.ledger.release(*id);
        }
        master.want([]);
        master.until(1, 0).await;
        assert_eq!(master.surplus, 2 - known.len());
    }
    let surplus = master.surplus;

    // Two containers on a named host, then two on another host that is excluded.
    let first: Vec<ContainerId> = master.held.keys().copied().collect();
    master.ledger.release(first[0]);
    master.until(0, 0).await;
    master.want([(WORKERS, only(&hosts[1], 3072))]);
    master.until(2, 0).await;
    assert!(master.held.values().all(|one| one.node.host == hosts[1]));
    let go = scratch(&cluster, "ledger").join("go");
    master.start(&wait_then_exit(&go, 51)).await;
    let excluded = BTreeSet::from([hosts[0].clone()]);
    master.ledger.set_excluded(excluded);
    master.want([(CHIEF, only(&hosts[0], 4096))]);
    master.until(2, 2).await;

    // The restarted ResourceManager has no state, and gets everything in one request.
    restart(&mut master).await;
    master.exchange().await.expect("a heartbeat");
    let awaited = cluster
        .wait("two containers to be awaited", || (master.metrics()? == (2, 2)).then_some(()));
    awaited.unwrap_or_else(|failure| panic!("{failure}"));
    // Granted only after the chiefs would have been.
    let chiefs = (CHIEF, only(&hosts[0], 4096));
    let probe = (PROBE, Want::anywhere(1, Resource::new(1024, 1)));
    master.want([chiefs, probe]);
    master.until(3, 2).await;
    assert!(master.held.values().all(|one| one.node.host == hosts[1]));
    master.ledger.set_excluded(BTreeSet::new());
    master.until(5, 0).await;

    std::fs::write(go, "").expect("a file");
    master.until(3, 0).await;
    let ended = master.inner.ended.values();
    let ended = ended.filter(|end| end.exit == ExitStatus::Exited(51));
    assert_eq!(ended.count(), 2);
    assert_eq!(master.inner.registrations, 2);
    assert_eq!(master.surplus, surplus);
    master.inner.finish().await;
}

/// Kills and restarts the ResourceManager, until the master has registered again.
async fn restart(master: &mut LedgerMaster<'_>) {
    let cluster = master.cluster;
    let must = |outcome: Result<(), testbed::Error>| outcome.unwrap_or_else(|f| panic!("{f}"));
    must(cluster.kill("rm"));
    must(cluster.start_daemon("rm"));
    must(cluster.wait_nodes(2));
    let deadline = soon();
    loop {
        match master.exchange().await {
            Err(SchedulerError::NotRegistered) => break,
            Ok(_) | Err(SchedulerError::NoResponse(_)) => assert!(Instant::now() < deadline),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Wants two containers on a host and nowhere else.
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
