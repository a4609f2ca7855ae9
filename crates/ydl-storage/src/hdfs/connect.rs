//! From a configuration and an identity to a file system.

use super::{
    error::{HdfsError, Kind},
    exceptions::CallContext,
    file_systems::token_system,
    settings::pairs,
    targets::{Targets, namenodes},
    tokens::{TOKEN_KIND, short_name, token_owner},
};
use hdfs_native::{Client, ClientBuilder};
use std::{collections::BTreeMap, path::Path, sync::Arc};
use tokio::time::Instant;
use yarn_native::{
    config::{Authentication, Config, ConfigError},
    credentials::Credentials,
    namenode::NameNodes,
    rpc::RpcError,
    security::{AuthMethod, Identity, TicketSource},
};

/// Variable with the path of a container's tokens. hdfs-native reads it at each connection.
const TOKEN_FILE: &str = "HADOOP_TOKEN_FILE_LOCATION";

/// One file system. Cheap to clone.
#[derive(Clone)]
pub struct Hdfs {
    pub(super) client: Client,
    about: Arc<FileSystemInfo>,
}

/// Properties of a file system known without a call.
struct FileSystemInfo {
    /// As `hdfs://namenode:8020`: how URLs of it begin.
    root: String,
    /// Other spellings of the same.
    spellings: Vec<String>,
    servers: String,
    origin: String,
    home_prefix: String,
    /// User, if known without a ticket.
    user: Option<String>,
    config: Config,
    identity: Identity,
}

impl std::fmt::Debug for Hdfs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hdfs({})", self.about.root)
    }
}

impl Hdfs {
    /// The file system of `url`, or the default one. Nothing is asked of its servers yet, only names are looked up.
    ///
    /// On an insecure cluster the identity's user is believed. On a secure one a token from the file that YARN names in
    /// `HADOOP_TOKEN_FILE_LOCATION` goes first, then the identity's tickets; a keytab goes before both.
    pub async fn connect(
        config: &Config,
        url: Option<&str>,
        identity: &Identity,
        deadline: Instant,
    ) -> Result<Hdfs, HdfsError> {
        let root = match url {
            Some(url) => url.to_owned(),
            None => config.default_fs().map_err(unclear)?,
        };
        let Some((scheme @ ("hdfs" | "viewfs"), rest)) = root.split_once("://") else {
            let what = format!("`{root}` is not in HDFS");
            let hint = "set `fs.defaultFS` to an `hdfs://` URL";
            return Err(HdfsError::new(Kind::BadInput, what).hint(hint));
        };
        let authority = rest.split('/').next().unwrap_or_default();
        let origin = match (url, config.origin("fs.defaultFS")) {
            (None, Some(origin)) => format!("`fs.defaultFS` ({origin})"),
            _ => "its URL".to_owned(),
        };
        let named = format!("{scheme}://{authority}");
        let tokens = tokens(config);
        let mut settings = pairs(config);
        // Trying for long is up to the caller, who has a deadline and hears the reason meanwhile.
        let key = "dfs.client.failover.max.attempts";
        let targets = Targets { config, tokens: tokens.as_ref(), deadline };
        let (target, servers) = if scheme == "viewfs" {
            settings.insert(key.into(), "4".into());
            let target = targets.viewfs(authority, &mut settings).await?;
            (target, format!("`{authority}`"))
        } else {
            let found = namenodes(config, authority)?;
            let several = config.is_highly_available(authority).map_err(unclear)?;
            let tries = if several { 4 * found.len() } else { 0 };
            settings.insert(key.into(), tries.to_string());
            let servers = found.iter().map(|one| format!("`{}`", one.rpc));
            let servers = servers.collect::<Vec<_>>().join(", ");
            (targets.hdfs(authority).await?, servers)
        };
        let client = build(&target, settings, identity).map_err(|error| {
            CallContext {
                verb: "open",
                place: named.clone(),
                servers: servers.clone(),
                origin: origin.clone(),
            }
            .translate(error)
        })?;
        let home_prefix = match scheme {
            "viewfs" => config.mount_table(authority).map_err(unclear)?.homes,
            _ => {
                let prefix = config.value("dfs.user.home.dir.prefix").map_err(unclear)?;
                prefix.map_or_else(|| "/user".to_owned(), |value| value.text)
            }
        };
        let mut spellings = vec![named.clone(), target];
        if url.is_none() {
            // `hdfs:///path` is in the default file system.
            spellings.push("hdfs://".to_owned());
        }
        let about = FileSystemInfo {
            spellings,
            root: named,
            servers,
            origin,
            home_prefix,
            user: known_user(identity).or_else(|| {
                let tokens = tokens.as_ref()?;
                token_owner(tokens.of_kind(TOKEN_KIND)?)
            }),
            config: config.clone(),
            identity: identity.clone(),
        };
        Ok(Hdfs { client, about: Arc::new(about) })
    }

    /// Returns the URL of the root, such as `hdfs://namenode:8020`.
    pub fn root(&self) -> &str {
        &self.about.root
    }

