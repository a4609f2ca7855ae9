//! The file systems.

use super::Plan;
use crate::{
    options::Hdfs,
    ports::{Door, Ports},
    site::Site,
};

/// The name of the file system with two NameNodes.
const NAME: &str = "testbed";

/// What paths without a scheme mean.
pub(crate) fn default_fs(hdfs: Hdfs, ports: &Ports) -> String {
    match hdfs {
        Hdfs::None => "file:///".to_owned(),
        Hdfs::One | Hdfs::Two => format!("hdfs://{}", ports.at(Door::NnRpc)),
        Hdfs::HighlyAvailable => format!("hdfs://{NAME}"),
    }
}

pub(super) fn common(plan: &Plan<'_>, site: &mut Site) {
    let ports = plan.ports;
    site.core("fs.defaultFS", default_fs(plan.options.hdfs, ports));
    site.core("hadoop.tmp.dir", plan.path("tmp"));

    let rpc = |door| format!("{}", ports.at(door));
    match plan.options.hdfs {
        Hdfs::None => return,
        Hdfs::One => {
            site.hdfs("dfs.namenode.rpc-address", rpc(Door::NnRpc));
            site.hdfs("dfs.namenode.http-address", rpc(Door::NnWeb));
        }
        Hdfs::Two => {
            site.hdfs("dfs.nameservices", "fs1,fs2");
            site.hdfs("dfs.namenode.rpc-address.fs1", rpc(Door::NnRpc));
            site.hdfs("dfs.namenode.http-address.fs1", rpc(Door::NnWeb));
            site.hdfs("dfs.namenode.rpc-address.fs2", rpc(Door::Nn2Rpc));
            site.hdfs("dfs.namenode.http-address.fs2", rpc(Door::Nn2Web));
        }
        Hdfs::HighlyAvailable => {
            site.hdfs("dfs.nameservices", NAME);
            site.hdfs(format!("dfs.ha.namenodes.{NAME}"), "nn1,nn2");
            let doors = [("nn1", Door::NnRpc, Door::NnWeb), ("nn2", Door::Nn2Rpc, Door::Nn2Web)];
            for (id, door, web) in doors {
                site.hdfs(format!("dfs.namenode.rpc-address.{NAME}.{id}"), rpc(door));
                site.hdfs(format!("dfs.namenode.http-address.{NAME}.{id}"), rpc(web));
            }
            let provider =
                "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider";
            site.hdfs(format!("dfs.client.failover.proxy.provider.{NAME}"), provider);
            // Both NameNodes see the same disk: no journal nodes are needed, and nobody to fence.
            site.hdfs("dfs.namenode.shared.edits.dir", format!("file://{}", plan.path("edits")));
            site.hdfs("dfs.ha.fencing.methods", "shell(/bin/true)");
            site.hdfs("dfs.ha.tail-edits.period", 1);
            // Edits go to the other NameNode when a segment ends, two minutes later by default.
            site.hdfs("dfs.ha.log-roll.period", 5);
        }
    }
    site.hdfs("dfs.replication", 1);
    site.hdfs("dfs.datanode.data.dir", plan.path("dn/data"));
    site.hdfs("dfs.datanode.address", rpc(Door::DnData));
    site.hdfs("dfs.datanode.http.address", rpc(Door::DnWeb));
    site.hdfs("dfs.datanode.ipc.address", rpc(Door::DnIpc));
    site.hdfs("dfs.namenode.datanode.registration.ip-hostname-check", false);
    site.hdfs("dfs.namenode.safemode.extension", 0);
    site.hdfs("dfs.heartbeat.interval", 1);
    // A DataNode starts before its NameNode and must not wait long between tries.
    site.core("ipc.client.connect.retry.interval", 200);
    site.core("ipc.client.connect.max.retries", 300);
    site.hdfs("dfs.client.failover.sleep.base.millis", 100);
    site.hdfs("dfs.client.failover.sleep.max.millis", 1000);
    // Small disks of test machines: leave them no reserve, and do not scan them.
    site.hdfs("dfs.namenode.resource.du.reserved", 1 << 20);
    site.hdfs("dfs.block.scanner.volume.bytes.per.second", 0);
    site.hdfs("dfs.namenode.fs-limits.min-block-size", 1024);
}

/// What is the NameNode's own; `second` means `nn2`.
pub(crate) fn of_namenode(plan: &Plan<'_>, second: bool, site: &mut Site) {
    let name = if second { "nn2" } else { "nn" };
    site.hdfs("dfs.namenode.name.dir", plan.path(&format!("{name}/name")));
    let which = if second { 2 } else { 1 };
    match plan.options.hdfs {
        Hdfs::None | Hdfs::One => {}
        Hdfs::Two => site.hdfs("dfs.nameservice.id", format!("fs{which}")),
        Hdfs::HighlyAvailable => site.hdfs("dfs.ha.namenode.id", format!("nn{which}")),
    }
}
