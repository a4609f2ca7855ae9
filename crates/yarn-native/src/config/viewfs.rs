//! Mount tables of viewfs: one tree of directories over several file systems.

use std::collections::BTreeSet;

use super::table::{Config, ConfigError};

/// Prefix of the keys of all mount tables.
const TABLES: &str = "fs.viewfs.mounttable.";
/// Key of the name of the table for URLs without an authority.
const DEFAULT_NAME: &str = "fs.viewfs.mounttable.default.name.key";
/// Maximum number of file systems of a table.
const MOUNTED_MAX: usize = 256;

impl Config {
    /// Returns the file systems mounted in the table of a `viewfs://` authority, such as
    /// `hdfs://nameservice`, without duplicates. An empty authority names the default table.
    pub fn mounted_file_systems(&self, authority: &str) -> Result<Vec<String>, ConfigError> {
        let table = match authority {
            "" => self.text(DEFAULT_NAME)?.unwrap_or_else(|| "default".to_owned()),
            name => name.to_owned(),
        };
        let prefix = format!("{TABLES}{table}.");
        let mut mounted = BTreeSet::new();
        for key in self.keys_under(&prefix) {
            if !is_link(&key[prefix.len()..]) {
                continue;
            }
            // A merged or replicated link has several targets.
            let targets = self.text(key)?.unwrap_or_default();
            for target in targets.split(',').map(str::trim) {
                mounted.extend(self.root_of(target)?);
            }
        }
        if mounted.is_empty() {
            return Err(ConfigError::Missing {
                key: format!("{prefix}link.<path>"),
                why: format!("required by `viewfs://{authority}`"),
            });
        }
        Ok(mounted.into_iter().take(MOUNTED_MAX).collect())
    }

    /// Returns the root of a link's target: its scheme and authority.
    fn root_of(&self, target: &str) -> Result<Option<String>, ConfigError> {
        let Some((scheme, rest)) = target.split_once("://") else {
            return Ok(None);
        };
        let authority = rest.split('/').next().unwrap_or_default();
        if !authority.is_empty() {
            return Ok(Some(format!("{scheme}://{authority}")));
        }
        // `hdfs:///path` is in the default file system.
        let default = self.default_fs()?;
        let root = default.trim_end_matches('/').to_owned();
        Ok((scheme == "hdfs" && root.starts_with("hdfs://")).then_some(root))
    }
}

/// Returns whether the rest of a key describes a link of its table.
fn is_link(rest: &str) -> bool {
    let kind = rest.split('.').next().unwrap_or_default();
    ["link", "linkSlash", "linkFallback", "linkMerge", "linkMergeSlash", "linkNfly", "linkRegex"]
        .contains(&kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Environment;

    fn config(pairs: &[(&str, &str)]) -> Config {
        let mut config = Config::defaults(Environment::default());
        for (key, value) in pairs {
            config.set(key, *value, "a test");
        }
        config
    }

    #[test]
    fn a_mount_table_names_each_file_system_once() {
        let config = config(&[
            ("fs.defaultFS", "hdfs://own/"),
            ("fs.viewfs.mounttable.root.link./user", "hdfs://one/user"),
            ("fs.viewfs.mounttable.root.link./data", "hdfs://two:8020/data"),
            ("fs.viewfs.mounttable.root.link./more", "hdfs://one/more"),
            ("fs.viewfs.mounttable.root.link./own", "hdfs:///own"),
            ("fs.viewfs.mounttable.root.linkMerge./all", "hdfs://three/a, hdfs://two:8020/b"),
            ("fs.viewfs.mounttable.root.linkFallback", "file:///tmp"),
            ("fs.viewfs.mounttable.root.homedir", "/user"),
            ("fs.viewfs.mounttable.rooted.link./x", "hdfs://other/x"),
        ]);
        let mounted = config.mounted_file_systems("root").unwrap();
        assert_eq!(mounted, ["hdfs://one", "hdfs://own", "hdfs://three", "hdfs://two:8020"]);
    }

    #[test]
    fn a_url_without_an_authority_has_the_default_table() {
        let mut config = config(&[("fs.viewfs.mounttable.default.link./a", "hdfs://one/a")]);
        assert_eq!(config.mounted_file_systems("").unwrap(), ["hdfs://one"]);
        config.set(DEFAULT_NAME, "mine", "a test");
        config.set("fs.viewfs.mounttable.mine.link./a", "hdfs://two/a", "a test");
        assert_eq!(config.mounted_file_systems("").unwrap(), ["hdfs://two"]);
    }

    #[test]
    fn a_missing_mount_table_is_named() {
        let error = config(&[]).mounted_file_systems("root").unwrap_err().to_string();
        assert!(error.contains("fs.viewfs.mounttable.root.link.<path>"), "{error}");
        assert!(error.contains("viewfs://root"), "{error}");
    }
}
