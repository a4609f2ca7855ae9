//! Keys of ResourceManagers and NodeManagers.

use super::ConfigContext;
use crate::{
    options::{Failover, Hdfs, Logs, Placement},
    ports::{HOST, Port, node_host},
    site::{File, Site},
    watcher::CLUSTER_ID_VAR,
};

/// Returns the ports of a ResourceManager: for clients, masters, nodes, administrators and the web UI.
pub(crate) fn resource_manager_ports(second: bool) -> [Port; 5] {
    if second { RM2_PORTS } else { RM_PORTS }.map(|(_, port)| port)
}

const RM_PORTS: [(&str, Port); 5] = [
    ("address", Port::RmClient),
    ("scheduler.address", Port::RmScheduler),
    ("resource-tracker.address", Port::RmTracker),
    ("admin.address", Port::RmAdmin),
    ("webapp.address", Port::RmWeb),
];

const RM2_PORTS: [(&str, Port); 5] = [
    ("address", Port::Rm2Client),
    ("scheduler.address", Port::Rm2Scheduler),
    ("resource-tracker.address", Port::Rm2Tracker),
    ("admin.address", Port::Rm2Admin),
    ("webapp.address", Port::Rm2Web),
];

pub(super) fn common(context: &ConfigContext<'_>, site: &mut Site) {
    let options = context.options;
    resource_managers(context, site);
    recovery(context, site);
    tokens(context, site);
    logs(context, site);

    let rm = |key: &str| format!("yarn.resourcemanager.{key}");
    site.yarn("yarn.scheduler.minimum-allocation-mb", 64);
    site.yarn("yarn.scheduler.maximum-allocation-mb", options.node_memory_mib);
    site.yarn("yarn.scheduler.maximum-allocation-vcores", options.node_vcores);
    let heartbeat = options.heartbeat.as_millis();
    site.yarn(rm("nodemanagers.heartbeat-interval-ms"), heartbeat);
    // 3.x lengthens the heartbeat interval of busy nodes, which makes test times vary.
    site.yarn(rm("nodemanagers.heartbeat-interval-scaling-enable"), false);
    // By default clients and nodes sleep up to 30 s between retries.
    site.yarn("yarn.client.failover-sleep-base-ms", 100);
    site.yarn("yarn.client.failover-sleep-max-ms", 1000);
    site.yarn(rm("connect.retry-interval.ms"), 200);
    site.yarn("yarn.admin.acl", "*");
    site.yarn("yarn.acl.enable", options.kerberos.is_some());
    site.yarn("yarn.application.classpath", context.lib.join("*").display());

    if options.version.has_placement_constraints() {
        let handler = match options.placement {
            Placement::Scheduler => "scheduler",
            Placement::Processor => "placement-processor",
            Placement::Disabled => "disabled",
        };
        site.yarn(rm("placement-constraints.handler"), handler);
        let store = format!("file://{}", context.path("state/attributes"));
        site.yarn("yarn.node-attribute.fs-store.root-dir", store);
    }
    if !options.labels.is_empty() {
        site.yarn("yarn.node-labels.enabled", true);
        let store = format!("file://{}", context.path("state/labels"));
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

fn resource_managers(context: &ConfigContext<'_>, site: &mut Site) {
    let Some(failover) = context.options.rm_ha else {
        site.yarn("yarn.resourcemanager.hostname", HOST);
        for (key, port) in RM_PORTS {
            site.yarn(format!("yarn.resourcemanager.{key}"), context.ports.address(port));
        }
        return;
    };
    site.yarn("yarn.resourcemanager.ha.enabled", true);
    site.yarn("yarn.resourcemanager.ha.rm-ids", "rm1,rm2");
    site.yarn("yarn.resourcemanager.cluster-id", "testbed");
    for (id, ports) in [("rm1", RM_PORTS), ("rm2", RM2_PORTS)] {
        site.yarn(format!("yarn.resourcemanager.hostname.{id}"), HOST);
        for (key, port) in ports {
            let key = format!("yarn.resourcemanager.{key}.{id}");
            site.yarn(key, context.ports.address(port));
        }
    }
    let automatic = failover == Failover::Automatic;
    site.yarn("yarn.resourcemanager.ha.automatic-failover.enabled", automatic);
    if automatic {
        let zookeeper = context.ports.address(Port::Zookeeper);
        // 3.x reads the first key, 2.x the second.
        site.core("hadoop.zk.address", zookeeper);
        site.yarn("yarn.resourcemanager.zk-address", zookeeper);
        site.core("hadoop.zk.timeout-ms", 4000);
        site.yarn("yarn.resourcemanager.zk-timeout-ms", 4000);
    }
}

fn recovery(context: &ConfigContext<'_>, site: &mut Site) {
    let rm = context.options.rm_recovery;
    site.yarn("yarn.resourcemanager.recovery.enabled", rm);
    if rm {
        let class = "org.apache.hadoop.yarn.server.resourcemanager.recovery.FileSystemRMStateStore";
        site.yarn("yarn.resourcemanager.store.class", class);
        let store = format!("file://{}", context.path("state/applications"));
        site.yarn("yarn.resourcemanager.fs.state-store.uri", store);
        site.yarn("yarn.resourcemanager.work-preserving-recovery.enabled", true);
        // Time that the scheduler waits for nodes to register after a restart before it allocates
        // containers; the default is ten seconds.
        let wait = "yarn.resourcemanager.work-preserving-recovery.scheduling-wait-ms";
        site.yarn(wait, 1000);
    }
    site.yarn("yarn.nodemanager.recovery.enabled", context.options.nm_recovery);
    site.yarn("yarn.nodemanager.recovery.supervised", context.options.nm_recovery);
}

fn tokens(context: &ConfigContext<'_>, site: &mut Site) {
    let expiry =
        context.options.token_interval.map_or(context.options.expiry, |interval| interval / 4);
    site.yarn("yarn.am.liveness-monitor.expiry-interval-ms", expiry.as_millis());
    site.yarn("yarn.nm.liveness-monitor.expiry-interval-ms", expiry.as_millis());
    let Some(interval) = context.options.token_interval else {
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

fn logs(context: &ConfigContext<'_>, site: &mut Site) {
    let options = context.options;
    let aggregate = options.hdfs != Hdfs::None && options.kerberos.is_none();
    let logs = if aggregate { options.logs } else { Logs::Local };
    site.yarn("yarn.log-aggregation-enable", logs != Logs::Local);
    site.yarn("yarn.nodemanager.remote-app-log-dir", "/app-logs");
    // Local logs are kept for a day, so that tests can read them after the application.
    site.yarn("yarn.nodemanager.log.retain-seconds", 86_400);
    if logs == Logs::Indexed {
        site.yarn("yarn.log-aggregation.file-formats", "IndexedFile,TFile");
        let class = "org.apache.hadoop.yarn.logaggregation.filecontroller.ifile.\
                     LogAggregationIndexedFileController";
        site.yarn("yarn.log-aggregation.file-controller.IndexedFile.class", class);
    }
}

/// Sets the keys of one ResourceManager: its id, which it cannot derive because both share a host.
pub(crate) fn configure_resource_manager(
    context: &ConfigContext<'_>,
    second: bool,
    site: &mut Site,
) {
    if context.options.rm_ha.is_some() {
        let id = if second { "rm2" } else { "rm1" };
        site.yarn("yarn.resourcemanager.ha.id", id);
    }
}

/// Sets the keys of one NodeManager: its host, directories, resources and attributes.
pub(crate) fn configure_node(context: &ConfigContext<'_>, index: usize, site: &mut Site) {
    let (options, ports) = (context.options, context.ports);
    let mut set = |key: &str, value: String| site.yarn(format!("yarn.nodemanager.{key}"), value);
    let name = format!("nm{}", index + 1);
    let path = |folder: &str| context.path(&format!("{name}/{folder}"));
    set("hostname", node_host(index).to_string());
    set("bind-host", node_host(index).to_string());
    set("address", ports.node_address(index, Port::NmRpc).to_string());
    set("localizer.address", ports.node_address(index, Port::NmLocalizer).to_string());
    set("webapp.address", ports.node_address(index, Port::NmWeb).to_string());
    set("local-dirs", path("local"));
    set("log-dirs", path("containers"));
    set("recovery.dir", path("recovery"));
    set("resource.memory-mb", options.node_memory_mib.to_string());
    set("resource.cpu-vcores", options.node_vcores.to_string());
    set("vmem-check-enabled", false.to_string());
    // With the defaults a nearly full disk makes every node unhealthy, and requests wait forever.
    set("disk-health-checker.max-disk-utilization-per-disk-percentage", "99.9".to_owned());
    set("disk-health-checker.min-free-space-per-disk-mb", "0".to_owned());
    // The watcher finds containers by this variable, even after their NodeManager exited.
    let mut variables = format!("MALLOC_ARENA_MAX=4,{CLUSTER_ID_VAR}={}", context.cluster_id);
    for (name, value) in &context.variables {
        variables += &format!(",{name}={value}");
    }
    for (name, value) in &options.variables {
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
