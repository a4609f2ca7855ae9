//! Default values of the keys read by this crate, as of Hadoop 3.5.
//!
//! Older versions differ for a few keys: ApplicationMasters expired after 10 minutes before 3.4,
//! and calls had no timeout of their own.

/// Pairs of key and default value.
pub(super) const DEFAULTS: &[(&str, &str)] = &[
    // core-default.xml
    ("fs.defaultFS", "file:///"),
    ("hadoop.http.authentication.simple.anonymous.allowed", "true"),
    ("hadoop.http.authentication.type", "simple"),
    ("hadoop.rpc.protection", "authentication"),
    ("hadoop.security.auth_to_local.mechanism", "hadoop"),
    ("hadoop.security.authentication", "simple"),
    ("hadoop.security.authorization", "false"),
    ("hadoop.security.sasl.mechanism", "DIGEST-MD5"),
    ("hadoop.security.token.service.use_ip", "true"),
    ("hadoop.tmp.dir", "/tmp/hadoop-${user.name}"),
    ("ipc.client.connect.max.retries", "10"),
    ("ipc.client.connect.max.retries.on.timeouts", "45"),
    ("ipc.client.connect.retry.interval", "1000"),
    ("ipc.client.connect.timeout", "20000"),
    ("ipc.client.connection.maxidletime", "10000"),
    ("ipc.client.fallback-to-simple-auth-allowed", "false"),
    ("ipc.client.ping", "true"),
    ("ipc.client.rpc-timeout.ms", "120000"),
    ("ipc.client.tcpnodelay", "true"),
    ("ipc.maximum.data.length", "134217728"),
    ("ipc.maximum.response.length", "134217728"),
    ("ipc.ping.interval", "60000"),
    // hdfs-default.xml
    ("dfs.client.failover.max.attempts", "15"),
    ("dfs.client.failover.sleep.base.millis", "500"),
    ("dfs.client.failover.sleep.max.millis", "15000"),
    ("dfs.http.policy", "HTTP_ONLY"),
    ("dfs.namenode.delegation.token.max-lifetime", "604800000"),
    ("dfs.namenode.delegation.token.renew-interval", "86400000"),
    ("dfs.namenode.http-address", "0.0.0.0:9870"),
    ("dfs.namenode.https-address", "0.0.0.0:9871"),
    ("dfs.namenode.kerberos.principal.pattern", "*"),
    ("dfs.user.home.dir.prefix", "/user"),
    // yarn-default.xml: addresses
    ("yarn.http.policy", "HTTP_ONLY"),
    ("yarn.resourcemanager.address", "${yarn.resourcemanager.hostname}:8032"),
    ("yarn.resourcemanager.admin.address", "${yarn.resourcemanager.hostname}:8033"),
    ("yarn.resourcemanager.ha.enabled", "false"),
    ("yarn.resourcemanager.hostname", "0.0.0.0"),
    ("yarn.resourcemanager.resource-tracker.address", "${yarn.resourcemanager.hostname}:8031"),
    ("yarn.resourcemanager.scheduler.address", "${yarn.resourcemanager.hostname}:8030"),
    ("yarn.resourcemanager.webapp.address", "${yarn.resourcemanager.hostname}:8088"),
    ("yarn.resourcemanager.webapp.https.address", "${yarn.resourcemanager.hostname}:8090"),
    ("yarn.nodemanager.amrmproxy.address", "0.0.0.0:8049"),
    ("yarn.nodemanager.amrmproxy.enabled", "false"),
    ("yarn.timeline-service.address", "${yarn.timeline-service.hostname}:10200"),
    ("yarn.timeline-service.enabled", "false"),
    ("yarn.timeline-service.hostname", "0.0.0.0"),
    ("yarn.timeline-service.version", "1.0f"),
    ("yarn.timeline-service.webapp.address", "${yarn.timeline-service.hostname}:8188"),
    // yarn-default.xml: times
    ("yarn.am.liveness-monitor.expiry-interval-ms", "900000"),
    ("yarn.client.application-client-protocol.poll-interval-ms", "200"),
    ("yarn.client.application-client-protocol.poll-timeout-ms", "-1"),
    ("yarn.client.nodemanager-connect.max-wait-ms", "180000"),
    ("yarn.client.nodemanager-connect.retry-interval-ms", "10000"),
    ("yarn.nm.liveness-monitor.expiry-interval-ms", "600000"),
    ("yarn.nodemanager.sleep-delay-before-sigkill.ms", "250"),
    ("yarn.resourcemanager.am-rm-tokens.master-key-rolling-interval-secs", "86400"),
    ("yarn.resourcemanager.connect.max-wait.ms", "900000"),
    ("yarn.resourcemanager.connect.retry-interval.ms", "30000"),
    ("yarn.resourcemanager.delegation.token.max-lifetime", "604800000"),
    ("yarn.resourcemanager.delegation.token.renew-interval", "86400000"),
    ("yarn.resourcemanager.nodemanagers.heartbeat-interval-ms", "1000"),
    ("yarn.resourcemanager.proxy.connection.timeout", "60000"),
    ("yarn.resourcemanager.proxy.timeout.enabled", "true"),
    ("yarn.resourcemanager.rm.container-allocation.expiry-interval-ms", "600000"),
    ("yarn.resourcemanager.work-preserving-recovery.scheduling-wait-ms", "10000"),
    // yarn-default.xml: limits
    ("yarn.cluster.max-application-priority", "0"),
    ("yarn.resourcemanager.am.max-attempts", "2"),
    ("yarn.resourcemanager.application.max-tag.length", "100"),
    ("yarn.resourcemanager.application.max-tags", "10"),
    ("yarn.resourcemanager.delegation-token.max-conf-size-bytes", "12800"),
    ("yarn.scheduler.maximum-allocation-mb", "8192"),
    ("yarn.scheduler.maximum-allocation-vcores", "4"),
    ("yarn.scheduler.minimum-allocation-mb", "1024"),
    ("yarn.scheduler.minimum-allocation-vcores", "1"),
    // yarn-default.xml: features
    ("yarn.acl.enable", "false"),
    ("yarn.admin.acl", "*"),
    ("yarn.federation.enabled", "false"),
    ("yarn.node-labels.enabled", "false"),
    ("yarn.resourcemanager.application-https.policy", "NONE"),
    ("yarn.resourcemanager.opportunistic-container-allocation.enabled", "false"),
    ("yarn.resourcemanager.placement-constraints.handler", "disabled"),
    ("yarn.resourcemanager.proxy-user-privileges.enabled", "false"),
    ("yarn.resourcemanager.recovery.enabled", "false"),
    ("yarn.resourcemanager.work-preserving-recovery.enabled", "true"),
    // yarn-default.xml: nodes and their containers
    (
        "yarn.nodemanager.env-whitelist",
        "JAVA_HOME,HADOOP_COMMON_HOME,HADOOP_HDFS_HOME,HADOOP_CONF_DIR,CLASSPATH_PREPEND_DISTCACHE,\
         HADOOP_YARN_HOME,HADOOP_HOME,PATH,LANG,TZ",
    ),
    ("yarn.nodemanager.log-container-debug-info.enabled", "true"),
    ("yarn.nodemanager.pmem-check-enabled", "true"),
    ("yarn.nodemanager.recovery.enabled", "false"),
    ("yarn.nodemanager.runtime.linux.allowed-runtimes", "default"),
    ("yarn.nodemanager.user-home-dir", "/home/"),
    ("yarn.nodemanager.vmem-check-enabled", "true"),
    // yarn-default.xml: logs
    ("yarn.log-aggregation-enable", "false"),
    ("yarn.log-aggregation.file-formats", "TFile"),
    ("yarn.log-aggregation.retain-seconds", "-1"),
    ("yarn.nodemanager.log-aggregation.compression-type", "none"),
    ("yarn.nodemanager.log-aggregation.roll-monitoring-interval-seconds", "-1"),
    ("yarn.nodemanager.remote-app-log-dir", "/tmp/logs"),
    ("yarn.nodemanager.remote-app-log-dir-include-older", "true"),
    ("yarn.nodemanager.remote-app-log-dir-suffix", "logs"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_one_default() {
        let mut keys: Vec<&str> = DEFAULTS.iter().map(|(key, _)| *key).collect();
        keys.sort_unstable();
        assert!(keys.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
