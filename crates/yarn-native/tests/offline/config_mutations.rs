//! Mutated configuration files never cause a panic.

use yarn_native::config::{Config, Environment};

const SEED_FILE: &str = r#"<?xml version="1.0"?>
<!DOCTYPE configuration [<!ENTITY x "y">]>
<configuration xmlns:xi="http://www.w3.org/2001/XInclude">
<property><name>yarn.resourcemanager.ha.enabled</name><value>true</value><final>true</final></property>
<property><name>yarn.resourcemanager.ha.rm-ids</name><value>rm1,rm2,${env.X:-rm3}</value></property>
<property><name>yarn.resourcemanager.hostname.rm1</name><value>${a${b}}</value></property>
<property name="yarn.resourcemanager.hostname.rm2" value="[::1]:80&x;"/>
<property><name>hadoop.rpc.protection</name><value>privacy,integrity</value></property>
<property><name>ipc.client.connect.timeout</name><value>20s</value></property>
<property><name>ipc.maximum.data.length</name><value>0x7fm</value></property>
<property><name>yarn.resource-types</name><value>yarn.io/gpu</value></property>
<property><name>dfs.ha.namenodes.ns</name><value>nn1</value></property>
<property><name>fs.defaultFS</name><value>hdfs://ns</value></property>
<xi:include href="none.xml"><xi:fallback/></xi:include>
</configuration>"#;

/// Calls the getters and ignores their results.
fn call_getters(config: &Config) {
    let _ = config.resource_managers();
    let _ = config.resource_manager_retry_policy();
    let _ = config.protections();
    let _ = config.rpc();
    let _ = config.resource_types();
    let _ = config.default_namenodes();
    let _ = config.namenodes("ns");
    let _ = config.log_directories("alice", "application_1_99999999999999999999");
    let _ = config.web_proxy_hosts();
    let _ = config.timeline();
    let _ = config.node();
    for warning in config.warnings() {
        let _ = warning.to_string();
    }
}

#[test]
fn mutated_files_are_parsed_or_rejected() {
    let directory = tempfile::TempDir::new().unwrap();
    let path = directory.path().join("yarn-site.xml");
    for seed in 0..1500 {
        let mut random = crate::random::Random::new(seed);
        std::fs::write(&path, random.mutate(SEED_FILE.as_bytes())).unwrap();
        let files = std::slice::from_ref(&path);
        match Config::from_files(files, Environment::default()) {
            Ok(config) => call_getters(&config),
            Err(error) => assert!(error.to_string().contains("yarn-site.xml"), "{seed}: {error}"),
        }
    }
}

#[test]
fn arbitrary_values_do_not_panic() {
    const PIECES: [&str; 22] = [
        "${",
        "}",
        "env.",
        "a",
        "b",
        ":-",
        "-",
        "$",
        " ",
        "{",
        "1",
        "0x",
        "9999999999999999999",
        "s",
        "m",
        ",",
        ":",
        "[",
        "]",
        "/",
        "@",
        "é",
    ];
    const KEYS: [&str; 10] = [
        "a",
        "b",
        "yarn.resourcemanager.hostname",
        "yarn.resourcemanager.address",
        "ipc.ping.interval",
        "ipc.maximum.data.length",
        "dfs.nameservices",
        "fs.defaultFS",
        "yarn.resource-types",
        "yarn.nodemanager.remote-app-log-dir",
    ];
    for seed in 0..1000 {
        let mut random = crate::random::Random::new(seed);
        let mut config = Config::defaults(Environment::default());
        for key in KEYS {
            let value: String = (0..random.below(12)).map(|_| *random.pick(&PIECES)).collect();
            config.set(key, value, "a test");
        }
        call_getters(&config);
    }
}
