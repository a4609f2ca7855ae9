//! What can be done to a daemon, by its name.

use crate::{
    cluster::{Cluster, NN_ADMIN, RM_ADMIN},
    daemon::Daemon,
    fact,
    failure::{Failure, Kind},
    kdc::{HDFS, YARN},
};
use rustix::process::Signal;

impl Cluster {
    fn daemon(&self, name: &str) -> Result<&Daemon, Failure> {
        self.daemons.iter().find(|daemon| daemon.name == name).ok_or_else(|| {
            let known: Vec<_> = self.daemons().collect();
            Failure::new(Kind::Wrong, format!("this cluster has no daemon `{name}`"))
                .hint(format!("its daemons are {}", known.join(", ")))
        })
    }

    /// SIGKILL; returns when it is dead. Containers of a NodeManager go on.
    pub fn kill(&self, name: &str) -> Result<(), Failure> {
        self.daemon(name)?.end(Signal::KILL)
    }

    /// SIGTERM; returns when it has ended.
    pub fn stop(&self, name: &str) -> Result<(), Failure> {
        self.daemon(name)?.end(Signal::TERM)
    }

    /// SIGSTOP: it lives, and does not answer.
    pub fn pause(&self, name: &str) -> Result<(), Failure> {
        self.daemon(name)?.signal(Signal::STOP)
    }

    /// SIGCONT.
    pub fn resume(&self, name: &str) -> Result<(), Failure> {
        self.daemon(name)?.signal(Signal::CONT)
    }

    /// Starts a daemon that was killed or stopped, and waits until it listens. What it must find out
    /// afterwards (its nodes, its blocks) has waits of its own.
    pub fn start_daemon(&self, name: &str) -> Result<(), Failure> {
        let daemon = self.daemon(name)?;
        daemon.spawn()?;
        self.wait_open(daemon)
    }

    /// Its process, if it runs.
    pub fn pid(&self, name: &str) -> Result<Option<u32>, Failure> {
        Ok(self.daemon(name)?.pid())
    }

    /// Its resident memory in KiB, if it runs.
    pub fn memory_kib(&self, name: &str) -> Result<Option<u64>, Failure> {
        Ok(self.daemon(name)?.memory_kib())
    }

    /// What it has logged: the last mebibyte.
    pub fn log(&self, name: &str) -> Result<String, Failure> {
        Ok(self.daemon(name)?.whole_log())
    }

    /// The last lines of every daemon's log: what to print when a test fails.
    pub fn last_words(&self, lines: usize) -> String {
        self.daemons.iter().map(|daemon| daemon.log(lines)).collect()
    }

    /// Makes the other of two ResourceManagers (manual failover) or NameNodes the active one: `to` is
    /// a daemon's name. The one it takes over from need not be alive.
    pub fn fail_over(&self, to: &str) -> Result<(), Failure> {
        self.daemon(to)?;
        let (class, user, new, old, other) = match to {
            "rm" => (RM_ADMIN, YARN, "rm1", "rm2", "rm2"),
            "rm2" => (RM_ADMIN, YARN, "rm2", "rm1", "rm"),
            "nn" => (NN_ADMIN, HDFS, "nn1", "nn2", "nn2"),
            "nn2" => (NN_ADMIN, HDFS, "nn2", "nn1", "nn"),
            other => {
                let what = format!("`{other}` cannot take over from another daemon");
                return Err(Failure::new(Kind::Wrong, what));
            }
        };
        if self.is_active(other) {
            self.administer(class, user, &["-transitionToStandby", old])?;
        }
        // Without the option the tool asks the other one first, and fails if that is dead.
        self.administer(class, user, &["-transitionToActive", "--forceactive", new])?;
        Ok(())
    }

    /// Whether it says of itself that it is the active one.
    pub fn is_active(&self, name: &str) -> bool {
        let rm = self.resource_managers.iter().find(|rm| rm.daemon == name);
        if let Some(rm) = rm {
            let info = fact::get(rm.web, "/ws/v1/cluster/info");
            return info.is_ok_and(|info| fact::field(&info, "haState") == Some("ACTIVE"));
        }
        let namenode = self.namenodes.iter().find(|namenode| namenode.daemon == name);
        let page = "/jmx?qry=Hadoop:service=NameNode,name=NameNodeStatus";
        namenode.is_some_and(|namenode| {
            let beans = fact::get(namenode.web, page);
            beans.is_ok_and(|beans| fact::field(&beans, "State") == Some("active"))
        })
    }
}
