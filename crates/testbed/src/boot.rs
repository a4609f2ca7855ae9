//! From options to a cluster in which everything has found everything else.

use crate::{
    cluster::{Cluster, NameNode, Node, ResourceManager},
    config::{self, Plan},
    daemon::Daemon,
    failure::Failure,
    hadoop::Hadoop,
    headstart::Headstart,
    jars::Jars,
    java::Java,
    kdc::{HDFS, HTTP, Kerberos, YARN},
    krb5::Krb5,
    options::{Failover, Hdfs, Options},
    ports::{Door, Ports},
    scratch::Scratch,
    site::Site,
    tool,
    watcher::Watcher,
};
use std::{
    env, fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

const RM_CLASS: &str = "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager";
const NM_CLASS: &str = "org.apache.hadoop.yarn.server.nodemanager.NodeManager";
const NN_CLASS: &str = "org.apache.hadoop.hdfs.server.namenode.NameNode";
const DN_CLASS: &str = "org.apache.hadoop.hdfs.server.datanode.DataNode";
const ZK_CLASS: &str = "org.apache.zookeeper.server.ZooKeeperServerMain";

const FORMAT: Duration = Duration::from_secs(120);

/// The parts of a cluster that does not run yet.
struct Boot<'a> {
    plan: Plan<'a>,
    hadoop: &'a Hadoop,
    common: Site,
    logs: PathBuf,
    daemons: Vec<Daemon>,
}

/// Writes everything down and makes the daemons, without starting any but the KDC's tools.
pub(crate) fn prepare(
    options: Options,
    headstart: Option<Headstart>,
    progress: &mut dyn FnMut(&str),
) -> Result<Cluster, Failure> {
    options.check()?;
    let java = Java::find()?;
    let jars = Jars::fetch(options.version, progress)?;
    let krb5 = options.kerberos.map(|_| Krb5::find(progress)).transpose()?;

    let mut scratch = Scratch::new()?;
    let directory = scratch.path().to_path_buf();
    let ports = Ports::claim(options.nodes)?;
    let keep = env::var_os("TESTBED_KEEP").is_some();
    let watcher = Watcher::start(scratch.id(), (!keep).then_some(&*directory))?;
    scratch.leave();

    let logs = scratch.folder("logs")?;
    scratch.folder("tmp")?;
    let mut kdc = None;
    let mut kerberos = None;
    if let Some(krb5) = krb5 {
        let mut principals = vec![HDFS, YARN, HTTP];
        principals.extend(options.users.iter().map(String::as_str));
        let door = ports.at(Door::Kdc);
        let made = Kerberos::create(krb5, &directory, door, scratch.id(), &principals)?;
        kerberos = Some(made.0);
        kdc = Some(Daemon::new("kdc", door, made.1, &logs));
    }
    let hadoop = Hadoop {
        headstart: headstart.unwrap_or_else(|| Headstart::find(&jars, &java)),
        java,
        jars,
        directory: directory.clone(),
        mark: scratch.id().to_owned(),
        krb5_conf: kerberos.as_ref().map(Kerberos::configuration),
    };
    let variables = kerberos.as_ref().map(Kerberos::variables);
    let plan = Plan {
        options: &options,
        ports: &ports,
        directory: &directory,
        mark: scratch.id(),
        lib: &hadoop.jars.home.join("lib"),
        variables: variables.unwrap_or_default(),
    };
    let common = config::common(&plan);
    common.write(&directory.join("conf"))?;
    let mut boot = Boot { plan, hadoop: &hadoop, common, logs, daemons: kdc.into_iter().collect() };
    boot.zookeeper()?;
    let resource_managers = boot.resource_managers()?;
    let namenodes = boot.namenodes()?;
    let nodes = boot.nodes()?;
    let daemons = boot.daemons;
    Ok(Cluster {
        daemons,
        resource_managers,
        namenodes,
        nodes,
        kerberos,
        hadoop,
        directory,
        ports,
        options,
        watcher,
    })
}

