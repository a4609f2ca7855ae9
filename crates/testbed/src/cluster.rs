//! A running cluster: addresses, daemons and Hadoop's command-line tools.

use crate::{
    boot, config,
    daemon::Daemon,
    error::{Error, ErrorKind},
    hadoop::Hadoop,
    kdc::{HDFS, Kerberos, YARN},
    options::{Failover, Options},
    ports::PortBlock,
    tool,
    warm_start::WarmStart,
    watcher::Watcher,
};
use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

/// Timeout of everything a daemon does. Far longer than an idle machine needs.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(120);

/// A real Hadoop cluster. Dropping it kills all its processes, including containers, and removes its
/// files. The same happens when the process that started it exits for any reason.
#[derive(Debug)]
pub struct Cluster {
    pub(crate) daemons: Vec<Daemon>,
    pub(crate) resource_managers: Vec<ResourceManager>,
    pub(crate) namenodes: Vec<NameNode>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) kerberos: Option<Kerberos>,
    pub(crate) hadoop: Hadoop,
    pub(crate) directory: PathBuf,
    pub(crate) ports: PortBlock,
    pub(crate) options: Options,
    pub(crate) watcher: Watcher,
}

/// One ResourceManager and its addresses.
#[derive(Clone, Debug)]
pub struct ResourceManager {
    /// `rm` or `rm2`.
    pub daemon: String,
    /// Its id in the configuration: `rm1` or `rm2`.
    pub id: String,
    /// RPC endpoint for clients.
    pub client: SocketAddr,
    /// RPC endpoint for application masters.
    pub scheduler: SocketAddr,
    /// RPC endpoint for NodeManagers.
    pub tracker: SocketAddr,
    /// RPC endpoint for administrators.
    pub admin: SocketAddr,
    /// Web UI and REST API.
    pub web: SocketAddr,
}

/// One NameNode and its addresses.
#[derive(Clone, Debug)]
pub struct NameNode {
    /// `nn`, `nn2` or `nn3`.
    pub daemon: String,
    /// RPC endpoint for clients.
    pub rpc: SocketAddr,
    /// Web UI.
    pub web: SocketAddr,
}

/// One NodeManager and its addresses.
#[derive(Clone, Debug)]
pub struct Node {
    /// `nm1`, `nm2`, …
    pub daemon: String,
    /// RPC endpoint for application masters; YARN's node id.
    pub address: SocketAddr,
    /// Web UI.
    pub web: SocketAddr,
}

impl Cluster {
    /// Starts a cluster and waits until all daemons are registered. Downloads Hadoop on first use.
    pub fn start(options: Options) -> Result<Cluster, Error> {
        Cluster::start_with_progress(options, &mut |line| eprintln!("testbed: {line}"))
    }

