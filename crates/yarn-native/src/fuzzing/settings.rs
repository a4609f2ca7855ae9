//! Configuration files.

use crate::config::{Config, ConfigError, Environment};

/// A configuration file, and every question that can be asked about it.
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
    for note in config.notes() {
        let _ = note.to_string();
    }
    let keys: Vec<String> = config.keys_under("").map(str::to_owned).collect();
    for key in keys {
        told(config.value(&key));
    }
    told(config.resource_managers());
    told(config.resource_manager_reconnect());
    told(config.resource_manager_options());
    told(config.resource_manager_principal());
    told(config.web_addresses());
    told(config.web_proxy());
    told(config.web_proxy_hosts());
    told(config.node());
    told(config.node_manager_options());
    told(config.scheduler_proxy());
    told(config.rpc());
    told(config.protections());
    told(config.resource_types());
    told(config.placement_handler());
    told(config.timeline());
    told(config.default_namenodes());
    told(config.namenodes("ns"));
    told(config.namenode_options());
    told(config.home_directory("alice"));
    told(config.log_format());
    told(config.log_directories("alice", "application_1700000000000_0007"));
    told(config.renewer());
    told(config.user());
}

fn told<T>(answer: Result<T, ConfigError>) {
    if let Err(error) = answer {
        let _ = error.to_string();
    }
}
