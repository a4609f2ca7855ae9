//! The cluster's configuration as pairs: the nodes' own files may say something else, or not be there at all.

use std::collections::BTreeMap;
use yarn_native::config::{Config, Environment};

/// Keys that hold, or lead to, something secret.
const SECRET: [&str; 10] = [
    "password",
    "secret",
    "credential",
    "private.key",
    "keystore.pass",
    "truststore.pass",
    "account.key",
    "encryption.key",
    "oauth",
    "azure.sas",
];
/// Maximum length of a value; longer ones are no client settings.
const VALUE_BYTES_MAX: usize = 64 << 10;

/// The whole configuration, variables replaced, without what looks secret.
pub fn pairs(config: &Config) -> BTreeMap<String, String> {
    let mut pairs = BTreeMap::new();
    for key in config.keys_under("") {
        let low = key.to_lowercase();
        if SECRET.iter().any(|word| low.contains(word)) {
            continue;
        }
        // Skip values that cannot be resolved.
        if let Ok(Some(value)) = config.value(key)
            && value.text.len() <= VALUE_BYTES_MAX
        {
            pairs.insert(key.to_owned(), value.text);
        }
    }
    pairs
}

/// The configuration that [`pairs`] came from, as far as it was carried along.
pub fn config(pairs: &BTreeMap<String, String>, environment: Environment) -> Config {
    let mut config = Config::defaults(environment);
    for (key, value) in pairs {
        config.set(key, value.as_str(), "the submitter's configuration");
    }
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_travels_without_its_secrets() {
        let mut first = Config::defaults(Environment::default());
        first.set("fs.defaultFS", "hdfs://${here}:9000", "a test");
        first.set("here", "namenode", "a test");
        for key in [
            "ssl.client.keystore.password",
            "ssl.keystore.pass",
            "fs.s3a.secret.key",
            "fs.s3a.encryption.key",
            "fs.azure.account.key.store.example",
            "fs.azure.account.oauth2.client.id",
            "fs.gs.auth.service.account.private.key.id",
        ] {
            first.set(key, "hunter2", "a test");
        }
        let useful = "hadoop.security.token.service.use_ip";
        first.set(useful, "false", "a test");
        let carried = pairs(&first);
        assert!(!carried.values().any(|value| value == "hunter2"));
        assert_eq!(carried.get(useful).map(String::as_str), Some("false"));
        let second = config(&carried, Environment::default());
        assert_eq!(second.default_fs().unwrap(), "hdfs://namenode:9000");
    }
}
