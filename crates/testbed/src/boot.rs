//! Prepares a cluster from its options: directories, ports, configuration files and daemon commands.

use crate::{
    cluster::{Cluster, NameNode, Node, ResourceManager},
    config::{self, ConfigContext},
    daemon::Daemon,
    error::Error,
    hadoop::Hadoop,
    jars::Jars,
    java::Java,
    kdc::{HDFS, HTTP, Kerberos, YARN},
    krb5::Krb5,
    options::{Failover, Hdfs, Options},
    ports::{Port, PortBlock},
    scratch::Scratch,
    site::Site,
    tool,
    warm_start::WarmStart,
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

const FORMAT_TIMEOUT: Duration = Duration::from_secs(120);

/// Collects the daemons of a cluster that is not running yet.
struct ClusterBuilder<'a> {
    config: ConfigContext<'a>,
    hadoop: &'a Hadoop,
    common: Site,
    logs: PathBuf,
    daemons: Vec<Daemon>,
}

/// Writes all configuration and creates the daemons. Starts none of them; only the KDC's tools run.
pub(crate) fn prepare(
    options: Options,
    warm_start: Option<WarmStart>,
    progress: &mut dyn FnMut(&str),
) -> Result<Cluster, Error> {
    options.validate()?;
    let java = Java::find()?;
    let jars = Jars::fetch(options.version, progress)?;
    let krb5 = options.kerberos.map(|_| Krb5::find(progress)).transpose()?;

    let mut scratch = Scratch::new()?;
    let directory = scratch.path().to_path_buf();
    let ports = PortBlock::reserve(options.nodes)?;
    let keep_files = env::var_os("TESTBED_KEEP").is_some();
    let watcher = Watcher::start(scratch.id(), (!keep_files).then_some(&*directory))?;
    scratch.keep();

    let logs = scratch.folder("logs")?;
    scratch.folder("tmp")?;
    let mut kdc = None;
    let mut kerberos = None;
    if let Some(krb5) = krb5 {
        let mut principals = vec![HDFS, YARN, HTTP];
        principals.extend(options.users.iter().map(String::as_str));
        let address = ports.address(Port::Kdc);
        let (realm, kdc_command) =
            Kerberos::create(krb5, &directory, address, scratch.id(), &principals)?;
        kerberos = Some(realm);
        kdc = Some(Daemon::new("kdc", address, kdc_command, &logs));
    }
    let hadoop = Hadoop {
        warm_start: warm_start.unwrap_or_else(|| WarmStart::find(&jars, &java)),
        java,
        jars,
        directory: directory.clone(),
        cluster_id: scratch.id().to_owned(),
        krb5_conf: kerberos.as_ref().map(Kerberos::configuration),
    };
    let mut variables = kerberos.as_ref().map(Kerberos::variables).unwrap_or_default();
    // Java does not read `KRB5_CONFIG`.
    let java_option = |file: &PathBuf| format!("-Djava.security.krb5.conf={}", file.display());
    variables.extend(hadoop.krb5_conf.as_ref().map(|it| ("JAVA_TOOL_OPTIONS", java_option(it))));
    let config = ConfigContext {
        options: &options,
        ports: &ports,
        directory: &directory,
        cluster_id: scratch.id(),
        lib: &hadoop.jars.home.join("lib"),
        variables,
    };
    let common = config::common(&config);
    common.write(&directory.join("conf"))?;
    let mut builder = ClusterBuilder {
        config,
        hadoop: &hadoop,
        common,
        logs,
        daemons: kdc.into_iter().collect(),
    };
    builder.zookeeper()?;
    let resource_managers = builder.resource_managers()?;
    let namenodes = builder.namenodes()?;
    let nodes = builder.nodes()?;
    let daemons = builder.daemons;
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

impl ClusterBuilder<'_> {
    /// Writes a daemon's configuration directory: the common keys, then those that `own` adds.
    fn configure(&self, name: &str, own: impl FnOnce(&mut Site)) -> Result<PathBuf, Error> {
        let mut site = self.common.clone();
        own(&mut site);
        config::extra(&self.config, &mut site);
        let directory = self.config.directory.join(name).join("conf");
        site.write(&directory)?;
        Ok(directory)
    }

    fn add(&mut self, name: &str, address: SocketAddr, command: Command) {
        self.daemons.push(Daemon::new(name, address, command, &self.logs));
    }

    fn zookeeper(&mut self) -> Result<(), Error> {
        if self.config.options.rm_ha != Some(Failover::Automatic) {
            return Ok(());
        }
        let configuration = self.configure("zk", |_| ())?;
        let address = self.config.ports.address(Port::Zookeeper);
        let file = configuration.join("zoo.cfg");
        let text = format!(
            "tickTime=500\ndataDir={}\nclientPort={}\nclientPortAddress={}\n\
             admin.enableServer=false\nminSessionTimeout=1000\nmaxSessionTimeout=40000\n",
            self.config.directory.join("zk/data").display(),
            address.port(),
            address.ip(),
        );
        fs::write(&file, text).map_err(Error::at("write", &file))?;
        let mut command = self.hadoop.daemon("zk", 128, &configuration, ZK_CLASS)?;
        command.arg(file);
        self.add("zk", address, command);
        Ok(())
    }

    fn resource_managers(&mut self) -> Result<Vec<ResourceManager>, Error> {
        let mut created = Vec::new();
        for second in [false, true] {
            if second && self.config.options.rm_ha.is_none() {
                break;
            }
            let name = if second { "rm2" } else { "rm" };
            let configuration = self.configure(name, |site| {
                config::configure_resource_manager(&self.config, second, site);
            })?;
            let addresses =
                config::resource_manager_ports(second).map(|port| self.config.ports.address(port));
            let command = self.hadoop.daemon(name, 512, &configuration, RM_CLASS)?;
            // The other ports listen only while this ResourceManager is active.
            self.add(name, addresses[4], command);
            created.push(ResourceManager {
                daemon: name.to_owned(),
                id: if second { "rm2" } else { "rm1" }.to_owned(),
                client: addresses[0],
                scheduler: addresses[1],
                tracker: addresses[2],
                admin: addresses[3],
                web: addresses[4],
            });
        }
        Ok(created)
    }

    fn namenodes(&mut self) -> Result<Vec<NameNode>, Error> {
        let mut created = Vec::new();
        let ports = self.config.ports;
        let count = match self.config.options.hdfs {
            Hdfs::None => return Ok(created),
            Hdfs::One => 1,
            Hdfs::Two | Hdfs::HighlyAvailable => 2,
            Hdfs::ViewFs => 3,
        };
        let all = [
            ("nn", Port::NnRpc, Port::NnWeb),
            ("nn2", Port::Nn2Rpc, Port::Nn2Web),
            ("nn3", Port::Nn3Rpc, Port::Nn3Web),
        ];
        for (name, rpc, web) in all.into_iter().take(count) {
            let own = |site: &mut Site| config::configure_namenode(&self.config, name, site);
            let configuration = self.configure(name, own)?;
            let command = self.hadoop.daemon(name, 256, &configuration, NN_CLASS)?;
            self.add(name, ports.address(rpc), command);
            created.push(NameNode {
                daemon: name.to_owned(),
                rpc: ports.address(rpc),
                web: ports.address(web),
            });
        }
        let configuration = self.configure("dn", |_| ())?;
        let command = self.hadoop.daemon("dn", 256, &configuration, DN_CLASS)?;
        self.add("dn", ports.address(Port::DnIpc), command);
        Ok(created)
    }

    fn nodes(&mut self) -> Result<Vec<Node>, Error> {
        let mut created = Vec::new();
        for index in 0..self.config.options.nodes {
            let name = format!("nm{}", index + 1);
            let own = |site: &mut Site| config::configure_node(&self.config, index, site);
            let configuration = self.configure(&name, own)?;
            let command = self.hadoop.daemon(&name, 256, &configuration, NM_CLASS)?;
            let address = self.config.ports.node_address(index, Port::NmRpc);
            self.add(&name, address, command);
            created.push(Node {
                daemon: name,
                address,
                web: self.config.ports.node_address(index, Port::NmWeb),
            });
        }
        Ok(created)
    }
}

