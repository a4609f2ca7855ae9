//! ResourceManagers and NodeManagers.

use super::Plan;
use crate::{
    options::{Failover, Hdfs, Logs, Placement},
    ports::{Door, HOST, node_host},
    site::{File, Site},
    watcher::MARK,
};

/// The doors of a ResourceManager: for clients, masters, nodes, administrators and people.
pub(crate) fn doors(second: bool) -> [Door; 5] {
    if second { RM2 } else { RM }.map(|(_, door)| door)
}

const RM: [(&str, Door); 5] = [
    ("address", Door::RmClient),
    ("scheduler.address", Door::RmScheduler),
    ("resource-tracker.address", Door::RmTracker),
    ("admin.address", Door::RmAdmin),
    ("webapp.address", Door::RmWeb),
];

const RM2: [(&str, Door); 5] = [
    ("address", Door::Rm2Client),
    ("scheduler.address", Door::Rm2Scheduler),
    ("resource-tracker.address", Door::Rm2Tracker),
    ("admin.address", Door::Rm2Admin),
    ("webapp.address", Door::Rm2Web),
];

pub(super) fn common(plan: &Plan<'_>, site: &mut Site) {
    let options = plan.options;
    resource_managers(plan, site);
    recovery(plan, site);
    tokens(plan, site);
    logs(plan, site);

    let rm = |key: &str| format!("yarn.resourcemanager.{key}");
    site.yarn("yarn.scheduler.minimum-allocation-mb", 64);
    site.yarn("yarn.scheduler.maximum-allocation-mb", options.node_memory_mib);
    site.yarn("yarn.scheduler.maximum-allocation-vcores", options.node_vcores);
    let beat = options.heartbeat.as_millis();
    site.yarn(rm("nodemanagers.heartbeat-interval-ms"), beat);
    // 3.x slows the beats of nodes busier than others, which makes waits in tests unequal.
    site.yarn(rm("nodemanagers.heartbeat-interval-scaling-enable"), false);
    // With the defaults clients and nodes sleep up to 30 s between two tries.
    site.yarn("yarn.client.failover-sleep-base-ms", 100);
    site.yarn("yarn.client.failover-sleep-max-ms", 1000);
    site.yarn(rm("connect.retry-interval.ms"), 200);
    site.yarn("yarn.admin.acl", "*");
    site.yarn("yarn.acl.enable", options.kerberos.is_some());
    site.yarn("yarn.application.classpath", plan.lib.join("*").display());

    if options.version.has_placement_constraints() {
        let handler = match options.placement {
            Placement::Scheduler => "scheduler",
            Placement::Processor => "placement-processor",
            Placement::Disabled => "disabled",
        };
        site.yarn(rm("placement-constraints.handler"), handler);
        let store = format!("file://{}", plan.path("state/attributes"));
        site.yarn("yarn.node-attribute.fs-store.root-dir", store);
    }
    if !options.labels.is_empty() {
        site.yarn("yarn.node-labels.enabled", true);
        let store = format!("file://{}", plan.path("state/labels"));
        site.yarn("yarn.node-labels.fs-store.root-dir", store);
    }
    if !options.gpus.is_empty() {
        site.set(File::ResourceTypes, "yarn.resource-types", "yarn.io/gpu");
    }
    if let Some(notice) = options.preemption {
        site.yarn(rm("scheduler.monitor.enable"), true);
        let key = |name: &str| rm(&format!("monitor.capacity.preemption.{name}"));
        site.yarn(key("monitoring_interval"), 500);
        site.yarn(key("max_wait_before_kill"), notice.as_millis());
        site.yarn(key("total_preemption_per_round"), "1.0");
        site.yarn(key("natural_termination_factor"), "1.0");
        site.yarn(key("max_ignored_over_capacity"), "0.0");
    }
}

fn resource_managers(plan: &Plan<'_>, site: &mut Site) {
    let Some(failover) = plan.options.rm_ha else {
        site.yarn("yarn.resourcemanager.hostname", HOST);
        for (key, door) in RM {
            site.yarn(format!("yarn.resourcemanager.{key}"), plan.ports.at(door));
        }
        return;
    };
    site.yarn("yarn.resourcemanager.ha.enabled", true);
    site.yarn("yarn.resourcemanager.ha.rm-ids", "rm1,rm2");
    site.yarn("yarn.resourcemanager.cluster-id", "testbed");
    for (id, doors) in [("rm1", RM), ("rm2", RM2)] {
        site.yarn(format!("yarn.resourcemanager.hostname.{id}"), HOST);
        for (key, door) in doors {
            let key = format!("yarn.resourcemanager.{key}.{id}");
            site.yarn(key, plan.ports.at(door));
        }
    }
    let automatic = failover == Failover::Automatic;
    site.yarn("yarn.resourcemanager.ha.automatic-failover.enabled", automatic);
    if automatic {
        let zookeeper = plan.ports.at(Door::Zookeeper);
        // The first is where 3.x looks, the second where 2.x does.
        site.core("hadoop.zk.address", zookeeper);
        site.yarn("yarn.resourcemanager.zk-address", zookeeper);
        site.core("hadoop.zk.timeout-ms", 4000);
        site.yarn("yarn.resourcemanager.zk-timeout-ms", 4000);
    }
}

