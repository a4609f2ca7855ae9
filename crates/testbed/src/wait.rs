//! Queries of a cluster's state, and waits for it.

use crate::{
    cluster::{Cluster, ResourceManager, TIMEOUT},
    daemon::Daemon,
    error::{Error, ErrorKind},
    probe,
    version::Version,
};
use std::net::SocketAddr;

impl Cluster {
    /// Waits for a condition of this cluster. Fails early, with the log of the daemon, if a daemon exited
    /// unexpectedly.
    pub fn wait<T>(
        &self,
        condition: &str,
        mut probe: impl FnMut() -> Option<T>,
    ) -> Result<T, Error> {
        let outcome = probe::try_wait_for(condition, TIMEOUT, || {
            let value = probe();
            if value.is_none() {
                self.daemons.iter().try_for_each(Daemon::check)?;
            }
            Ok(value)
        });
        outcome.map_err(|error| match error.kind {
            ErrorKind::Timeout => error.log(self.log_tails(8)),
            _ => error,
        })
    }

    pub(crate) fn wait_started(&self, daemon: &Daemon) -> Result<(), Error> {
        self.wait_listening(&daemon.name, daemon.address)
    }

    pub(crate) fn wait_listening(&self, name: &str, address: SocketAddr) -> Result<(), Error> {
        let condition = format!("`{name}` to listen on {address}");
        self.wait(&condition, || probe::is_open(address).then_some(()))
    }

    /// Waits for an active ResourceManager that accepts requests.
    pub fn wait_active(&self) -> Result<&ResourceManager, Error> {
        self.wait("an active ResourceManager", || {
            self.resource_managers
                .iter()
                .find(|rm| probe::is_open(rm.client) && self.is_active(&rm.daemon))
        })
    }

    /// Waits until exactly `count` nodes are running.
    pub fn wait_nodes(&self, count: usize) -> Result<(), Error> {
        let count = count.to_string();
        let wait_running = || {
            self.wait(&format!("{count} running nodes"), || {
                let metrics = self.rest("/ws/v1/cluster/metrics").ok()?;
                (probe::field(&metrics, "activeNodes")? == count).then_some(())
            })
        };
        wait_running()?;
        if self.options.version == Version::V2_10_2 && self.restart_silent_nodes()? {
            wait_running()?;
        }
        Ok(())
    }

    /// Restarts NodeManagers whose heartbeat thread has exited; returns true if there were any. A NodeManager of 2.10 that
    /// registers again starts the heartbeat thread before it clears the thread's stop flag. A thread that reads the flag
    /// first exits silently: the node counts as running until it expires. Only a restart repairs it; containers keep running.
    fn restart_silent_nodes(&self) -> Result<bool, Error> {
        let mut any = false;
        for node in &self.nodes {
            let page = format!("/ws/v1/cluster/nodes/{}", node.address);
            let state = self.rest(&page);
            if !state.is_ok_and(|state| probe::field(&state, "state") == Some("RUNNING")) {
                continue;
            }
            let condition = format!("`{}` to send heartbeats or to stop sending them", node.daemon);
            let beating = self.wait(&condition, || {
                // Read the log first: the line is logged after the thread's start.
                let log = self.log(&node.daemon).ok()?;
                let restarted = log.rfind("thread is reRegistered and restarted");
                let stopped = restarted > log.rfind("Registered with ResourceManager as");
                let threads = probe::get(node.web, "/stacks").ok()?;
                let beating = threads.contains("(Node Status Updater)");
                (beating || stopped).then_some(beating)
            })?;
            if !beating {
                self.kill(&node.daemon)?;
                self.start_daemon(&node.daemon)?;
                any = true;
            }
        }
        Ok(any)
    }

    /// Waits until the ResourceManager reports this state of a node: `RUNNING`, `LOST`, `SHUTDOWN`, …
    pub fn wait_node(&self, name: &str, state: &str) -> Result<(), Error> {
        let node = self.nodes.iter().find(|node| node.daemon == name);
        let node = node.ok_or_else(|| {
            Error::new(ErrorKind::InvalidRequest, format!("no node `{name}` in this cluster"))
        })?;
        let page = format!("/ws/v1/cluster/nodes/{}", node.address);
        self.wait(&format!("node `{name}` to be {state}"), || {
            (probe::field(&self.rest(&page).ok()?, "state")? == state).then_some(())
        })
    }

    /// Waits for the attributes of all nodes: the ResourceManager counts a node shortly before it reads its attributes.
    pub(crate) fn wait_attributes(&self) -> Result<(), Error> {
        for (number, name, value) in &self.options.attributes {
            let node = &self.nodes[number - 1];
            let page = format!("/ws/v1/cluster/nodes/{}", node.address);
            let condition = format!("`{}` to have the attribute `{name}`", node.daemon);
            self.wait(&condition, || {
                let info = self.rest(&page).ok()?;
                let named = info.contains(&format!("\"{name}\""));
                (named && info.contains(value.as_str())).then_some(())
            })?;
        }
        Ok(())
    }

    /// Waits until every NameNode has its DataNode and has left safe mode.
    pub fn wait_hdfs(&self) -> Result<(), Error> {
        for namenode in &self.namenodes {
            self.wait(&format!("`{}` to leave safe mode", namenode.daemon), || {
                let page = "/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState";
                let state = probe::get(namenode.web, page).ok()?;
                let live = probe::field(&state, "NumLiveDataNodes")? == "1";
                (live && probe::field(&state, "FSState")? == "Operational").then_some(())
            })?;
        }
        // A NameNode counts a dead DataNode for minutes, so it may count one that is still starting.
        self.wait("`dn` to register", || {
            (self.namenodes.is_empty() || self.is_registered("dn")).then_some(())
        })
    }

    /// Returns true if the DataNode's log shows a registration with every NameNode since its last start. A start that is no
    /// longer in the log was long ago.
    fn is_registered(&self, name: &str) -> bool {
        let log = self.log(name).unwrap_or_default();
        let Some(began) = log.rfind("STARTUP_MSG") else {
            return true;
        };
        let registrations = log[began..].matches("successfully registered with NN");
        registrations.count() >= self.namenodes.len()
    }

    /// Gets a page of the active ResourceManager's REST API, such as `/ws/v1/cluster/apps`.
    pub fn rest(&self, path: &str) -> Result<String, Error> {
        let active = self.resource_managers.iter().find(|rm| self.is_active(&rm.daemon));
        let active =
            active.ok_or_else(|| Error::new(ErrorKind::Timeout, "no active ResourceManager"))?;
        probe::get(active.web, path).map_err(|error| {
            let message = format!("request to `{}` failed: {error}", active.daemon);
            Error::new(ErrorKind::Exited, message)
        })
    }
}
