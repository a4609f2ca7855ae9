//! Control of daemons by name: kill, stop, pause, resume, restart, fail over.

use crate::{
    cluster::{Cluster, NN_ADMIN, RM_ADMIN},
    config,
    daemon::Daemon,
    error::{Error, ErrorKind},
    kdc::{HDFS, YARN},
    probe,
};
use rustix::process::Signal;

impl Cluster {
    fn daemon(&self, name: &str) -> Result<&Daemon, Error> {
        self.daemons.iter().find(|daemon| daemon.name == name).ok_or_else(|| {
            let known: Vec<_> = self.daemons().collect();
            Error::new(ErrorKind::InvalidRequest, format!("no daemon `{name}` in this cluster"))
                .hint(format!("its daemons are {}", known.join(", ")))
        })
    }

    /// Sends SIGKILL and waits for the exit. Containers of a killed NodeManager keep running.
    pub fn kill(&self, name: &str) -> Result<(), Error> {
        self.daemon(name)?.terminate(Signal::KILL)
    }

    /// Sends SIGTERM and waits for the exit.
    pub fn stop(&self, name: &str) -> Result<(), Error> {
        self.daemon(name)?.terminate(Signal::TERM)
    }

    /// Sends SIGSTOP: the daemon stays alive and does not respond.
    pub fn pause(&self, name: &str) -> Result<(), Error> {
        self.daemon(name)?.signal(Signal::STOP)
    }

    /// Sends SIGCONT.
    pub fn resume(&self, name: &str) -> Result<(), Error> {
        self.daemon(name)?.signal(Signal::CONT)
    }

    /// Starts a daemon that was killed or stopped, and waits until it listens. Use the other `wait_…`
    /// methods to wait for its nodes or blocks.
    pub fn start_daemon(&self, name: &str) -> Result<(), Error> {
        let daemon = self.daemon(name)?;
        daemon.spawn()?;
        self.wait_started(daemon)
    }

    /// Returns its process id; none if it is not running.
    pub fn pid(&self, name: &str) -> Result<Option<u32>, Error> {
        Ok(self.daemon(name)?.pid())
    }

    /// Returns its resident memory in KiB; none if it is not running.
    pub fn memory_kib(&self, name: &str) -> Result<Option<u64>, Error> {
        Ok(self.daemon(name)?.memory_kib())
    }

    /// Returns the last mebibyte of its log.
    pub fn log(&self, name: &str) -> Result<String, Error> {
        Ok(self.daemon(name)?.recent_log())
    }

    /// Returns the last lines of every daemon's log, to print when a test fails.
    pub fn log_tails(&self, lines: usize) -> String {
        self.daemons.iter().map(|daemon| daemon.log(lines)).collect()
    }

    /// Makes the daemon `to` the active one of two ResourceManagers (manual failover) or NameNodes. The
    /// other one need not be alive.
    pub fn fail_over(&self, to: &str) -> Result<(), Error> {
        self.daemon(to)?;
        let (class, user, new, old, other) = match to {
            "rm" => (RM_ADMIN, YARN, "rm1", "rm2", "rm2"),
            "rm2" => (RM_ADMIN, YARN, "rm2", "rm1", "rm"),
            "nn" => (NN_ADMIN, HDFS, "nn1", "nn2", "nn2"),
            "nn2" => (NN_ADMIN, HDFS, "nn2", "nn1", "nn"),
            other => {
                let message = format!("`{other}` does not support failover");
                return Err(Error::new(ErrorKind::InvalidRequest, message));
            }
        };
        // With several nameservices the tool requires the name.
        let name = config::nameservice(self.options.hdfs).filter(|_| class == NN_ADMIN);
        let options: Vec<_> = name.into_iter().flat_map(|name| ["-ns", name]).collect();
        if self.is_active(other) {
            let transition = ["-transitionToStandby", old];
            self.run_as_admin(class, user, &[&options[..], &transition].concat())?;
        }
        // Without this option the tool contacts the other one first and fails if that is down.
        let transition = ["-transitionToActive", "--forceactive", new];
        self.run_as_admin(class, user, &[&options[..], &transition].concat())?;
        Ok(())
    }

    /// Returns true if the daemon reports itself as active.
    pub fn is_active(&self, name: &str) -> bool {
        let rm = self.resource_managers.iter().find(|rm| rm.daemon == name);
        if let Some(rm) = rm {
            let info = probe::get(rm.web, "/ws/v1/cluster/info");
            return info.is_ok_and(|info| probe::field(&info, "haState") == Some("ACTIVE"));
        }
        let namenode = self.namenodes.iter().find(|namenode| namenode.daemon == name);
        let page = "/jmx?qry=Hadoop:service=NameNode,name=NameNodeStatus";
        namenode.is_some_and(|namenode| {
            let beans = probe::get(namenode.web, page);
            beans.is_ok_and(|beans| probe::field(&beans, "State") == Some("active"))
        })
    }
}