fn recovery(plan: &Plan<'_>, site: &mut Site) {
    let rm = plan.options.rm_recovery;
    site.yarn("yarn.resourcemanager.recovery.enabled", rm);
    if rm {
        let class = "org.apache.hadoop.yarn.server.resourcemanager.recovery.FileSystemRMStateStore";
        site.yarn("yarn.resourcemanager.store.class", class);
        let store = format!("file://{}", plan.path("state/applications"));
        site.yarn("yarn.resourcemanager.fs.state-store.uri", store);
        site.yarn("yarn.resourcemanager.work-preserving-recovery.enabled", true);
        // How long the scheduler waits for nodes to come back after a restart before it hands out
        // containers: ten seconds by default.
        let wait = "yarn.resourcemanager.work-preserving-recovery.scheduling-wait-ms";
        site.yarn(wait, 1000);
    }
    site.yarn("yarn.nodemanager.recovery.enabled", plan.options.nm_recovery);
    site.yarn("yarn.nodemanager.recovery.supervised", plan.options.nm_recovery);
}

fn tokens(plan: &Plan<'_>, site: &mut Site) {
    let expiry = plan.options.token_interval.map_or(plan.options.expiry, |interval| interval / 4);
    site.yarn("yarn.am.liveness-monitor.expiry-interval-ms", expiry.as_millis());
    site.yarn("yarn.nm.liveness-monitor.expiry-interval-ms", expiry.as_millis());
    let Some(interval) = plan.options.token_interval else {
        return;
    };
    for kind in ["am-rm-tokens", "container-tokens", "nm-tokens"] {
        let key = format!("yarn.resourcemanager.{kind}.master-key-rolling-interval-secs");
        site.yarn(key, interval.as_secs());
    }
    let (renew, end) = (interval.as_millis(), 4 * interval.as_millis());
    for (key, value) in [
        ("key.update-interval", renew),
        ("token.renew-interval", renew),
        ("token.max-lifetime", end),
    ] {
        site.yarn(format!("yarn.resourcemanager.delegation.{key}"), value);
        site.hdfs(format!("dfs.namenode.delegation.{key}"), value);
    }
}

fn logs(plan: &Plan<'_>, site: &mut Site) {
    let options = plan.options;
    let kept = options.hdfs != Hdfs::None && options.kerberos.is_none();
    let logs = if kept { options.logs } else { Logs::Local };
    site.yarn("yarn.log-aggregation-enable", logs != Logs::Local);
    site.yarn("yarn.nodemanager.remote-app-log-dir", "/app-logs");
    // Logs that stay are kept for a day, so that a test finds them after the end.
    site.yarn("yarn.nodemanager.log.retain-seconds", 86_400);
    if logs == Logs::Indexed {
        site.yarn("yarn.log-aggregation.file-formats", "IndexedFile,TFile");
        let class = "org.apache.hadoop.yarn.logaggregation.filecontroller.ifile.\
                     LogAggregationIndexedFileController";
        site.yarn("yarn.log-aggregation.file-controller.IndexedFile.class", class);
    }
}

/// What is one ResourceManager's own. Both have the same host, so that it must be told which it is.
pub(crate) fn of_resource_manager(plan: &Plan<'_>, second: bool, site: &mut Site) {
    if plan.options.rm_ha.is_some() {
        let id = if second { "rm2" } else { "rm1" };
        site.yarn("yarn.resourcemanager.ha.id", id);
    }
}

/// What is one NodeManager's own: its host and its directories.
pub(crate) fn of_node(plan: &Plan<'_>, index: usize, site: &mut Site) {
    let (options, ports) = (plan.options, plan.ports);
    let mut set = |key: &str, value: String| site.yarn(format!("yarn.nodemanager.{key}"), value);
    let name = format!("nm{}", index + 1);
    let path = |folder: &str| plan.path(&format!("{name}/{folder}"));
    set("hostname", node_host(index).to_string());
    set("bind-host", node_host(index).to_string());
    set("address", ports.on_node(index, Door::NmRpc).to_string());
    set("localizer.address", ports.on_node(index, Door::NmLocalizer).to_string());
    set("webapp.address", ports.on_node(index, Door::NmWeb).to_string());
    set("local-dirs", path("local"));
    set("log-dirs", path("containers"));
    set("recovery.dir", path("recovery"));
    set("resource.memory-mb", options.node_memory_mib.to_string());
    set("resource.cpu-vcores", options.node_vcores.to_string());
    set("vmem-check-enabled", false.to_string());
    // On a fuller disk every node would be unhealthy and every ask would wait for ever.
    set("disk-health-checker.max-disk-utilization-per-disk-percentage", "99.9".to_owned());
    set("disk-health-checker.min-free-space-per-disk-mb", "0".to_owned());
    // The mark by which the watcher finds containers whose NodeManager is gone.
    let mut variables = format!("MALLOC_ARENA_MAX=4,{MARK}={}", plan.mark);
    for (name, value) in &plan.variables {
        variables += &format!(",{name}={value}");
    }
    set("admin-env", variables);
    if let Some(gpus) = options.gpus.get(index).filter(|gpus| **gpus > 0) {
        set("resource-type.yarn.io/gpu", gpus.to_string());
    }
    let mine = options.attributes.iter().filter(|(node, _, _)| *node == index + 1);
    let mine: Vec<_> = mine.map(|(_, name, value)| format!("{name},STRING,{value}")).collect();
    if !mine.is_empty() {
        set("node-attributes.provider", "config".to_owned());
        set("node-attributes.provider.configured-node-attributes", mine.join(":"));
    }
}