    /// The whole URL of a path.
    pub fn url(&self, path: &str) -> String {
        match path.contains("://") {
            true => path.to_owned(),
            false => format!("{}{path}", self.about.root),
        }
    }

    /// The user whose files these are. Where only a ticket knows, the NameNode is asked.
    pub async fn user(&self, deadline: Instant) -> Result<String, HdfsError> {
        if let Some(user) = &self.about.user {
            return Ok(user.clone());
        }
        let about = self.about("learn who this user is from", self.root());
        let system = token_system(&self.about.config, self.root())?;
        let namenodes =
            NameNodes::from_config(&self.about.config, &system, self.about.identity.clone());
        let namenodes =
            namenodes.map_err(|error| about.failed(Kind::BadInput, error.to_string()))?;
        let refused = |error: RpcError| match error {
            RpcError::Security { .. } | RpcError::Denied { .. } => about
                .failed(Kind::Unauthenticated, error.to_string())
                .hint("renew the Kerberos ticket with `kinit`"),
            _ => about.unreachable(error.to_string()),
        };
        let token = namenodes.delegation_token("", deadline).await.map_err(refused)?;
        let Some(token) = token else {
            return self.about.config.user().map_err(unclear);
        };
        let owner = token_owner(&token);
        // The token is unused. If the call fails, it expires by itself.
        let _ = namenodes.cancel_token(&token, deadline).await;
        owner.ok_or_else(|| about.failed(Kind::Other, "the token it gave does not say"))
    }

    /// The user's home directory, as a URL.
    pub async fn home(&self, deadline: Instant) -> Result<String, HdfsError> {
        let user = self.user(deadline).await?;
        let prefix = self.about.home_prefix.trim_end_matches('/');
        Ok(self.url(&format!("{prefix}/{user}")))
    }

    /// The path of a file that was named by its URL or by its path.
    pub(super) fn path(&self, place: &str) -> Result<String, HdfsError> {
        let path = match place.contains("://") {
            false => Some(place),
            true => self.about.spellings.iter().find_map(|root| {
                let path = place.strip_prefix(root.as_str())?;
                (path.is_empty() || path.starts_with('/')).then_some(path)
            }),
        };
        let Some(path) = path else {
            let what = format!("`{place}` is not in `{}`", self.about.root);
            return Err(HdfsError::new(Kind::BadInput, what));
        };
        if path.is_empty() {
            return Ok("/".to_owned());
        }
        if !path.starts_with('/') || path.contains('\0') {
            let what = format!("`{place}` is not an absolute path");
            return Err(HdfsError::new(Kind::BadInput, what).hint("begin it with `/` or `hdfs://`"));
        }
        Ok(path.to_owned())
    }

    pub(super) fn about(&self, verb: &'static str, place: &str) -> CallContext {
        CallContext {
            verb,
            place: self.url(place),
            servers: self.about.servers.clone(),
            origin: self.about.origin.clone(),
        }
    }
}

pub(super) fn unclear(error: ConfigError) -> HdfsError {
    HdfsError::new(Kind::BadInput, error.to_string()).hint("see Hadoop's configuration files")
}

/// The tokens that this process was started with, where tokens count.
fn tokens(config: &Config) -> Option<Credentials> {
    if config.authentication().ok() != Some(Authentication::Kerberos) {
        return None;
    }
    given()
}

/// The tokens that this process was started with.
pub(super) fn given() -> Option<Credentials> {
    let file = std::env::var_os(TOKEN_FILE)?;
    // A file that cannot be read is no proof; that is said when proof is asked for.
    Credentials::read(Path::new(&file)).ok()
}

fn build(
    target: &str,
    settings: BTreeMap<String, String>,
    identity: &Identity,
) -> hdfs_native::Result<Client> {
    let mut builder = ClientBuilder::new()
        .with_url(target)
        .with_config(settings)
        // It would read the files a second time, and otherwise than Hadoop does.
        .with_config_dir("/dev/null");
    match &identity.auth {
        AuthMethod::Simple { user } => builder = builder.with_user(user),
        AuthMethod::Kerberos(kerberos) => match &kerberos.tickets {
            TicketSource::Keytab { path, principal } => {
                builder = builder
                    .with_kerberos_keytab(path.to_string_lossy())
                    .with_kerberos_principal(principal);
            }
            TicketSource::Cache(cache) => builder = builder.with_kerberos_cache(cache),
            _ => {}
        },
        // Tokens are read from the file that the environment names.
        _ => {}
    }
    if let Some(user) = &identity.acting_for {
        builder = builder.with_user(user);
    }
    builder.build()
}

fn known_user(identity: &Identity) -> Option<String> {
    if let Some(user) = &identity.acting_for {
        return Some(user.clone());
    }
    match &identity.auth {
        AuthMethod::Simple { user } => Some(user.clone()),
        AuthMethod::Kerberos(kerberos) => match &kerberos.tickets {
            TicketSource::Keytab { principal, .. } => Some(short_name(principal)),
            _ => None,
        },
        AuthMethod::Token(token) => token_owner(token),
        _ => None,
    }
}
