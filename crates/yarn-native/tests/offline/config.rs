//! Configuration files: valid, truncated and hostile.

use std::path::{Path, PathBuf};
use std::time::Duration;

use expect_test::{Expect, expect};
use tempfile::TempDir;
use yarn_native::config::{
    Authentication, Config, ConfigError, Environment, HttpsPolicy, PlacementHandler,
};
use yarn_native::logs::LogFormat;
use yarn_native::security::{Quality, ServerPrincipal};

fn property(name: &str, value: &str) -> String {
    format!("<property><name>{name}</name><value>{value}</value></property>\n")
}

fn site(properties: &[(&str, &str)]) -> String {
    let inner: String = properties.iter().map(|(n, v)| property(n, v)).collect();
    format!("<?xml version=\"1.0\"?>\n<configuration>\n{inner}</configuration>\n")
}

fn directory(files: &[(&str, &str)]) -> TempDir {
    let directory = TempDir::new().unwrap();
    for (name, text) in files {
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    directory
}

fn read(files: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let directory = directory(files);
    let environment = Environment::default()
        .with_variable("USER", "alice")
        .with_variable("HADOOP_CONF_DIR", directory.path().to_str().unwrap());
    Config::load(environment)
}

fn with(properties: &[(&str, &str)]) -> Config {
    read(&[("yarn-site.xml", &site(properties))]).unwrap()
}

/// Checks the error or warnings for files, with their directory replaced in the message.
fn check_error(files: &[(&str, &str)], expected: Expect) {
    let directory = directory(files);
    let root = directory.path().to_str().unwrap();
    let result = Config::load(Environment::default().with_variable("HADOOP_CONF_DIR", root));
    let shown = match result {
        Ok(config) => format!("{:?}", config.warnings()),
        Err(error) => error.to_string(),
    };
    expected.assert_eq(&shown.replace(root, "DIR"));
}

#[test]
fn defaults_apply_without_files() {
    let config = Config::defaults(Environment::default().with_variable("USER", "alice"));
    assert!(config.files().is_empty());
    let managers = config.resource_managers().unwrap();
    assert_eq!(managers.len(), 1);
    assert_eq!(managers[0].scheduler.to_string(), "0.0.0.0:8030");
    assert!(managers[0].client.is_unspecified());
    assert_eq!(config.authentication().unwrap(), Authentication::Simple);
    assert_eq!(config.protections().unwrap(), None);
    assert!(!config.authorization().unwrap());
    assert!(config.token_services_use_ip().unwrap());
    assert!(!config.fallback_to_simple_allowed().unwrap());
    assert_eq!(config.token_mechanism().unwrap(), "DIGEST-MD5");
    assert_eq!(config.auth_to_local_rules().unwrap(), None);
    assert_eq!(config.web_authentication().unwrap(), Authentication::Simple);
    let rpc = config.rpc().unwrap();
    assert_eq!(rpc.request_bytes_max, 128 << 20);
    assert_eq!(rpc.call_timeout, Some(Duration::from_secs(120)));
    assert_eq!(rpc.ping_interval, Some(Duration::from_secs(60)));
    assert_eq!(config.cluster_id().unwrap(), None);
    assert_eq!(config.resource_manager_principal().unwrap(), None);
    let policy = config.resource_manager_retry_policy().unwrap();
    assert_eq!(policy.timeout, Some(Duration::from_secs(900)));
    assert_eq!(config.resource_manager_retry_interval().unwrap().as_secs(), 30);
    assert_eq!(config.submit_poll_interval().unwrap().as_millis(), 200);
    assert_eq!(config.submit_poll_timeout().unwrap(), None);
    assert_eq!(config.web_addresses().unwrap().1[0].port, 8088);
    assert_eq!(config.web_proxy().unwrap(), None);
    assert_eq!(config.web_proxy_hosts().unwrap(), ["0.0.0.0"]);
    assert_eq!(config.web_proxy_timeout().unwrap(), Some(Duration::from_secs(60)));
    let node = config.node().unwrap();
    assert_eq!(node.inherited_variables.len(), 10);
    assert_eq!(node.kill_delay.as_millis(), 250);
    assert_eq!(config.node_manager_retry_policy().unwrap().backoff_initial.as_secs(), 10);
    assert_eq!(config.node_manager_principal().unwrap(), None);
    assert_eq!(config.scheduler_proxy().unwrap(), None);
    assert_eq!(config.node_heartbeat_interval().unwrap().as_secs(), 1);
    assert_eq!(config.node_expiry().unwrap().as_secs(), 600);
    assert_eq!(config.memory_mib_min().unwrap(), 1024);
    assert_eq!(config.memory_mib_max().unwrap(), 8192);
    assert_eq!(config.vcores_min().unwrap(), 1);
    assert_eq!(config.vcores_max().unwrap(), 4);
    assert!(config.resource_types().unwrap().is_empty());
    assert_eq!(config.attempts_default().unwrap(), 2);
    assert_eq!(config.attempts_max().unwrap(), 2);
    assert_eq!(config.tags_max().unwrap(), 10);
    assert_eq!(config.tag_length_max().unwrap(), 100);
    assert_eq!(config.application_priority_max().unwrap(), 0);
    assert_eq!(config.master_expiry().unwrap().as_secs(), 900);
    assert_eq!(config.container_start_timeout().unwrap().as_secs(), 600);
    assert_eq!(config.master_key_roll_interval().unwrap().as_secs(), 86400);
    assert_eq!(config.scheduling_wait_after_restart().unwrap().as_secs(), 10);
    assert!(!config.resource_manager_recovery_enabled().unwrap());
    assert!(config.recovery_keeps_containers().unwrap());
    assert_eq!(config.tokens_conf_bytes_max().unwrap(), 12800);
    assert_eq!(config.token_renew_interval().unwrap().as_secs(), 86400);
    assert_eq!(config.token_lifetime_max().unwrap().as_secs(), 604800);
    assert!(!config.resource_manager_is_proxy_user().unwrap());
    assert_eq!(config.placement_handler().unwrap(), PlacementHandler::Disabled);
    assert!(!config.node_labels().unwrap());
    assert!(!config.opportunistic_containers().unwrap());
    assert!(!config.federation().unwrap());
    assert!(!config.access_lists().unwrap());
    assert_eq!(config.https_policy().unwrap(), HttpsPolicy::None);
    assert_eq!(config.timeline().unwrap(), None);
    assert_eq!(config.default_fs().unwrap(), "file:///");
    assert!(config.nameservices().unwrap().is_empty());
    assert!(config.default_namenodes().unwrap().is_empty());
    assert_eq!(config.namenode_principal().unwrap(), Some(ServerPrincipal::Pattern("*".into())));
    assert_eq!(config.namenode_retry_policy().unwrap().attempts_max, Some(15));
    assert_eq!(config.home_directory("alice").unwrap(), "/user/alice");
    assert_eq!(config.key_provider().unwrap(), None);
    assert_eq!(config.hdfs_token_renew_interval().unwrap().as_secs(), 86400);
    assert_eq!(config.hdfs_token_lifetime_max().unwrap().as_secs(), 604800);
    assert!(!config.log_aggregation_enabled().unwrap());
    assert_eq!(config.log_format().unwrap(), Some(LogFormat::TFile));
    assert_eq!(config.log_retention().unwrap(), None);
    assert_eq!(config.log_roll_interval().unwrap(), None);
    assert_eq!(config.log_server().unwrap(), None);
    let tmp = config.value("hadoop.tmp.dir").unwrap().unwrap();
    assert_eq!(tmp.text, "/tmp/hadoop-alice");
}

#[test]
fn resource_managers_are_listed_in_configured_order() {
    let config = with(&[
        ("yarn.resourcemanager.ha.enabled", " true\n"),
        ("yarn.resourcemanager.ha.rm-ids", " rm1, rm2 ,rm1,"),
        ("yarn.resourcemanager.hostname.rm1", "one.example"),
        ("yarn.resourcemanager.address.rm2", "two.example:10032"),
        ("yarn.resourcemanager.hostname.rm2", "two.example"),
        ("yarn.client.failover-sleep-base-ms", "100"),
        ("yarn.http.policy", "HTTPS_ONLY"),
    ]);
    let managers = config.resource_managers().unwrap();
    let shown: Vec<String> = managers
        .iter()
        .map(|rm| {
            let id = rm.id.as_deref().unwrap();
            format!("{id} {} {} {} {}", rm.client, rm.scheduler, rm.admin, rm.web)
        })
        .collect();
    expect![[r#"
        rm1 one.example:8032 one.example:8030 one.example:8033 one.example:8088
        rm2 two.example:10032 two.example:8030 two.example:8033 two.example:8088"#]]
    .assert_eq(&shown.join("\n"));
    assert_eq!(config.resource_manager_retry_policy().unwrap().backoff_initial.as_millis(), 100);
    let (secure, addresses) = config.web_addresses().unwrap();
    assert!(secure);
    assert_eq!(addresses[1].to_string(), "two.example:8090");
    assert_eq!(config.web_proxy_hosts().unwrap(), ["one.example", "two.example"]);
}

#[test]
fn missing_ha_addresses_are_errors() {
    let config = with(&[("yarn.resourcemanager.ha.enabled", "true")]);
    expect!["`yarn.resourcemanager.ha.rm-ids` is not set: required when `yarn.resourcemanager.ha.enabled` is true"]
        .assert_eq(&config.resource_managers().unwrap_err().to_string());
    let config = with(&[
        ("yarn.resourcemanager.ha.enabled", "true"),
        ("yarn.resourcemanager.ha.rm-ids", "rm1"),
    ]);
    expect![
        "`yarn.resourcemanager.address.rm1` is not set: set it or `yarn.resourcemanager.hostname.rm1`"
    ]
    .assert_eq(&config.resource_managers().unwrap_err().to_string());
}

#[test]
fn resource_manager_addresses_derive_from_its_hostname() {
    let config = with(&[
        ("yarn.resourcemanager.hostname", "rm.example"),
        ("yarn.resourcemanager.scheduler.address", "${yarn.resourcemanager.hostname}:9030"),
    ]);
    let manager = &config.resource_managers().unwrap()[0];
    assert_eq!(manager.client.to_string(), "rm.example:8032");
    assert_eq!(manager.scheduler.to_string(), "rm.example:9030");
}

#[test]
fn namenodes_resolve_by_nameservice_or_address() {
    let config = read(&[
        ("core-site.xml", &site(&[("fs.default.name", "hdfs://cluster/")])),
        (
            "hdfs-site.xml",
            &site(&[
                ("dfs.nameservices", "cluster,plain"),
                ("dfs.ha.namenodes.cluster", "nn1,nn2"),
                ("dfs.namenode.rpc-address.cluster.nn1", "a.example:8020"),
                ("dfs.namenode.rpc-address.cluster.nn2", "b.example"),
                ("dfs.namenode.rpc-address.plain", "c.example:9000"),
            ]),
        ),
    ])
    .unwrap();
    let shown = |authority: &str| -> Vec<String> {
        let nodes = config.namenodes(authority).unwrap();
        nodes.iter().map(|node| node.rpc.to_string()).collect()
    };
    assert_eq!(shown("cluster"), ["a.example:8020", "b.example:8020"]);
    assert_eq!(shown("plain"), ["c.example:9000"]);
    assert_eq!(shown("d.example"), ["d.example:8020"]);
    assert_eq!(shown("d.example:1"), ["d.example:1"]);
    assert_eq!(config.default_namenodes().unwrap().len(), 2);
    assert!(config.is_highly_available("cluster").unwrap());
    assert!(!config.is_highly_available("plain").unwrap());
    assert!(config.namenodes("bad name").is_err());
}

#[test]
fn deprecated_keys_apply_with_a_warning() {
    let config = with(&[("fs.default.name", "hdfs://old.example:8020")]);
    assert_eq!(config.default_fs().unwrap(), "hdfs://old.example:8020");
    let by_old = config.value("fs.default.name").unwrap();
    assert_eq!(by_old, config.value("fs.defaultFS").unwrap());
    let warning = config.warnings()[0].to_string();
    assert!(
        warning.ends_with(
            "yarn-site.xml, line 3: `fs.default.name` is deprecated, use `fs.defaultFS`"
        ),
        "{warning}"
    );
}

#[test]
fn final_values_are_not_overridden() {
    let core = "<configuration><property><name>yarn.acl.enable</name><value>true</value>\
                <final>true</final></property></configuration>";
    let yarn = site(&[("yarn.acl.enable", "false")]);
    let config = read(&[("core-site.xml", core), ("yarn-site.xml", &yarn)]).unwrap();
    assert!(config.access_lists().unwrap());
    let warning = config.warnings()[0].to_string();
    assert!(
        warning.contains("yarn-site.xml, line 3: `yarn.acl.enable` is ignored: marked final in"),
        "{warning}"
    );
    let mut config = config;
    config.set("yarn.acl.enable", "false", "the command line");
    assert!(!config.access_lists().unwrap(), "the program overrides final values");
    assert_eq!(config.origin("yarn.acl.enable").unwrap().to_string(), "the command line");
}

#[test]
fn properties_may_be_attributes() {
    let text = r#"<configuration><property name="yarn.acl.enable" value="true" final="true"/>
        <configuration><property><name> yarn.node-labels.enabled </name><value>t<!-- -->rue</value></property></configuration>
        </configuration>"#;
    let config = read(&[("yarn-site.xml", text)]).unwrap();
    assert!(config.access_lists().unwrap());
    assert!(config.node_labels().unwrap());
}

#[test]
fn errors_and_origins_include_file_and_line() {
    let config = with(&[("a", "1"), ("yarn.acl.enable", "maybe")]);
    let error = config.access_lists().unwrap_err().to_string();
    assert!(error.starts_with("invalid value `maybe` for `yarn.acl.enable` ("), "{error}");
    assert!(error.ends_with("yarn-site.xml, line 4): neither `true` nor `false`"), "{error}");
    assert_eq!(config.origin("yarn.node-labels.enabled").unwrap().to_string(), "Hadoop's default");
    assert_eq!(config.origin("nothing"), None);
}

#[test]
fn empty_values_use_the_default() {
    let config = with(&[("yarn.scheduler.minimum-allocation-mb", ""), ("yarn.acl.enable", "  ")]);
    assert_eq!(config.memory_mib_min().unwrap(), 1024);
    assert!(!config.access_lists().unwrap());
}

#[test]
fn environment_variables_are_expanded() {
    let directory = directory(&[(
        "yarn-site.xml",
        &site(&[
            ("yarn.resourcemanager.hostname", "${env.RM_HOST:-fallback.example}"),
            ("yarn.nodemanager.remote-app-log-dir", "${env.LOGS}/${user.name}/"),
        ]),
    )]);
    let environment = Environment::default()
        .with_variable("YARN_CONF_DIR", directory.path().to_str().unwrap())
        .with_variable("LOGS", "/logs")
        .with_property("user.name", "bob");
    let config = Config::load(environment).unwrap();
    assert_eq!(config.resource_managers().unwrap()[0].client.host, "fallback.example");
    let directories = config.log_directories("bob", "application_1700000000000_12345").unwrap();
    expect![[r#"
        /logs/bob/bob/bucket-logs-tfile/2345/application_1700000000000_12345
        /logs/bob/bob/bucket-logs-indexedfile/2345/application_1700000000000_12345
        /logs/bob/bob/bucket-logs-ifile/2345/application_1700000000000_12345
        /logs/bob/bob/bucket-logs/2345/application_1700000000000_12345
        /logs/bob/bob/logs-tfile/application_1700000000000_12345
        /logs/bob/bob/logs-indexedfile/application_1700000000000_12345
        /logs/bob/bob/logs-ifile/application_1700000000000_12345
        /logs/bob/bob/logs/application_1700000000000_12345"#]]
    .assert_eq(&directories.join("\n"));
}

#[test]
fn security_settings_are_read() {
    let config = with(&[
        ("hadoop.security.authentication", "Kerberos"),
        ("hadoop.rpc.protection", "privacy, integrity,privacy"),
        ("yarn.resourcemanager.principal", "yarn/_HOST@EXAMPLE"),
        ("ipc.client.rpc-timeout.ms", "0"),
        ("ipc.client.ping", "false"),
        ("ipc.maximum.data.length", "64m"),
    ]);
    assert_eq!(config.authentication().unwrap(), Authentication::Kerberos);
    let wanted = vec![Quality::Privacy, Quality::Integrity];
    assert_eq!(config.protections().unwrap(), Some(wanted));
    let named = |name: &str| Some(ServerPrincipal::Exact(name.into()));
    assert_eq!(config.resource_manager_principal().unwrap(), named("yarn/_HOST@EXAMPLE"));
    // Hadoop's default pattern accepts any server; a configured name is more specific.
    let key = "dfs.namenode.kerberos.principal";
    let with_name = [(key, "nn/_HOST@EXAMPLE")];
    assert_eq!(with(&with_name).namenode_principal().unwrap(), named("nn/_HOST@EXAMPLE"));
    let pattern = ("dfs.namenode.kerberos.principal.pattern", "nn/*.example@EXAMPLE");
    assert_eq!(
        with(&[with_name[0], pattern]).namenode_principal().unwrap(),
        Some(ServerPrincipal::Pattern("nn/*.example@EXAMPLE".into()))
    );
    let rpc = config.rpc().unwrap();
    assert_eq!(rpc.call_timeout, None);
    assert_eq!(rpc.ping_interval, None);
    assert_eq!(rpc.request_bytes_max, 64 << 20);
    assert!(with(&[("hadoop.rpc.protection", "secrecy")]).protections().is_err());
}

#[test]
fn resource_types_are_read_from_resource_types_xml() {
    let types = site(&[
        ("yarn.resource-types", "memory-mb, yarn.io/gpu,fpga"),
        ("yarn.resource-types.yarn.io/gpu.maximum-allocation", "8"),
        ("yarn.resource-types.fpga.units", "Gi"),
    ]);
    let config = read(&[("resource-types.xml", &types)]).unwrap();
    let types = config.resource_types().unwrap();
    assert_eq!(types.len(), 2);
    assert_eq!((types[0].name.as_str(), types[0].maximum), ("yarn.io/gpu", Some(8)));
    assert_eq!(types[1].units, "Gi");
}

#[test]
fn yarn_conf_dir_precedes_hadoop_conf_dir_and_hadoop_home() {
    let yarn = directory(&[("yarn-site.xml", &site(&[("yarn.resourcemanager.hostname", "yarn")]))]);
    let hadoop = directory(&[
        ("yarn-site.xml", &site(&[("yarn.resourcemanager.hostname", "hadoop")])),
        ("core-site.xml", &site(&[("fs.defaultFS", "hdfs://x")])),
    ]);
    let home = TempDir::new().unwrap();
    let inner = home.path().join("etc/hadoop");
    std::fs::create_dir_all(&inner).unwrap();
    std::fs::write(inner.join("yarn-site.xml"), site(&[("yarn.resourcemanager.hostname", "home")]))
        .unwrap();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let environment = Environment::default().with_variable("HADOOP_HOME", text(home.path()));
    let host = |environment: &Environment| {
        let config = Config::load(environment.clone()).unwrap();
        config.resource_managers().unwrap()[0].client.host.clone()
    };
    assert_eq!(host(&environment), "home");
    let environment = environment.with_variable("HADOOP_CONF_DIR", text(hadoop.path()));
    assert_eq!(host(&environment), "hadoop");
    let environment = environment.with_variable("YARN_CONF_DIR", text(yarn.path()));
    assert_eq!(host(&environment), "yarn");
    let config = Config::load(environment).unwrap();
    assert_eq!(
        config.default_fs().unwrap(),
        "hdfs://x",
        "missing files are taken from the second directory"
    );
    assert_eq!(config.files().len(), 2);
}

#[test]
fn configured_directory_must_exist() {
    let environment = Environment::default().with_variable("HADOOP_CONF_DIR", "/nowhere/at/all");
    let error = Config::load(environment).unwrap_err().to_string();
    assert!(error.starts_with("cannot read `/nowhere/at/all`: "), "{error}");
    let missing = [PathBuf::from("/nowhere/core-site.xml")];
    assert!(Config::from_files(&missing, Environment::default()).is_err());
}

#[test]
fn inaccessible_file_is_an_error() {
    let directory = directory(&[]);
    let path = directory.path().join("yarn-site.xml");
    std::os::unix::fs::symlink(&path, &path).unwrap();
    let error = Config::from_directories(&[directory.path().into()], Environment::default());
    let ConfigError::Unreadable { path: named, .. } = error.unwrap_err() else {
        panic!("a link to itself is not readable");
    };
    assert_eq!(named, path);
}

#[test]
fn fifo_is_rejected_without_blocking() {
    let directory = directory(&[]);
    let path = directory.path().join("core-site.xml");
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.unwrap().success());
    let error = Config::from_files(&[path], Environment::default()).unwrap_err();
    assert!(error.to_string().ends_with("core-site.xml`: not a file"), "{error}");
}

#[test]
fn includes_are_followed() {
    let main = r#"<configuration xmlns:xi="http://www.w3.org/2001/XInclude">
        <property><name>a</name><value>before</value></property>
        <xi:include href="more.xml"/>
        <xi:include href="none.xml"><xi:fallback><property><name>c</name><value>fallen</value></property></xi:fallback></xi:include>
        </configuration>"#;
    let more = site(&[("a", "included"), ("b", "2")]);
    let config = read(&[("core-site.xml", main), ("more.xml", &more)]).unwrap();
    let text = |key: &str| config.value(key).unwrap().unwrap().text;
    assert_eq!(text("a"), "included");
    assert_eq!(text("b"), "2");
    assert_eq!(text("c"), "fallen");
    assert!(config.origin("b").unwrap().to_string().ends_with("more.xml, line 4"));
}

#[test]
fn invalid_includes_are_errors() {
    let include =
        |href: &str| format!("<configuration>\n<include href=\"{href}\"/></configuration>");
    check_error(
        &[("core-site.xml", &include("none.xml"))],
        expect![
            "invalid configuration file `DIR/core-site.xml`, line 2: cannot include `none.xml`: file not found"
        ],
    );
    check_error(
        &[("core-site.xml", &include("http://example/x.xml"))],
        expect![
            "invalid configuration file `DIR/core-site.xml`, line 2: cannot include `http://example/x.xml`: only local files are supported"
        ],
    );
    check_error(
        &[("core-site.xml", &include("core-site.xml"))],
        expect![
            "invalid configuration file `DIR/core-site.xml`, line 2: cannot include `core-site.xml`: circular include"
        ],
    );
    check_error(
        &[("core-site.xml", "<configuration><include/></configuration>")],
        expect!["invalid configuration file `DIR/core-site.xml`, line 1: include without `href`"],
    );
}

#[test]
fn total_number_of_includes_is_limited() {
    let mut files = Vec::new();
    // Shallow, but a hundred thousand in total.
    for level in 0..5 {
        let next = format!("<include href=\"{}.xml\"/>", level + 1).repeat(10);
        files.push((format!("{level}.xml"), format!("<configuration>{next}</configuration>")));
    }
    files.push(("5.xml".into(), site(&[])));
    files.push((
        "core-site.xml".into(),
        "<configuration><include href=\"0.xml\"/></configuration>".into(),
    ));
    let files: Vec<(&str, &str)> = files.iter().map(|(n, t)| (n.as_str(), t.as_str())).collect();
    let error = read(&files).unwrap_err().to_string();
    assert!(error.contains("more than 128 files in total"), "{error}");
}

#[test]
fn malformed_file_is_an_error_with_its_line() {
    check_error(
        &[("core-site.xml", "")],
        expect!["invalid configuration file `DIR/core-site.xml`, line 1: the file is empty"],
    );
    check_error(
        &[("core-site.xml", "<configuration>\n<property>\n<name>a</name>\n<val")],
        expect!["invalid configuration file `DIR/core-site.xml`, line 4: unexpected end of file"],
    );
    check_error(
        &[("core-site.xml", "<configuration>\n<property></configuration>")],
        expect![
            "invalid configuration file `DIR/core-site.xml`, line 2: expected 'property' tag, not 'configuration' at 2:11"
        ],
    );
    check_error(
        &[("core-site.xml", "<html>404</html>")],
        expect![
            "invalid configuration file `DIR/core-site.xml`, line 1: expected `<configuration>`, found `<html>`"
        ],
    );
}

#[test]
fn problems_ignored_by_hadoop_are_warnings() {
    let text = "<configuration><property><value>x</value></property>\n<property><name>a</name></property></configuration>";
    let config = read(&[("core-site.xml", text)]).unwrap();
    let warnings: Vec<String> =
        config.warnings().iter().map(|warning| warning.kind.to_string()).collect();
    assert_eq!(warnings, ["property without a name", "property `a` without a value"]);
}

#[test]
fn file_that_is_not_utf8_is_an_error() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("core-site.xml");
    std::fs::write(&path, b"<configuration>\n\xff\xfe</configuration>").unwrap();
    let error =
        Config::from_files(std::slice::from_ref(&path), Environment::default()).unwrap_err();
    assert!(error.to_string().ends_with("line 2: not UTF-8"), "{error}");
    std::fs::write(&path, b"\xef\xbb\xbf<configuration/>").unwrap();
    assert!(
        Config::from_files(&[path], Environment::default()).is_ok(),
        "a byte order mark is accepted"
    );
    let folder = [directory.path().to_owned()];
    assert!(Config::from_files(&folder, Environment::default()).is_err());
}

#[test]
fn entity_expansion_is_limited() {
    let valid = "<!DOCTYPE configuration [<!ENTITY host \"rm.example\">]>\n<configuration>\
        <property><name>yarn.resourcemanager.hostname</name><value>&host;</value></property></configuration>";
    let config = read(&[("yarn-site.xml", valid)]).unwrap();
    assert_eq!(config.resource_managers().unwrap()[0].client.host, "rm.example");
    let recursive = "<!DOCTYPE x [<!ENTITY a \"ha\"><!ENTITY b \"&a;&a;\">]>\n<configuration>&b;</configuration>";
    check_error(
        &[("core-site.xml", recursive)],
        expect![
            "invalid configuration file `DIR/core-site.xml`, line 1: entity references another entity"
        ],
    );
    let large = format!(
        "<!DOCTYPE x [<!ENTITY a \"{}\">]>\n<configuration>{}</configuration>",
        "x".repeat(100_000),
        "&a;".repeat(100_000)
    );
    check_error(
        &[("core-site.xml", &large)],
        expect![
            "invalid configuration file `DIR/core-site.xml`, line 1: entity expansion is too large"
        ],
    );
}

#[test]
fn inputs_with_quadratic_parse_time_are_rejected() {
    let attributes: String = (0..100_000).map(|n| format!(" a{n}=\"=>\"")).collect();
    let many = format!("<configuration>\n<property{attributes}/></configuration>");
    check_error(
        &[("core-site.xml", &many)],
        expect![
            "invalid configuration file `DIR/core-site.xml`, line 2: element with too many attributes"
        ],
    );
    let nested: String = (0..20_000).map(|n| format!("<a xmlns:n{n}='u{n}'>")).collect();
    let nested = format!("<configuration>{nested}");
    check_error(
        &[("core-site.xml", &nested)],
        expect!["invalid configuration file `DIR/core-site.xml`, line 1: too many namespaces"],
    );
    let rule = "=".repeat(1000);
    let valid = format!("<configuration>\n<!-- {rule}> -->\n<?x {rule}?>\n{}</configuration>", {
        property("a", &format!("-D{rule}\"'"))
    });
    assert!(read(&[("core-site.xml", &valid)]).is_ok());
}

#[test]
fn a_large_file_is_read_in_reasonable_time() {
    let properties: String = (0..50_000).map(|n| property(&format!("k{n}"), "v")).collect();
    let text = format!("<configuration>\n{properties}</configuration>");
    let config = read(&[("core-site.xml", &text)]).unwrap();
    assert!(config.origin("k49999").unwrap().to_string().ends_with("line 50001"));
    let nested =
        format!("{}{}", "<configuration>".repeat(100_000), "</configuration>".repeat(100_000));
    assert!(read(&[("core-site.xml", &nested)]).is_ok());
}
