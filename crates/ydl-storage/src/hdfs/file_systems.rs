//! Lazily connected file systems.

use super::{
    connect::Hdfs,
    error::{HdfsError, Kind},
};
use std::collections::{BTreeMap, BTreeSet};
use tokio::{sync::Mutex, time::Instant};
use yarn_native::{config::Config, security::Identity};
use ydl_core::{JobSpec, spec::Environment};

/// Maximum number of cached file systems.
const FILE_SYSTEMS_MAX: usize = 16;

/// Lazily connected file systems. They belong to the runtime that first used them.
#[derive(Debug)]
pub struct FileSystems {
    config: Config,
    identity: Identity,
    known: Mutex<BTreeMap<String, Hdfs>>,
}

impl FileSystems {
    /// Creates the cache for a configuration and a user.
    pub fn new(config: Config, identity: Identity) -> FileSystems {
        FileSystems { config, identity, known: Mutex::default() }
    }

    /// Creates the cache for the user that the configuration names.
    pub fn of(config: Config) -> Result<FileSystems, HdfsError> {
        let identity = Identity::from_config(&config)
            .map_err(|error| HdfsError::new(Kind::BadInput, error.to_string()))?;
        Ok(FileSystems::new(config, identity))
    }

    /// Returns the file system of a URL.
    pub async fn to(&self, url: &str, deadline: Instant) -> Result<Hdfs, HdfsError> {
        let Some((scheme, rest)) = url.split_once("://") else {
            let what = format!("`{url}` is not the URL of a file");
            return Err(HdfsError::new(Kind::BadInput, what));
        };
        let authority = rest.split('/').next().unwrap_or_default();
        let root = format!("{scheme}://{authority}");
        let mut known = self.known.lock().await;
        if let Some(hdfs) = known.get(&root) {
            return Ok(hdfs.clone());
        }
        // `hdfs:///` is the default one, whichever that is.
        let named = (!authority.is_empty()).then_some(root.as_str());
        let hdfs = Hdfs::connect(&self.config, named, &self.identity, deadline).await?;
        if known.len() < FILE_SYSTEMS_MAX {
            known.insert(root, hdfs.clone());
        }
        Ok(hdfs)
    }
}

/// The path of a URL in HDFS, or the text itself.
pub fn url_path(url: &str) -> &str {
    match url.split_once("://") {
        Some((_, rest)) => rest.find('/').map_or("/", |at| &rest[at..]),
        None => url,
    }
}

/// Returns the file systems whose NameNodes issue tokens for a URL: its own, or all that a viewfs mounts.
pub fn token_systems(config: &Config, url: &str) -> Result<Vec<String>, HdfsError> {
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let authority = rest.split('/').next().unwrap_or_default();
    match scheme {
        "hdfs" if authority.is_empty() => Ok(Vec::new()),
        "hdfs" => Ok(vec![format!("hdfs://{authority}")]),
        "viewfs" => {
            let mounted = config.mounted_file_systems(authority).map_err(|error| {
                let what = format!("cannot resolve `viewfs://{authority}`: {error}");
                let hint = "set the mount table in the Hadoop configuration, or name the file systems behind it";
                HdfsError::new(Kind::BadInput, what).hint(hint)
            })?;
            let of_namenodes = mounted.into_iter().filter(|root| root.starts_with("hdfs://"));
            Ok(of_namenodes.collect())
        }
        _ => {
            let what = format!("no token can be fetched for `{url}`");
            let hint = "leave it out: only NameNodes issue tokens, for `hdfs://…` and `viewfs://…`";
            Err(HdfsError::new(Kind::BadInput, what).hint(hint))
        }
    }
}

/// Returns one file system whose NameNodes authenticate the user of a URL: its own, or the first that a viewfs mounts.
pub fn token_system(config: &Config, url: &str) -> Result<String, HdfsError> {
    let systems = token_systems(config, url)?;
    Ok(systems.into_iter().next().unwrap_or_else(|| url.to_owned()))
}

/// Returns all file systems that a job needs tokens for: those of its staging directory, files, inputs, outputs and
/// environment, and those that it names.
pub fn job_file_systems(
    config: &Config,
    spec: &JobSpec,
    staging: &str,
) -> Result<Vec<String>, HdfsError> {
    let mut urls: Vec<&str> = vec![staging];
    urls.extend(spec.files.iter().map(|file| file.source.as_str()));
    urls.extend(spec.inputs.iter().map(|input| input.source.as_str()));
    urls.extend(spec.outputs.iter().map(|output| output.to.as_str()));
    urls.extend(spec.cluster_options.checkpoint.as_deref());
    match &spec.environment {
        Environment::Archive(url) => urls.push(url),
        // They are on the submitter's machine, or fetched by the nodes as themselves.
        Environment::System
        | Environment::Directory(_)
        | Environment::Requirements(_)
        | Environment::Pex(_)
        | Environment::Image(_) => {}
    }
    // Paths and URLs of other systems need no token.
    urls.retain(|url| url.starts_with("hdfs://") || url.starts_with("viewfs://"));
    urls.extend(spec.cluster_options.file_systems.iter().map(String::as_str));
    let mut all = BTreeSet::new();
    for url in urls {
        all.extend(token_systems(config, url)?);
    }
    Ok(all.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use yarn_native::config::Environment;

    fn systems(url: &str) -> Result<Vec<String>, String> {
        let mut config = Config::defaults(Environment::default());
        for (key, value) in [
            ("fs.viewfs.mounttable.root.link./user", "hdfs://one/user"),
            ("fs.viewfs.mounttable.root.link./data", "hdfs://two:8020/data"),
            ("fs.viewfs.mounttable.root.linkFallback", "s3a://bucket/"),
        ] {
            config.set(key, value, "a test");
        }
        token_systems(&config, url).map_err(|error| error.what)
    }

    #[test]
    fn tokens_of_a_viewfs_are_those_of_its_mounted_namenodes() {
        let both = Ok(vec!["hdfs://one".to_owned(), "hdfs://two:8020".to_owned()]);
        assert_eq!(systems("viewfs://root"), both);
        assert_eq!(systems("viewfs://root/user/me/.ydl"), both);
        assert_eq!(systems("hdfs://one/user"), Ok(vec!["hdfs://one".to_owned()]));
        assert_eq!(systems("hdfs:///user"), Ok(Vec::new()));
    }

    #[test]
    fn file_systems_without_tokens_are_rejected() {
        let missing = systems("viewfs://nowhere").unwrap_err();
        assert!(missing.starts_with("cannot resolve `viewfs://nowhere`: "), "{missing}");
        let other = systems("s3a://bucket").unwrap_err();
        assert_eq!(other, "no token can be fetched for `s3a://bucket`");
    }
}
