//! Mount tables of viewfs: one tree of directories over several file systems.

use std::collections::{BTreeMap, BTreeSet};

use super::table::{Config, ConfigError};

/// Prefix of the keys of all mount tables.
const TABLES: &str = "fs.viewfs.mounttable.";
/// Key of the name of the table for URLs without an authority.
const DEFAULT_NAME: &str = "fs.viewfs.mounttable.default.name.key";
/// Maximum number of file systems of a table.
const MOUNTED_MAX: usize = 256;

/// Directory of home directories, if a mount table names none.
const HOMES: &str = "/user";

/// Mount table of a `viewfs://` authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountTable {
    /// Name in the configuration's keys.
    pub name: String,
    /// Directories and the URLs in HDFS behind them, without other file systems.
    pub links: BTreeMap<String, String>,
    /// URL behind all other directories, if they exist.
    pub fallback: Option<String>,
    /// Directory of home directories.
    pub homes: String,
}

impl Config {
    /// Returns the mount table of a `viewfs://` authority. An empty authority names the default table.
    pub fn mount_table(&self, authority: &str) -> Result<MountTable, ConfigError> {
        let name = self.table_name(authority)?;
        let prefix = format!("{TABLES}{name}.");
        let (mut links, mut fallback) = (BTreeMap::new(), None);
        for key in self.keys_under(&prefix) {
            let target = self.text(key)?.unwrap_or_default();
            let Some(root) = self.root_of(&target)?.filter(|root| root.starts_with("hdfs://"))
            else {
                continue;
            };
            let rest = target.strip_prefix("hdfs://").unwrap_or_default();
            let url = format!("{root}{}", rest.find('/').map_or("/", |at| &rest[at..]));
            match key[prefix.len()..].split_once('.') {
                Some(("link", directory)) => drop(links.insert(directory.to_owned(), url)),
                // With `linkSlash` the whole tree is one link.
                None if key.ends_with(".linkFallback") || key.ends_with(".linkSlash") => {
                    fallback = Some(url);
                }
                _ => {}
            }
        }
        let homes = self.text(&format!("{prefix}homedir"))?.unwrap_or_else(|| HOMES.to_owned());
        Ok(MountTable { name, links, fallback, homes })
    }

    fn table_name(&self, authority: &str) -> Result<String, ConfigError> {
        Ok(match authority {
            "" => self.text(DEFAULT_NAME)?.unwrap_or_else(|| "default".to_owned()),
            name => name.to_owned(),
        })
    }

    /// Returns the file systems mounted in the table of a `viewfs://` authority, such as
    /// `hdfs://nameservice`, without duplicates. An empty authority names the default table.
    pub fn mounted_file_systems(&self, authority: &str) -> Result<Vec<String>, ConfigError> {
        let prefix = format!("{TABLES}{}.", self.table_name(authority)?);
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
    fn a_mount_table_has_its_links_fallback_and_home_directories() {
        let mut config = config(&[
            ("fs.defaultFS", "viewfs://root/"),
            ("fs.viewfs.mounttable.root.link./user", "hdfs://one/users"),
            ("fs.viewfs.mounttable.root.link./data", "hdfs://two:8020"),
            ("fs.viewfs.mounttable.root.link./bucket", "s3a://bucket/"),
            ("fs.viewfs.mounttable.root.linkMerge./all", "hdfs://three/a,hdfs://two:8020/b"),
        ]);
        let table = config.mount_table("root").unwrap();
        let pair = |directory: &str, url: &str| (directory.to_owned(), url.to_owned());
        let links = [pair("/user", "hdfs://one/users"), pair("/data", "hdfs://two:8020/")];
        assert_eq!(table.links, BTreeMap::from(links));
        assert_eq!((table.fallback, table.homes.as_str()), (None, "/user"));
        config.set("fs.viewfs.mounttable.root.linkFallback", "hdfs://one/rest", "a test");
        config.set("fs.viewfs.mounttable.root.homedir", "/home", "a test");
        let table = config.mount_table("root").unwrap();
        assert_eq!(table.fallback.as_deref(), Some("hdfs://one/rest"));
        assert_eq!(table.homes, "/home");
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
