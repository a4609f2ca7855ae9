//! Configuration files.

use crate::config::{Config, ConfigError, Environment};

/// Reads a configuration file and every setting in it.
pub fn config(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let environment =
        Environment::default().with_variable("X", "x").with_property("user.name", "alice");
    let config = match Config::from_text(text, environment) {
        Ok(config) => config,
        Err(error) => return drop(error.to_string()),
    };
    for note in config.warnings() {
        let _ = note.to_string();
    }
    let keys: Vec<String> = config.keys_under("").map(str::to_owned).collect();
    for key in keys {
        check_error(config.value(&key));
    }
    check_error(config.resource_managers());
    check_error(config.resource_manager_retry_policy());
    check_error(config.resource_manager_options());
    check_error(config.resource_manager_principal());
    check_error(config.web_addresses());
    check_error(config.web_proxy());
    check_error(config.web_proxy_hosts());
    check_error(config.node());
    check_error(config.node_manager_options());
    check_error(config.scheduler_proxy());
    check_error(config.rpc());
    check_error(config.protections());
    check_error(config.resource_types());
    check_error(config.placement_handler());
    check_error(config.timeline());
    check_error(config.default_namenodes());
    check_error(config.namenodes("ns"));
    check_error(config.namenode_options());
    check_error(config.home_directory("alice"));
    check_error(config.log_format());
    check_error(config.log_directories("alice", "application_1700000000000_0007"));
    check_error(config.renewer());
    check_error(config.user());
}

fn check_error<T>(answer: Result<T, ConfigError>) {
    if let Err(error) = answer {
        let _ = error.to_string();
    }
}