/// Formats the file systems. A standalone NameNode can start from a copy of a file system formatted
/// earlier; the second NameNode of an HA pair starts from a copy of the first.
pub(crate) fn format(cluster: &Cluster) -> Result<(), Error> {
    let directory = &cluster.directory;
    let is_ha = config::nameservice(cluster.options.hdfs).is_some();
    for namenode in &cluster.namenodes {
        let home = directory.join(&namenode.daemon);
        let prepared = match namenode.daemon.as_str() {
            "nn" if !is_ha => cluster.hadoop.warm_start.file_system(),
            "nn2" if is_ha => Some(directory.join("nn/name")),
            _ => None,
        };
        if let Some(prepared) = prepared {
            copy(&prepared, &home.join("name"))?;
            continue;
        }
        let mut command = cluster.hadoop.tool(&home.join("conf"), NN_CLASS)?;
        // NameNodes that share DataNodes need the same cluster id.
        command.args(["-format", "-force", "-nonInteractive", "-clusterid", "testbed"]);
        tool::run_checked(&mut command, "", FORMAT_TIMEOUT)?;
        if let WarmStart::Record(directory) = &cluster.hadoop.warm_start {
            copy(&home.join("name"), &directory.join("name"))?;
        }
    }
    Ok(())
}

/// Copies the files of `current`, the only subdirectory of a freshly formatted NameNode.
fn copy(from: &Path, to: &Path) -> Result<(), Error> {
    let (from, to) = (from.join("current"), to.join("current"));
    fs::create_dir_all(&to).map_err(Error::at("make the directory", &to))?;
    for file in fs::read_dir(&from).map_err(Error::at("read", &from))? {
        let file = file.map_err(Error::at("read", &from))?;
        let target = to.join(file.file_name());
        fs::copy(file.path(), &target).map_err(Error::at("write", &target))?;
    }
    Ok(())
}
