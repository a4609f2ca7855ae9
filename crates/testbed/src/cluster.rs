//! A running cluster: its addresses, its daemons, and what can be asked of it.

use crate::{
    boot, config,
    daemon::Daemon,
    fact,
    failure::{Failure, Kind},
    hadoop::Hadoop,
    headstart::Headstart,
    kdc::{HDFS, Kerberos, YARN},
    options::{Failover, Hdfs, Options},
    ports::Ports,
    tool,
    watcher::Watcher,
};
use rustix::process::Signal;
use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

/// How long anything may take that a daemon does. Much more than it takes on an idle machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A real Hadoop. Dropping it ends all its processes, containers included, and removes its files;
/// so does the end of the process that started it, however it ends.
#[derive(Debug)]
pub struct Cluster {
    pub(crate) daemons: Vec<Daemon>,
    pub(crate) resource_managers: Vec<ResourceManager>,
    pub(crate) namenodes: Vec<NameNode>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) kerberos: Option<Kerberos>,
    pub(crate) hadoop: Hadoop,
    pub(crate) directory: PathBuf,
    pub(crate) ports: Ports,
    pub(crate) options: Options,
    pub(crate) watcher: Watcher,
}

/// One ResourceManager and its addresses.
#[derive(Clone, Debug)]
pub struct ResourceManager {
    /// `rm` or `rm2`.
    pub daemon: String,
    /// As the configuration calls it: `rm1` or `rm2`.
    pub id: String,
    /// For clients.
    pub client: SocketAddr,
    /// For masters.
    pub scheduler: SocketAddr,
    /// For NodeManagers.
    pub tracker: SocketAddr,
    /// For administrators.
    pub admin: SocketAddr,
    /// For people, and REST.
    pub web: SocketAddr,
}

/// One NameNode and its addresses.
#[derive(Clone, Debug)]
pub struct NameNode {
    /// `nn` or `nn2`.
    pub daemon: String,
    /// For clients.
    pub rpc: SocketAddr,
    /// For people.
    pub web: SocketAddr,
}

/// One NodeManager and its addresses.
#[derive(Clone, Debug)]
pub struct Node {
    /// `nm1`, `nm2`, …
    pub daemon: String,
    /// For masters; what YARN calls the node's id.
    pub address: SocketAddr,
    /// For people.
    pub web: SocketAddr,
}

impl Cluster {
    /// Starts a cluster and waits until all its parts have found each other. The first time, Hadoop
    /// is fetched.
    pub fn start(options: Options) -> Result<Cluster, Failure> {
        Cluster::start_telling(options, &mut |line| eprintln!("testbed: {line}"))
    }