impl Boot<'_> {
    /// The configuration directory of a daemon: what all have, and what `own` adds.
    fn configure(&self, name: &str, own: impl FnOnce(&mut Site)) -> Result<PathBuf, Failure> {
        let mut site = self.common.clone();
        own(&mut site);
        config::extra(&self.plan, &mut site);
        let directory = self.plan.directory.join(name).join("conf");
        site.write(&directory)?;
        Ok(directory)
    }

    fn add(&mut self, name: &str, door: SocketAddr, command: Command) {
        self.daemons.push(Daemon::new(name, door, command, &self.logs));
    }

    fn zookeeper(&mut self) -> Result<(), Failure> {
        if self.plan.options.rm_ha != Some(Failover::Automatic) {
            return Ok(());
        }
        let configuration = self.configure("zk", |_| ())?;
        let door = self.plan.ports.at(Door::Zookeeper);
        let file = configuration.join("zoo.cfg");
        let text = format!(
            "tickTime=500\ndataDir={}\nclientPort={}\nclientPortAddress={}\n\
             admin.enableServer=false\nminSessionTimeout=1000\nmaxSessionTimeout=40000\n",
            self.plan.directory.join("zk/data").display(),
            door.port(),
            door.ip(),
        );
        fs::write(&file, text).map_err(Failure::at("write", &file))?;
        let mut command = self.hadoop.daemon("zk", 128, &configuration, ZK_CLASS)?;
        command.arg(file);
        self.add("zk", door, command);
        Ok(())
    }

    fn resource_managers(&mut self) -> Result<Vec<ResourceManager>, Failure> {
        let mut made = Vec::new();
        for second in [false, true] {
            if second && self.plan.options.rm_ha.is_none() {
                break;
            }
            let name = if second { "rm2" } else { "rm" };
            let configuration = self.configure(name, |site| {
                config::of_resource_manager(&self.plan, second, site);
            })?;
            let doors = config::doors(second).map(|door| self.plan.ports.at(door));
            let command = self.hadoop.daemon(name, 512, &configuration, RM_CLASS)?;
            // The others are open only while it is active.
            self.add(name, doors[4], command);
            made.push(ResourceManager {
                daemon: name.to_owned(),
                id: if second { "rm2" } else { "rm1" }.to_owned(),
                client: doors[0],
                scheduler: doors[1],
                tracker: doors[2],
                admin: doors[3],
                web: doors[4],
            });
        }
        Ok(made)
    }

    fn namenodes(&mut self) -> Result<Vec<NameNode>, Failure> {
        let mut made = Vec::new();
        let ports = self.plan.ports;
        let count = match self.plan.options.hdfs {
            Hdfs::None => return Ok(made),
            Hdfs::One => 1,
            Hdfs::Two | Hdfs::HighlyAvailable => 2,
        };
        let places = [("nn", Door::NnRpc, Door::NnWeb), ("nn2", Door::Nn2Rpc, Door::Nn2Web)];
        for (name, rpc, web) in places.into_iter().take(count) {
            let second = name == "nn2";
            let own = |site: &mut Site| config::of_namenode(&self.plan, second, site);
            let configuration = self.configure(name, own)?;
            let command = self.hadoop.daemon(name, 256, &configuration, NN_CLASS)?;
            self.add(name, ports.at(rpc), command);
            made.push(NameNode { daemon: name.to_owned(), rpc: ports.at(rpc), web: ports.at(web) });
        }
        let configuration = self.configure("dn", |_| ())?;
        let command = self.hadoop.daemon("dn", 256, &configuration, DN_CLASS)?;
        self.add("dn", ports.at(Door::DnIpc), command);
        Ok(made)
    }

    fn nodes(&mut self) -> Result<Vec<Node>, Failure> {
        let mut made = Vec::new();
        for index in 0..self.plan.options.nodes {
            let name = format!("nm{}", index + 1);
            let own = |site: &mut Site| config::of_node(&self.plan, index, site);
            let configuration = self.configure(&name, own)?;
            let command = self.hadoop.daemon(&name, 256, &configuration, NM_CLASS)?;
            let address = self.plan.ports.on_node(index, Door::NmRpc);
            self.add(&name, address, command);
            made.push(Node {
                daemon: name,
                address,
                web: self.plan.ports.on_node(index, Door::NmWeb),
            });
        }
        Ok(made)
    }
}

/// Makes the empty file systems. One that is not part of anything greater can be a copy of one made
/// earlier, and the second NameNode of one file system begins with a copy of the first.
pub(crate) fn format(cluster: &Cluster) -> Result<(), Failure> {
    let directory = &cluster.directory;
    let hdfs = cluster.options.hdfs;
    for namenode in &cluster.namenodes {
        let place = directory.join(&namenode.daemon);
        let first = namenode.daemon == "nn";
        let ready = match hdfs {
            Hdfs::HighlyAvailable if first => None,
            Hdfs::HighlyAvailable => Some(directory.join("nn/name")),
            _ if first => cluster.hadoop.headstart.file_system(),
            _ => None,
        };
        if let Some(ready) = ready {
            copy(&ready, &place.join("name"))?;
            continue;
        }
        let mut command = cluster.hadoop.tool(&place.join("conf"), NN_CLASS)?;
        // Two NameNodes that share DataNodes must be of one cluster.
        command.args(["-format", "-force", "-nonInteractive", "-clusterid", "testbed"]);
        tool::must(&mut command, "", FORMAT)?;
        if let Headstart::Record(kept) = &cluster.hadoop.headstart {
            copy(&place.join("name"), &kept.join("name"))?;
        }
    }
    Ok(())
}

/// A directory with the files directly in `current`, which is all a fresh NameNode has.
fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    let (from, to) = (from.join("current"), to.join("current"));
    fs::create_dir_all(&to).map_err(Failure::at("make the directory", &to))?;
    for file in fs::read_dir(&from).map_err(Failure::at("read", &from))? {
        let file = file.map_err(Failure::at("read", &from))?;
        let target = to.join(file.file_name());
        fs::copy(file.path(), &target).map_err(Failure::at("write", &target))?;
    }
    Ok(())
}
