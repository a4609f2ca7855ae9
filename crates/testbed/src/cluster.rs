//! A running cluster: its addresses, its daemons, and what can be asked of it.

use crate::{
    boot, config,
    daemon::Daemon,
    failure::{Failure, Kind},
    hadoop::Hadoop,
    headstart::Headstart,
    kdc::{HDFS, Kerberos, YARN},
    options::{Failover, Hdfs, Options},
    ports::Ports,
    tool,
    watcher::Watcher,
};
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
        let (early, late): (Vec<_>, Vec<_>) =
            self.daemons.iter().partition(|daemon| first.contains(&daemon.name.as_str()));
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
            let yarn = yarn.and_then(|()| self.wait_attributes());
            let homes = homes.join().unwrap_or_else(|_| {
                Err(Failure::new(Kind::Trouble, "a thread that waited for HDFS panicked"))
            });
            yarn.and(homes)
        })
    }

    /// Writable by all: who owns them does not matter in tests, and one JVM makes all of them.
    fn make_homes(&self) -> Result<(), Failure> {
        if self.options.users.is_empty() || self.namenodes.is_empty() {
            return Ok(());
        }
        let mut arguments = vec!["-D", "fs.permissions.umask-mode=000", "-mkdir", "-p", "/tmp"];
        let homes: Vec<_> = self.options.users.iter().map(|u| format!("/user/{u}")).collect();
        arguments.extend(homes.iter().map(String::as_str));
        self.administer("org.apache.hadoop.fs.FsShell", HDFS, &arguments)?;
        Ok(())
    }

    fn set_labels(&self) -> Result<(), Failure> {
        let labels = &self.options.labels;
        if labels.is_empty() {
            return Ok(());
        }
        let all: Vec<_> =
            labels.iter().map(|l| format!("{}(exclusive={})", l.name, l.exclusive)).collect();
        self.administer(RM_ADMIN, YARN, &["-addToClusterNodeLabels", &all.join(",")])?;
        let on = |label: &crate::Label, node: &usize| {
            let host = self.nodes[node - 1].address.ip();
            format!("{host}={}", label.name)
        };
        let places: Vec<_> =
            labels.iter().flat_map(|l| l.nodes.iter().map(move |n| on(l, n))).collect();
        if !places.is_empty() {
            self.administer(RM_ADMIN, YARN, &["-replaceLabelsOnNode", &places.join(" ")])?;
        }
        Ok(())
    }
}

pub(crate) const RM_ADMIN: &str = "org.apache.hadoop.yarn.client.cli.RMAdminCLI";
pub(crate) const NN_ADMIN: &str = "org.apache.hadoop.hdfs.tools.DFSHAAdmin";

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

/// Hadoop's own programs.
impl Cluster {
    /// A program of Hadoop's with the clients' configuration, such as
    /// `org.apache.hadoop.yarn.client.cli.ApplicationCLI`; add its arguments and [`run`](crate::run) it.
    /// With Kerberos it needs `KRB5CCNAME`, a ticket cache from [`Kerberos::kinit`].
    pub fn hadoop(&self, class: &str) -> Result<Command, Failure> {
        self.hadoop.tool(&self.configuration(), class)
    }

    /// Runs a program of Hadoop's as the one who may do everything there; returns its output.
    pub(crate) fn administer(
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
