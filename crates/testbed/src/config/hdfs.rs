//! Keys of HDFS.

use super::ConfigContext;
use crate::{
    options::Hdfs,
    ports::{Port, PortBlock},
    site::Site,
};

/// Nameservice of the highly available file system.
const NAMESERVICE: &str = "testbed";
/// Mount table, and nameservice of the highly available file system below it. Programs for viewfs often
/// replace the scheme of their default file system by `hdfs`.
const MOUNT_TABLE: &str = "root";
/// Directories that the mount table has in the highly available file system.
const MOUNTED: [&str; 3] = ["user", "tmp", "app-logs"];

/// Returns the nameservice with two NameNodes, if there is one.
pub(crate) fn nameservice(hdfs: Hdfs) -> Option<&'static str> {
    match hdfs {
        Hdfs::None | Hdfs::One | Hdfs::Two => None,
        Hdfs::HighlyAvailable => Some(NAMESERVICE),
        Hdfs::ViewFs => Some(MOUNT_TABLE),
    }
}

/// Returns the default file system.
pub(crate) fn default_fs(hdfs: Hdfs, ports: &PortBlock) -> String {
    match hdfs {
        Hdfs::None => "file:///".to_owned(),
        Hdfs::One | Hdfs::Two => format!("hdfs://{}", ports.address(Port::NnRpc)),
        Hdfs::HighlyAvailable => format!("hdfs://{NAMESERVICE}"),
        Hdfs::ViewFs => format!("viewfs://{MOUNT_TABLE}"),
    }
}

pub(super) fn common(context: &ConfigContext<'_>, site: &mut Site) {
    let ports = context.ports;
    site.core("fs.defaultFS", default_fs(context.options.hdfs, ports));
    site.core("hadoop.tmp.dir", context.path("tmp"));

    let address = |port| format!("{}", ports.address(port));
    match context.options.hdfs {
        Hdfs::None => return,
        Hdfs::One => {
            site.hdfs("dfs.namenode.rpc-address", address(Port::NnRpc));
            site.hdfs("dfs.namenode.http-address", address(Port::NnWeb));
        }
        Hdfs::Two => {
            site.hdfs("dfs.nameservices", "fs1,fs2");
            site.hdfs("dfs.namenode.rpc-address.fs1", address(Port::NnRpc));
            site.hdfs("dfs.namenode.http-address.fs1", address(Port::NnWeb));
            site.hdfs("dfs.namenode.rpc-address.fs2", address(Port::Nn2Rpc));
            site.hdfs("dfs.namenode.http-address.fs2", address(Port::Nn2Web));
        }
        Hdfs::HighlyAvailable => {
            site.hdfs("dfs.nameservices", NAMESERVICE);
            highly_available(context, NAMESERVICE, site);
        }
        Hdfs::ViewFs => {
            site.hdfs("dfs.nameservices", format!("{MOUNT_TABLE},fs3"));
            highly_available(context, MOUNT_TABLE, site);
            site.hdfs("dfs.namenode.rpc-address.fs3", address(Port::Nn3Rpc));
            site.hdfs("dfs.namenode.http-address.fs3", address(Port::Nn3Web));
            // No fallback: other paths do not exist.
            let link = |name| format!("fs.viewfs.mounttable.{MOUNT_TABLE}.link./{name}");
            for name in MOUNTED {
                site.core(link(name), format!("hdfs://{MOUNT_TABLE}/{name}"));
            }
            site.core(link("data"), format!("hdfs://{}/data", address(Port::Nn3Rpc)));
        }
    }
    site.hdfs("dfs.replication", 1);
    site.hdfs("dfs.datanode.data.dir", context.path("dn/data"));
    site.hdfs("dfs.datanode.address", address(Port::DnData));
    site.hdfs("dfs.datanode.http.address", address(Port::DnWeb));
    site.hdfs("dfs.datanode.ipc.address", address(Port::DnIpc));
    site.hdfs("dfs.namenode.datanode.registration.ip-hostname-check", false);
    site.hdfs("dfs.namenode.safemode.extension", 0);
    site.hdfs("dfs.heartbeat.interval", 1);
    // A DataNode starts before its NameNode: keep the retry interval short.
    site.core("ipc.client.connect.retry.interval", 200);
    site.core("ipc.client.connect.max.retries", 300);
    site.hdfs("dfs.client.failover.sleep.base.millis", 100);
    site.hdfs("dfs.client.failover.sleep.max.millis", 1000);
    // Test machines have small disks: no reserve, no block scanner.
    site.hdfs("dfs.namenode.resource.du.reserved", 1 << 20);
    site.hdfs("dfs.block.scanner.volume.bytes.per.second", 0);
    site.hdfs("dfs.namenode.fs-limits.min-block-size", 1024);
}

/// Sets the keys of a nameservice with the NameNodes `nn` and `nn2`.
fn highly_available(context: &ConfigContext<'_>, name: &str, site: &mut Site) {
    site.hdfs(format!("dfs.ha.namenodes.{name}"), "nn1,nn2");
    let namenodes = [("nn1", Port::NnRpc, Port::NnWeb), ("nn2", Port::Nn2Rpc, Port::Nn2Web)];
    for (id, rpc, web) in namenodes {
        for (key, port) in [("rpc", rpc), ("http", web)] {
            let key = format!("dfs.namenode.{key}-address.{name}.{id}");
            site.hdfs(key, context.ports.address(port));
        }
    }
    let provider = "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider";
    site.hdfs(format!("dfs.client.failover.proxy.provider.{name}"), provider);
    // Both NameNodes share one disk: neither JournalNodes nor fencing are needed.
    let edits = format!("file://{}", context.path("edits"));
    site.hdfs(format!("dfs.namenode.shared.edits.dir.{name}"), edits);
    site.hdfs("dfs.ha.fencing.methods", "shell(/bin/true)");
    site.hdfs("dfs.ha.tail-edits.period", 1);
    // The standby reads edits when a segment is closed; the default is two minutes.
    site.hdfs("dfs.ha.log-roll.period", 5);
}

/// Sets the keys of one NameNode: `nn`, `nn2` or `nn3`.
pub(crate) fn configure_namenode(context: &ConfigContext<'_>, name: &str, site: &mut Site) {
    site.hdfs("dfs.namenode.name.dir", context.path(&format!("{name}/name")));
    let number = name.strip_prefix("nn").filter(|number| !number.is_empty()).unwrap_or("1");
    let own = match (context.options.hdfs, name) {
        (Hdfs::None | Hdfs::One, _) => return,
        (Hdfs::Two, _) | (Hdfs::ViewFs, "nn3") => format!("fs{number}"),
        (Hdfs::HighlyAvailable, _) => NAMESERVICE.to_owned(),
        (Hdfs::ViewFs, _) => MOUNT_TABLE.to_owned(),
    };
    if nameservice(context.options.hdfs) == Some(own.as_str()) {
        site.hdfs("dfs.ha.namenode.id", format!("nn{number}"));
    }
    site.hdfs("dfs.nameservice.id", own);
}
