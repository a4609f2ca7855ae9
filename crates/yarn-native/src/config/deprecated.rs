//! Deprecated keys and their replacements: the part of Hadoop's list that concerns clients and
//! ApplicationMasters.

/// Pairs of deprecated and current key.
const REPLACEMENTS: &[(&str, &str)] = &[
    ("dfs.df.interval", "fs.df.interval"),
    ("dfs.encryption.key.provider.uri", "hadoop.security.key.provider.path"),
    ("dfs.federation.nameservice.id", "dfs.nameservice.id"),
    ("dfs.federation.nameservices", "dfs.nameservices"),
    ("dfs.http.address", "dfs.namenode.http-address"),
    ("dfs.https.address", "dfs.namenode.https-address"),
    ("dfs.permissions", "dfs.permissions.enabled"),
    ("dfs.umaskmode", "fs.permissions.umask-mode"),
    ("fs.default.name", "fs.defaultFS"),
    (
        "yarn.client.app-submission.poll-interval",
        "yarn.client.application-client-protocol.poll-interval-ms",
    ),
    ("yarn.client.max-nodemanagers-proxies", "yarn.client.max-cached-nodemanagers-proxies"),
    ("yarn.resourcemanager.display.per-user-apps", "yarn.webapp.filter-entity-list-by-user"),
    (
        "yarn.resourcemanager.system-metrics-publisher.enabled",
        "yarn.system-metrics-publisher.enabled",
    ),
    ("yarn.resourcemanager.zk-acl", "hadoop.zk.acl"),
    ("yarn.resourcemanager.zk-auth", "hadoop.zk.auth"),
    ("yarn.resourcemanager.zk-num-retries", "hadoop.zk.num-retries"),
    ("yarn.resourcemanager.zk-retry-interval-ms", "hadoop.zk.retry-interval-ms"),
    ("yarn.resourcemanager.zk-timeout-ms", "hadoop.zk.timeout-ms"),
];

/// Returns the current name of a deprecated key.
pub(super) fn replacement(key: &str) -> Option<&'static str> {
    REPLACEMENTS.iter().find(|(old, _)| *old == key).map(|(_, new)| *new)
}

/// Returns the current name of any key.
pub(super) fn current_name(key: &str) -> &str {
    replacement(key).unwrap_or(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replacements_are_not_deprecated_themselves() {
        for (old, new) in REPLACEMENTS {
            assert_eq!(replacement(new), None, "{old}");
        }
    }
}
