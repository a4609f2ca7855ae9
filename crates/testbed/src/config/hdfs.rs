//! Keys of HDFS.

use super::ConfigContext;
use crate::{
    options::Hdfs,
    ports::{Port, PortBlock},
    site::Site,
};

/// Nameservice of the highly available file system.
const NAMESERVICE: &str = "testbed";

/// Returns the default file system.
pub(crate) fn default_fs(hdfs: Hdfs, ports: &PortBlock) -> String {
    match hdfs {
        Hdfs::None => "file:///".to_owned(),
        Hdfs::One | Hdfs::Two => format!("hdfs://{}", ports.address(Port::NnRpc)),
        Hdfs::HighlyAvailable => format!("hdfs://{NAMESERVICE}"),
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
            site.hdfs(format!("dfs.ha.namenodes.{NAMESERVICE}"), "nn1,nn2");
            let namenodes =
                [("nn1", Port::NnRpc, Port::NnWeb), ("nn2", Port::Nn2Rpc, Port::Nn2Web)];
            for (id, rpc, web) in namenodes {
                site.hdfs(format!("dfs.namenode.rpc-address.{NAMESERVICE}.{id}"), address(rpc));
                site.hdfs(format!("dfs.namenode.http-address.{NAMESERVICE}.{id}"), address(web));
            }
            let provider =
                "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider";
            site.hdfs(format!("dfs.client.failover.proxy.provider.{NAMESERVICE}"), provider);
            // Both NameNodes share one disk: neither JournalNodes nor fencing are needed.
            site.hdfs("dfs.namenode.shared.edits.dir", format!("file://{}", context.path("edits")));
            site.hdfs("dfs.ha.fencing.methods", "shell(/bin/true)");
            site.hdfs("dfs.ha.tail-edits.period", 1);
            // The standby reads edits when a segment is closed; the default is two minutes.
            site.hdfs("dfs.ha.log-roll.period", 5);
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

/// Sets the keys of one NameNode; `second` means `nn2`.
pub(crate) fn configure_namenode(context: &ConfigContext<'_>, second: bool, site: &mut Site) {
    let name = if second { "nn2" } else { "nn" };
    site.hdfs("dfs.namenode.name.dir", context.path(&format!("{name}/name")));
    let number = if second { 2 } else { 1 };
    match context.options.hdfs {
        Hdfs::None | Hdfs::One => {}
        Hdfs::Two => site.hdfs("dfs.nameservice.id", format!("fs{number}")),
        Hdfs::HighlyAvailable => site.hdfs("dfs.ha.namenode.id", format!("nn{number}")),
    }
}
