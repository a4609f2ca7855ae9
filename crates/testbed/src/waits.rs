//! Facts about a cluster, to ask for and to wait for.

use crate::{
    cluster::{Cluster, PATIENCE, ResourceManager},
    daemon::Daemon,
    fact,
    failure::{Failure, Kind},
    version::Version,
};
use std::net::SocketAddr;

impl Cluster {
    /// Waits for a fact about this cluster; fails at once, with its last words, when a daemon has
    /// ended by itself.
    pub fn wait<T>(&self, what: &str, mut probe: impl FnMut() -> Option<T>) -> Result<T, Failure> {
        let outcome = fact::try_wait_for(what, PATIENCE, || {
            let answer = probe();
            if answer.is_none() {
                self.daemons.iter().try_for_each(Daemon::check)?;
            }
            Ok(answer)
        });
        outcome.map_err(|failure| match failure.kind {
            Kind::Late => failure.log(self.last_words(8)),
            _ => failure,
        })
    }

    pub(crate) fn wait_open(&self, daemon: &Daemon) -> Result<(), Failure> {
        self.wait_door(&daemon.name, daemon.door)
    }

    pub(crate) fn wait_door(&self, name: &str, door: SocketAddr) -> Result<(), Failure> {
        let what = format!("`{name}` to listen on {door}");
        self.wait(&what, || fact::is_open(door).then_some(()))
    }

    /// The active ResourceManager, once there is one that takes calls.
    pub fn wait_active(&self) -> Result<&ResourceManager, Failure> {
        self.wait("an active ResourceManager", || {
            self.resource_managers
                .iter()
                .find(|rm| fact::is_open(rm.client) && self.is_active(&rm.daemon))
        })
    }

    /// Until so many nodes run, no more and no fewer.
    pub fn wait_nodes(&self, count: usize) -> Result<(), Failure> {
        let count = count.to_string();
        let all_run = || {
            self.wait(&format!("{count} running nodes"), || {
                let metrics = self.rest("/ws/v1/cluster/metrics").ok()?;
                (fact::field(&metrics, "activeNodes")? == count).then_some(())
            })
        };
        all_run()?;
        if self.options.version == Version::V2_10_2 && self.revive_nodes()? {
            all_run()?;
        }
        Ok(())
    }

    /// A NodeManager of 2.10 that registers again starts the thread that beats before it takes back the word that the
    /// thread is to stop. One that reads that word first ends in silence: the node counts as running, and as lost when
    /// it expires. Nothing but a new start mends it, and what runs there goes on. Whether one had to be started.
    fn revive_nodes(&self) -> Result<bool, Failure> {
        let mut revived = false;
        for node in &self.nodes {
            let page = format!("/ws/v1/cluster/nodes/{}", node.address);
            let state = self.rest(&page);
            if !state.is_ok_and(|state| fact::field(&state, "state") == Some("RUNNING")) {
                continue;
            }
            let what = format!("`{}` to beat or to have stopped doing so", node.daemon);
            let beats = self.wait(&what, || {
                // In this order: the line comes after the thread's start.
                let log = self.log(&node.daemon).ok()?;
                let again = log.rfind("thread is reRegistered and restarted");
                let over = again > log.rfind("Registered with ResourceManager as");
                let threads = fact::get(node.web, "/stacks").ok()?;
                let beats = threads.contains("(Node Status Updater)");
                (beats || over).then_some(beats)
            })?;
            if !beats {
                self.kill(&node.daemon)?;
                self.start_daemon(&node.daemon)?;
                revived = true;
            }
        }
        Ok(revived)
    }

    /// Until the ResourceManager says that about a node: `RUNNING`, `LOST`, `SHUTDOWN`, …
    pub fn wait_node(&self, name: &str, state: &str) -> Result<(), Failure> {
        let node = self.nodes.iter().find(|node| node.daemon == name);
        let node = node.ok_or_else(|| {
            Failure::new(Kind::Wrong, format!("this cluster has no node `{name}`"))
        })?;
        let page = format!("/ws/v1/cluster/nodes/{}", node.address);
        self.wait(&format!("node `{name}` to be {state}"), || {
            (fact::field(&self.rest(&page).ok()?, "state")? == state).then_some(())
        })
    }

    /// Until every node has told its attributes: the ResourceManager counts it a moment before it takes them.
    pub(crate) fn wait_attributes(&self) -> Result<(), Failure> {
        for (number, name, value) in &self.options.attributes {
            let node = &self.nodes[number - 1];
            let page = format!("/ws/v1/cluster/nodes/{}", node.address);
            let what = format!("`{}` to have the attribute `{name}`", node.daemon);
            self.wait(&what, || {
                let said = self.rest(&page).ok()?;
                let named = said.contains(&format!("\"{name}\""));
                (named && said.contains(value.as_str())).then_some(())
            })?;
        }
        Ok(())
    }

    /// Until every NameNode has its DataNode and is out of safe mode.
    pub fn wait_hdfs(&self) -> Result<(), Failure> {
        for namenode in &self.namenodes {
            self.wait(&format!("`{}` to leave its safe mode", namenode.daemon), || {
                let page = "/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState";
                let state = fact::get(namenode.web, page).ok()?;
                let live = fact::field(&state, "NumLiveDataNodes")? == "1";
                (live && fact::field(&state, "FSState")? == "Operational").then_some(())
            })?;
        }
        // A NameNode counts a DataNode that has died for minutes, and so one that is just being started.
        self.wait("`dn` to register", || {
            (self.namenodes.is_empty() || self.is_registered("dn")).then_some(())
        })
    }

    /// Whether a DataNode has registered with every NameNode since it was last started, as its log tells. Where the
    /// beginning is not among the last of the log it was long ago.
    fn is_registered(&self, name: &str) -> bool {
        let log = self.log(name).unwrap_or_default();
        let Some(began) = log.rfind("STARTUP_MSG") else {
            return true;
        };
        let said = log[began..].matches("successfully registered with NN");
        said.count() >= self.namenodes.len()
    }

    /// A page of the active ResourceManager's REST interface, such as `/ws/v1/cluster/apps`.
    pub fn rest(&self, path: &str) -> Result<String, Failure> {
        let active = self.resource_managers.iter().find(|rm| self.is_active(&rm.daemon));
        let active =
            active.ok_or_else(|| Failure::new(Kind::Late, "there is no active ResourceManager"))?;
        fact::get(active.web, path).map_err(|error| {
            let what = format!("`{}` did not answer: {error}", active.daemon);
            Failure::new(Kind::Ended, what)
        })
    }
}