    /// The same; `progress` is told what takes long.
    pub fn start_telling(
        options: Options,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Cluster, Failure> {
        Cluster::start_from(options, None, progress)
    }

    /// The same with a head start other than the one that is found.
    pub(crate) fn start_from(
        options: Options,
        headstart: Option<Headstart>,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Cluster, Failure> {
        let cluster = boot::prepare(options, headstart, progress)?;
        cluster.launch()?;
        Ok(cluster)
    }

    fn launch(&self) -> Result<(), Failure> {
        let first = ["kdc", "zk", "rm", "rm2"];
        let (early, late): (Vec<_>, Vec<_>) = self
            .daemons
            .iter()
            .partition(|daemon| first.contains(&daemon.name.as_str()));
        for daemon in early {
            daemon.spawn()?;
            if ["kdc", "zk"].contains(&daemon.name.as_str()) {
                // A daemon that finds no KDC gives up, and so does a ResourceManager of 2.10 that
                // finds no ZooKeeper.
                self.wait_open(daemon)?;
            }
        }
        boot::format(self)?;
        for daemon in late {
            daemon.spawn()?;
        }
        if self.options.rm_ha == Some(Failover::Manual) {
            self.wait_door("rm", self.resource_managers[0].admin)?;
            self.fail_over("rm")?;
        }
        if self.options.hdfs == Hdfs::HighlyAvailable {
            self.wait_door("nn", self.namenodes[0].rpc)?;
            self.fail_over("nn")?;
        }
        thread::scope(|scope| {
            let homes = scope.spawn(|| self.wait_hdfs().and_then(|()| self.make_homes()));
            let yarn = self.wait_active().and_then(|_| self.set_labels());
            let yarn = yarn.and_then(|()| self.wait_nodes(self.options.nodes));
            let homes = homes.join().unwrap_or_else(|_| {
                Err(Failure::new(
                    Kind::Trouble,
                    "a thread that waited for HDFS panicked",
                ))
            });
            yarn.and(homes)
        })
    }

    /// Writable by all: who owns them does not matter in tests, and one JVM makes all of them.
    fn make_homes(&self) -> Result<(), Failure> {
        if self.options.users.is_empty() || self.namenodes.is_empty() {
            return Ok(());
        }
        let mut arguments = vec![
            "-D",
            "fs.permissions.umask-mode=000",
            "-mkdir",
            "-p",
            "/tmp",
        ];
        let homes: Vec<_> = self
            .options
            .users
            .iter()
            .map(|u| format!("/user/{u}"))
            .collect();
        arguments.extend(homes.iter().map(String::as_str));
        self.administer("org.apache.hadoop.fs.FsShell", HDFS, &arguments)?;
        Ok(())
    }

    fn set_labels(&self) -> Result<(), Failure> {
        let labels = &self.options.labels;
        if labels.is_empty() {
            return Ok(());
        }
        let all: Vec<_> = labels
            .iter()
            .map(|l| format!("{}(exclusive={})", l.name, l.exclusive))
            .collect();
        self.administer(RM_ADMIN, YARN, &["-addToClusterNodeLabels", &all.join(",")])?;
        let on = |label: &crate::Label, node: &usize| {
            let host = self.nodes[node - 1].address.ip();
            format!("{host}={}", label.name)
        };
        let places: Vec<_> = labels
            .iter()
            .flat_map(|l| l.nodes.iter().map(move |n| on(l, n)))
            .collect();
        if !places.is_empty() {
            self.administer(RM_ADMIN, YARN, &["-replaceLabelsOnNode", &places.join(" ")])?;
        }
        Ok(())
    }
}

const RM_ADMIN: &str = "org.apache.hadoop.yarn.client.cli.RMAdminCLI";
const NN_ADMIN: &str = "org.apache.hadoop.hdfs.tools.DFSHAAdmin";

/// What a cluster is.
impl Cluster {
    /// What it was asked to be.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// For `HADOOP_CONF_DIR`.
    pub fn configuration(&self) -> PathBuf {
        self.directory.join("conf")
    }

    /// Everything the cluster has on disk; `logs` is below, and each daemon's own folder.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The ResourceManagers: one, or two with `rm_ha`.
    pub fn resource_managers(&self) -> &[ResourceManager] {
        &self.resource_managers
    }

    /// The NameNodes, if there is HDFS.
    pub fn namenodes(&self) -> &[NameNode] {
        &self.namenodes
    }

    /// The NodeManagers in order; `nm1` is the first.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The realm, with Kerberos.
    pub fn kerberos(&self) -> Option<&Kerberos> {
        self.kerberos.as_ref()
    }

    /// `fs.defaultFS`.
    pub fn default_fs(&self) -> String {
        config::default_fs(self.options.hdfs, &self.ports)
    }

    /// The user the daemons run as: HDFS's superuser where there is no Kerberos.
    pub fn own_user(&self) -> String {
        config::own_user()
    }

    /// The names of all daemons, in the order they are started: `kdc zk rm rm2 nn nn2 dn nm1 …`.
    pub fn daemons(&self) -> impl Iterator<Item = &str> {
        self.daemons.iter().map(|daemon| daemon.name.as_str())
    }
}

/// What can be done to a daemon.
impl Cluster {
    fn daemon(&self, name: &str) -> Result<&Daemon, Failure> {
        self.daemons
            .iter()
            .find(|daemon| daemon.name == name)
            .ok_or_else(|| {
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
        self.daemons
            .iter()
            .map(|daemon| daemon.log(lines))
            .collect()
    }

    /// Makes the other of two ResourceManagers (manual failover) or NameNodes the active one: `to` is
    /// a daemon's name. It need not be alive, the one it takes over from.
    pub fn fail_over(&self, to: &str) -> Result<(), Failure> {
        self.daemon(to)?;
        let (class, user, ids) = match to {
            "rm" => (RM_ADMIN, YARN, ["rm1", "rm2"]),
            "rm2" => (RM_ADMIN, YARN, ["rm2", "rm1"]),
            "nn" => (NN_ADMIN, HDFS, ["nn1", "nn2"]),
            "nn2" => (NN_ADMIN, HDFS, ["nn2", "nn1"]),
            other => {
                let what = format!("`{other}` cannot take over from another daemon");
                return Err(Failure::new(Kind::Wrong, what));
            }
        };
        let [new, old] = ids;
        let other = match to {
            "rm" => "rm2",
            "rm2" => "rm",
            "nn" => "nn2",
            _ => "nn",
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
        let namenode = self
            .namenodes
            .iter()
            .find(|namenode| namenode.daemon == name);
        let page = "/jmx?qry=Hadoop:service=NameNode,name=NameNodeStatus";
        namenode.is_some_and(|namenode| {
            let beans = fact::get(namenode.web, page);
            beans.is_ok_and(|beans| fact::field(&beans, "State") == Some("active"))
        })
    }
}

/// Facts to wait for.
impl Cluster {
    /// Waits for a fact about this cluster; fails at once when a daemon ends that was not ended by
    /// `kill` or `stop`, with its last words.
    pub fn wait<T>(&self, what: &str, mut probe: impl FnMut() -> Option<T>) -> Result<T, Failure> {
        let expected: Vec<_> = self.daemons.iter().filter(|d| d.pid().is_some()).collect();
        let outcome = fact::try_wait_for(what, PATIENCE, || {
            let answer = probe();
            if answer.is_none() {
                expected.iter().try_for_each(|daemon| daemon.check())?;
            }
            Ok(answer)
        });
        outcome.map_err(|failure| match failure.kind {
            Kind::Late => failure.log(self.last_words(8)),
            _ => failure,
        })
    }

    fn wait_open(&self, daemon: &Daemon) -> Result<(), Failure> {
        self.wait_door(&daemon.name, daemon.door)
    }

    fn wait_door(&self, name: &str, door: SocketAddr) -> Result<(), Failure> {
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
        self.wait(&format!("{count} running nodes"), || {
            let metrics = self.rest("/ws/v1/cluster/metrics").ok()?;
            (fact::field(&metrics, "activeNodes")? == count).then_some(())
        })
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

    /// Until every NameNode has its DataNode and is out of safe mode.
    pub fn wait_hdfs(&self) -> Result<(), Failure> {
        for namenode in &self.namenodes {
            self.wait(
                &format!("`{}` to leave its safe mode", namenode.daemon),
                || {
                    let page = "/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState";
                    let state = fact::get(namenode.web, page).ok()?;
                    let live = fact::field(&state, "NumLiveDataNodes")? == "1";
                    (live && fact::field(&state, "FSState")? == "Operational").then_some(())
                },
            )?;
        }
        Ok(())
    }

    /// A page of the active ResourceManager's REST interface, such as `/ws/v1/cluster/apps`.
    pub fn rest(&self, path: &str) -> Result<String, Failure> {
        let active = self
            .resource_managers
            .iter()
            .find(|rm| self.is_active(&rm.daemon));
        let active =
            active.ok_or_else(|| Failure::new(Kind::Late, "there is no active ResourceManager"))?;
        fact::get(active.web, path).map_err(|error| {
            let what = format!("`{}` did not answer: {error}", active.daemon);
            Failure::new(Kind::Ended, what)
        })
    }
}

/// Hadoop's own programs.
impl Cluster {
    /// A program of Hadoop's with the clients' configuration, such as
    /// `org.apache.hadoop.yarn.client.cli.ApplicationCLI`; add its arguments and [`run`](crate::run) it.
    /// With Kerberos it needs `KRB5CCNAME`, a ticket cache from [`Kerberos::kinit`].
    pub fn hadoop(&self, class: &str) -> Result<Command, Failure> {
        self.hadoop.tool(&self.configuration(), class)
    }

    /// Runs a program of Hadoop's as the one who may do everything there; returns its output.
    fn administer(
        &self,
        class: &str,
        principal: &str,
        arguments: &[&str],
    ) -> Result<String, Failure> {
        let mut command = self.hadoop(class)?;
        if let Some(kerberos) = &self.kerberos {
            command.env("KRB5CCNAME", kerberos.kinit(principal, None)?);
        }
        tool::must(command.args(arguments), "", PATIENCE)
    }

    /// `RMAdminCLI` as an administrator.
    pub fn rm_admin(&self, arguments: &[&str]) -> Result<String, Failure> {
        self.administer(RM_ADMIN, YARN, arguments)
    }

    /// `FsShell` as HDFS's superuser.
    pub fn fs(&self, arguments: &[&str]) -> Result<String, Failure> {
        self.administer("org.apache.hadoop.fs.FsShell", HDFS, arguments)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{}", self.last_words(15));
        }
        if let Err(failure) = self.watcher.end() {
            eprintln!("testbed: {failure}");
        }
        // They are dead; asking them frees their numbers.
        for daemon in &self.daemons {
            daemon.pid();
        }
    }
}