    /// Like [`Cluster::start`], with a callback that receives progress messages.
    pub fn start_with_progress(
        options: Options,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Cluster, Error> {
        Cluster::start_with(options, None, progress)
    }

    /// Like [`Cluster::start_with_progress`], with an explicit warm start.
    pub(crate) fn start_with(
        options: Options,
        warm_start: Option<WarmStart>,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Cluster, Error> {
        let cluster = boot::prepare(options, warm_start, progress)?;
        cluster.launch()?;
        Ok(cluster)
    }

    fn launch(&self) -> Result<(), Error> {
        let before_format = ["kdc", "zk", "rm", "rm2"];
        let (early, late): (Vec<_>, Vec<_>) =
            self.daemons.iter().partition(|daemon| before_format.contains(&daemon.name.as_str()));
        for daemon in early {
            daemon.spawn()?;
            if ["kdc", "zk"].contains(&daemon.name.as_str()) {
                // Daemons exit without a KDC, and so does a 2.10 ResourceManager without
                // ZooKeeper.
                self.wait_started(daemon)?;
            }
        }
        boot::format(self)?;
        for daemon in late {
            daemon.spawn()?;
        }
        if self.options.rm_ha == Some(Failover::Manual) {
            self.wait_listening("rm", self.resource_managers[0].admin)?;
            self.fail_over("rm")?;
        }
        if config::nameservice(self.options.hdfs).is_some() {
            self.wait_listening("nn", self.namenodes[0].rpc)?;
            self.fail_over("nn")?;
        }
        thread::scope(|scope| {
            let homes = scope.spawn(|| self.wait_hdfs().and_then(|()| self.create_homes()));
            let yarn = self.wait_active().and_then(|_| self.set_labels());
            let yarn = yarn.and_then(|()| self.wait_nodes(self.options.nodes));
            let yarn = yarn.and_then(|()| self.wait_attributes());
            let homes = homes.join().unwrap_or_else(|_| {
                Err(Error::new(ErrorKind::System, "the thread that waits for HDFS panicked"))
            });
            yarn.and(homes)
        })
    }

    /// Creates the home directories in one JVM, world-writable: tests do not depend on their owner.
    fn create_homes(&self) -> Result<(), Error> {
        if self.options.users.is_empty() || self.namenodes.is_empty() {
            return Ok(());
        }
        let mut arguments = vec!["-D", "fs.permissions.umask-mode=000", "-mkdir", "-p", "/tmp"];
        let homes: Vec<_> = self.options.users.iter().map(|u| format!("/user/{u}")).collect();
        arguments.extend(homes.iter().map(String::as_str));
        self.run_as_admin("org.apache.hadoop.fs.FsShell", HDFS, &arguments)?;
        Ok(())
    }

    fn set_labels(&self) -> Result<(), Error> {
        let labels = &self.options.labels;
        if labels.is_empty() {
            return Ok(());
        }
        let all: Vec<_> =
            labels.iter().map(|l| format!("{}(exclusive={})", l.name, l.exclusive)).collect();
        self.run_as_admin(RM_ADMIN, YARN, &["-addToClusterNodeLabels", &all.join(",")])?;
        let on = |label: &crate::Label, node: &usize| {
            let host = self.nodes[node - 1].address.ip();
            format!("{host}={}", label.name)
        };
        let assignments: Vec<_> =
            labels.iter().flat_map(|l| l.nodes.iter().map(move |n| on(l, n))).collect();
        if !assignments.is_empty() {
            self.run_as_admin(RM_ADMIN, YARN, &["-replaceLabelsOnNode", &assignments.join(" ")])?;
        }
        Ok(())
    }
}

pub(crate) const RM_ADMIN: &str = "org.apache.hadoop.yarn.client.cli.RMAdminCLI";
pub(crate) const NN_ADMIN: &str = "org.apache.hadoop.hdfs.tools.DFSHAAdmin";

/// Properties of the cluster.
impl Cluster {
    /// Returns the options it was started with.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns the client configuration directory, the value of `HADOOP_CONF_DIR`.
    pub fn configuration(&self) -> PathBuf {
        self.directory.join("conf")
    }

    /// Returns the root of the cluster's files. It contains `logs` and one directory per daemon.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the ResourceManagers: one, or two with `rm_ha`.
    pub fn resource_managers(&self) -> &[ResourceManager] {
        &self.resource_managers
    }

    /// Returns the NameNodes; none without HDFS.
    pub fn namenodes(&self) -> &[NameNode] {
        &self.namenodes
    }

    /// Returns the NodeManagers in order; `nm1` is the first.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns the realm; none without Kerberos.
    pub fn kerberos(&self) -> Option<&Kerberos> {
        self.kerberos.as_ref()
    }

    /// Returns `fs.defaultFS`.
    pub fn default_fs(&self) -> String {
        config::default_fs(self.options.hdfs, &self.ports)
    }

    /// Returns the user the daemons run as: HDFS's superuser without Kerberos.
    pub fn own_user(&self) -> String {
        config::own_user()
    }

    /// Returns the names of all daemons in start order: `kdc zk rm rm2 nn nn2 nn3 dn nm1 …`.
    pub fn daemons(&self) -> impl Iterator<Item = &str> {
        self.daemons.iter().map(|daemon| daemon.name.as_str())
    }
}

/// Hadoop's command-line tools.
impl Cluster {
    /// Returns the command of a Hadoop tool with the client configuration, such as
    /// `org.apache.hadoop.yarn.client.cli.ApplicationCLI`. Add arguments and [`run`](crate::run) it.
    /// With Kerberos, set `KRB5CCNAME` to a ticket cache from [`Kerberos::kinit`].
    pub fn hadoop(&self, class: &str) -> Result<Command, Error> {
        self.hadoop.tool(&self.configuration(), class)
    }

    /// Runs a Hadoop tool with administrator rights and returns its output.
    pub(crate) fn run_as_admin(
        &self,
        class: &str,
        principal: &str,
        arguments: &[&str],
    ) -> Result<String, Error> {
        let mut command = self.hadoop(class)?;
        if let Some(kerberos) = &self.kerberos {
            command.env("KRB5CCNAME", kerberos.kinit(principal, None)?);
        }
        tool::run_checked(command.args(arguments), "", TIMEOUT)
    }

    /// Runs `RMAdminCLI` as an administrator.
    pub fn rm_admin(&self, arguments: &[&str]) -> Result<String, Error> {
        self.run_as_admin(RM_ADMIN, YARN, arguments)
    }

    /// Runs `FsShell` as HDFS's superuser.
    pub fn fs(&self, arguments: &[&str]) -> Result<String, Error> {
        self.run_as_admin("org.apache.hadoop.fs.FsShell", HDFS, arguments)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{}", self.log_tails(15));
        }
        if let Err(error) = self.watcher.stop() {
            eprintln!("testbed: {error}");
        }
        // They have exited; reaping them frees their process ids.
        for daemon in &self.daemons {
            daemon.pid();
        }
    }
}
