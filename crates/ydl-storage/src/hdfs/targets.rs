//! URLs and mount tables as the library below reads them.

use super::{connect::unclear, error::HdfsError, tokens::TOKEN_KIND};
use std::collections::BTreeMap;
use tokio::{net::lookup_host, time::Instant};
use yarn_native::{
    config::{Config, NameNode},
    credentials::Credentials,
};

/// Addresses of a NameNode that are compared with a token's.
const ADDRESSES_MAX: usize = 16;
/// Fallback of a mount table that has none: no file can be there. The library requires one.
const NOWHERE: &str = "/.reserved/unmounted";

/// Translation of the URLs of file systems.
pub(super) struct Targets<'a> {
    pub config: &'a Config,
    /// Tokens with which the connection is made.
    pub tokens: Option<&'a Credentials>,
    /// Time limit of name lookups.
    pub deadline: Instant,
}

impl Targets<'_> {
    /// Returns the URL of a file system in HDFS.
    pub(super) async fn hdfs(&self, authority: &str) -> Result<String, HdfsError> {
        if self.config.is_highly_available(authority).map_err(unclear)? {
            return Ok(format!("hdfs://{authority}"));
        }
        let found = namenodes(self.config, authority)?;
        Ok(format!("hdfs://{}", spelling(self.tokens, &found, self.deadline).await))
    }

    /// Returns the URL of a viewfs, and replaces the links of its mount table in the settings. Links to other file
    /// systems are left out: the library rejects a table with one.
    pub(super) async fn viewfs(
        &self,
        authority: &str,
        settings: &mut BTreeMap<String, String>,
    ) -> Result<String, HdfsError> {
        let table = self.config.mount_table(authority).map_err(unclear)?;
        let systems = self.config.mounted_file_systems(authority).map_err(unclear)?;
        let prefix = format!("fs.viewfs.mounttable.{}.", table.name);
        settings.retain(|key, _| !key.starts_with(&format!("{prefix}link")));
        for (directory, url) in &table.links {
            settings.insert(format!("{prefix}link.{directory}"), self.rewritten(url).await?);
        }
        let first = systems.iter().find(|root| root.starts_with("hdfs://"));
        let nowhere = first.map(|root| format!("{root}{NOWHERE}"));
        if let Some(url) = table.fallback.or(nowhere) {
            settings.insert(format!("{prefix}linkFallback"), self.rewritten(&url).await?);
        }
        Ok(format!("viewfs://{}", table.name))
    }

    async fn rewritten(&self, url: &str) -> Result<String, HdfsError> {
        let rest = url.strip_prefix("hdfs://").unwrap_or(url);
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        Ok(format!("{}{path}", self.hdfs(authority).await?))
    }
}

/// Returns the NameNodes of an authority; without one, of the default file system.
pub(super) fn namenodes(config: &Config, authority: &str) -> Result<Vec<NameNode>, HdfsError> {
    match authority.is_empty() {
        true => config.default_namenodes(),
        false => config.namenodes(authority),
    }
    .map_err(unclear)
}

/// The NameNode's address as its token spells it: the library below compares letters, and Hadoop writes an address where
/// URLs have a name.
async fn spelling(tokens: Option<&Credentials>, found: &[NameNode], deadline: Instant) -> String {
    let Some(one) = found.first() else {
        return String::new();
    };
    let named = one.rpc.to_string();
    let Some(tokens) = tokens else {
        return named;
    };
    let address = (one.rpc.host.as_str(), one.rpc.port);
    let looked_up = tokio::time::timeout_at(deadline, lookup_host(address)).await;
    let mut spellings = vec![named.clone(), named.to_lowercase()];
    if let Ok(Ok(addresses)) = looked_up {
        spellings.extend(addresses.take(ADDRESSES_MAX).map(|at| at.to_string()));
    }
    let known = |spelled: &&String| tokens.for_service(TOKEN_KIND, spelled).is_some();
    spellings.iter().find(known).cloned().unwrap_or(named)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use yarn_native::config::Environment;

    #[tokio::test]
    async fn a_mount_table_is_rewritten_with_ports_and_a_fallback() {
        let mut config = Config::defaults(Environment::default());
        for (key, value) in [
            ("dfs.nameservices", "one"),
            ("dfs.ha.namenodes.one", "a,b"),
            ("fs.viewfs.mounttable.root.link./user", "hdfs://one/users"),
            ("fs.viewfs.mounttable.root.link./data", "hdfs://two/data"),
            ("fs.viewfs.mounttable.root.link./bucket", "s3a://bucket/"),
        ] {
            config.set(key, value, "a test");
        }
        let mut settings = super::super::pairs(&config);
        let deadline = Instant::now() + Duration::from_secs(10);
        let targets = Targets { config: &config, tokens: None, deadline };
        let target = targets.viewfs("root", &mut settings).await;
        assert_eq!(target.expect("a URL"), "viewfs://root");
        settings.retain(|key, _| key.starts_with("fs.viewfs.mounttable.root."));
        let pairs = [
            ("fs.viewfs.mounttable.root.link./data", "hdfs://two:8020/data"),
            ("fs.viewfs.mounttable.root.link./user", "hdfs://one/users"),
            ("fs.viewfs.mounttable.root.linkFallback", "hdfs://one/.reserved/unmounted"),
        ];
        let expected = pairs.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(settings, BTreeMap::from(expected));
        let missing = targets.viewfs("nowhere", &mut settings).await.expect_err("no table");
        assert!(missing.what.contains("fs.viewfs.mounttable.nowhere.link"), "{missing}");
    }
}
