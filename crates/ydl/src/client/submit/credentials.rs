//! Credentials of a master: delegation tokens of the ResourceManager and of every file system, and the job's secret.

use crate::client::cluster::ClusterClient;
use std::fs;
use yarn_native::{
    config::Config,
    credentials::Credentials,
    namenode::{NameNodes, TokensError, fetch_tokens},
    security::{Identity, TicketSource},
};
use ydl_core::{JobSpec, spec::Keytab};
use ydl_net::{
    secret::{self, Scope, Secret, Token},
    tls,
};
use ydl_os::{
    reason,
    report::{Exit, Report},
};
use ydl_storage::hdfs::{job_file_systems, token_owner, token_system};

/// Name of the keytab among a master's credentials.
const KEYTAB: &str = "ydl.keytab";
/// Maximum size of a keytab.
const KEYTAB_BYTES_MAX: u64 = 1 << 20;

/// Credentials of a job's masters and clients.
#[derive(Debug)]
pub(crate) struct SubmitCredentials {
    /// Credentials of the master's container.
    pub credentials: Credentials,
    /// Configuration with which the ResourceManager finds the servers that renew the tokens, in Hadoop's encoding.
    pub renewal: Vec<u8>,
    /// Certificate of the job's masters, as PEM.
    pub certificate: String,
    /// Owner's token for the masters.
    pub client_token: Token,
    /// Viewers' token for the masters.
    pub viewer_token: Token,
}

/// Creates a job's secret and certificate, and fetches the delegation tokens that its master needs.
pub(crate) async fn submit_credentials(
    cluster: &ClusterClient,
    spec: &JobSpec,
    staging: &str,
) -> Result<SubmitCredentials, Report> {
    let secret = Secret::random()
        .ok_or_else(|| Report::internal("the system has no random number generator"))?;
    let identity = tls::Identity::generate().map_err(|e| Report::internal(e.to_string()))?;
    let token = |scope| {
        let token = secret.token(&scope);
        token.ok_or_else(|| Report::internal("cannot derive a token from the job's secret"))
    };
    let (client_token, viewer_token) = (token(Scope::Client)?, token(Scope::Viewer)?);
    let mut credentials = Credentials::default();
    let mut renewal = Vec::new();
    if cluster.is_secure() {
        let systems = job_file_systems(&cluster.config, spec, staging)?;
        credentials = fetch(cluster, &systems).await?;
        renewal = renewal_of(&cluster.config, &systems);
    }
    if let Some(keytab) = &spec.cluster_options.keytab {
        let bytes = read_keytab(&keytab.path)?;
        if cluster.is_secure() {
            verify_keytab(cluster, keytab, &credentials, staging).await?;
        }
        credentials.set_secret(KEYTAB, bytes);
    }
    if let Some(bytes) = tracking_secret(spec)? {
        credentials.set_secret(TRACKING_SECRET, bytes);
    }
    credentials.set_secret(secret::CREDENTIAL, secret.to_hex().into_bytes());
    credentials.set_secret(tls::CREDENTIAL, identity.to_pem().into_bytes());
    Ok(SubmitCredentials {
        credentials,
        renewal,
        certificate: identity.certificate_pem(),
        client_token,
        viewer_token,
    })
}

/// Name of the MLflow token among a master's credentials, and of its file in the directory of a local job.
pub(crate) const TRACKING_SECRET: &str = "mlflow.secret";

/// Returns the token of a job's MLflow server, if it has one.
pub(crate) fn tracking_secret(spec: &JobSpec) -> Result<Option<Vec<u8>>, Report> {
    let mlflow = spec.cluster_options.mlflow.as_ref();
    let Some(path) = mlflow.and_then(|mlflow| mlflow.token_file.as_ref()) else {
        return Ok(None);
    };
    let bytes = fs::read(path).map_err(|error| {
        let what = format!("cannot read `{path}`: {}", reason(&error));
        Report::bad_input(what).hint("check `mlflow.token_file`")
    })?;
    let line = std::str::from_utf8(&bytes).map(str::trim).unwrap_or_default();
    if line.is_empty() || line.chars().any(char::is_control) {
        let what = format!("`{path}` is not a token file: expected one line of text");
        return Err(Report::bad_input(what).hint("check `mlflow.token_file`"));
    }
    Ok(Some(line.as_bytes().to_vec()))
}

fn read_keytab(path: &str) -> Result<Vec<u8>, Report> {
    let cannot = |why: String| {
        Report::bad_input(format!("cannot read the keytab `{path}`: {why}"))
            .hint("check `keytab.path`")
    };
    let length = fs::metadata(path).map(|metadata| metadata.len());
    match length {
        Ok(length) if length > KEYTAB_BYTES_MAX => {
            Err(cannot(format!("it is larger than {KEYTAB_BYTES_MAX} bytes")))
        }
        _ => fs::read(path).map_err(|error| cannot(reason(&error))),
    }
}

/// Checks that the keytab authenticates the job's user. A master would need it only days later.
async fn verify_keytab(
    cluster: &ClusterClient,
    keytab: &Keytab,
    credentials: &Credentials,
    staging: &str,
) -> Result<(), Report> {
    let Keytab { path, principal } = keytab;
    let keytab_error = |why: String| {
        let what = format!("cannot authenticate as `{principal}` with the keytab `{path}`: {why}");
        Report::bad_input(what).hint("check `keytab`; `klist -k` lists the principals of a keytab")
    };
    let tickets = TicketSource::Keytab { path: path.into(), principal: principal.clone() };
    let mut identity = Identity::kerberos(tickets);
    identity.acting_for = cluster.identity.acting_for.clone();
    let system = token_system(&cluster.config, staging)?;
    let namenodes = NameNodes::from_config(&cluster.config, &system, identity);
    let namenodes = namenodes.map_err(|error| keytab_error(error.to_string()))?;
    let deadline = cluster.deadline();
    let token = namenodes.delegation_token("", deadline).await;
    let Some(token) = token.map_err(|error| keytab_error(error.to_string()))? else {
        return Ok(());
    };
    // The token is not needed. If this fails, it expires.
    let _ = namenodes.cancel_token(&token, deadline).await;
    let job = credentials.of_kind(&token.kind).and_then(token_owner);
    match (token_owner(&token), job) {
        (Some(owner), Some(job)) if owner != job => {
            let what = format!("the keytab `{path}` is for `{owner}`, and the job runs as `{job}`");
            Err(Report::bad_input(what).hint("name a keytab of the submitting user"))
        }
        _ => Ok(()),
    }
}

async fn fetch(cluster: &ClusterClient, systems: &[String]) -> Result<Credentials, Report> {
    let (config, deadline) = (&cluster.config, cluster.deadline());
    let config_error =
        |error: yarn_native::config::ConfigError| Report::bad_input(error.to_string());
    let renewer = config.renewer().map_err(config_error)?.unwrap_or_default();
    let request = fetch_tokens(config, systems, &cluster.identity, &renewer, deadline);
    let mut credentials = request.await.map_err(|error| match &error {
        TokensError::Rpc { source, .. } => {
            let hint = source.hint().map(str::to_owned);
            let hint = hint.unwrap_or_else(|| "get a Kerberos ticket with `kinit`".into());
            Report::new(Exit::Unreachable, error.to_string()).hint(hint)
        }
        _ => Report::bad_input(error.to_string()).hint("check `file_systems`"),
    })?;
    let token = cluster.rm.delegation_token(&renewer, deadline).await;
    let token = token.map_err(|error| cluster.report(error))?;
    credentials.add(token.service.clone(), token);
    Ok(credentials)
}

/// Keys with which a ResourceManager connects to a NameNode, besides its addresses.
const RENEWAL_KEYS: [&str; 5] = [
    "dfs.namenode.kerberos.principal",
    "dfs.namenode.kerberos.principal.pattern",
    "hadoop.rpc.protection",
    "hadoop.security.authentication",
    "hadoop.security.token.service.use_ip",
];

/// Returns the part of the configuration that resolves the names of highly available file systems. The ResourceManager's own
/// configuration may lack file systems that a job names. It uses this part instead of its own configuration, so
/// everything that a connection needs must be in it.
fn renewal_of(config: &Config, systems: &[String]) -> Vec<u8> {
    let mut keys: Vec<String> = Vec::new();
    let mut names = Vec::new();
    for system in systems {
        let name = system.trim_start_matches("hdfs://");
        if !config.is_highly_available(name).unwrap_or(false) {
            continue;
        }
        names.push(name.to_owned());
        let ha_keys = [
            format!("dfs.ha.namenodes.{name}"),
            format!("dfs.client.failover.proxy.provider.{name}"),
        ];
        keys.extend(ha_keys);
        let addresses = format!("dfs.namenode.rpc-address.{name}.");
        keys.extend(config.keys_under(&addresses).map(str::to_owned));
    }
    if names.is_empty() {
        return Vec::new();
    }
    keys.extend(RENEWAL_KEYS.map(str::to_owned));
    let mut pairs: Vec<(String, String)> = Vec::new();
    for key in keys {
        if let Ok(Some(value)) = config.value(&key) {
            pairs.push((key, value.text));
        }
    }
    pairs.push(("dfs.nameservices".to_owned(), names.join(",")));
    let mut bytes = Vec::new();
    write_number(&mut bytes, pairs.len());
    for (key, value) in &pairs {
        for text in [key, value] {
            write_number(&mut bytes, text.len());
            bytes.extend_from_slice(text.as_bytes());
        }
        // Number of sources of the property: none.
        bytes.extend_from_slice(&(-1i32).to_be_bytes());
    }
    bytes
}

/// Writes a count as a Hadoop varint: small ones in one byte, others big-endian after a byte with their length.
fn write_number(bytes: &mut Vec<u8>, number: usize) {
    if number <= 127 {
        bytes.push(number as u8);
        return;
    }
    let all = (number as u64).to_be_bytes();
    let first = all.iter().position(|byte| *byte != 0).unwrap_or(7);
    let length = (8 - first) as i8;
    bytes.push((-112i8 - length) as u8);
    bytes.extend_from_slice(&all[first..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use yarn_native::config::Environment;

    #[test]
    fn counts_are_encoded_as_hadoop_varints() {
        let written = |number| {
            let mut bytes = Vec::new();
            write_number(&mut bytes, number);
            bytes
        };
        assert_eq!(written(0), [0]);
        assert_eq!(written(127), [127]);
        assert_eq!(written(128), [0x8f, 128]);
        assert_eq!(written(300), [0x8e, 1, 44]);
    }

    #[test]
    fn renewal_configuration_describes_only_highly_available_namenodes() {
        let mut config = Config::defaults(Environment::default());
        for (key, value) in [
            ("dfs.nameservices", "remote"),
            ("dfs.ha.namenodes.remote", "a,b"),
            ("dfs.namenode.rpc-address.remote.a", "one:8020"),
            ("dfs.namenode.rpc-address.remote.b", "two:8020"),
            ("dfs.namenode.kerberos.principal", "hdfs/_HOST@REALM"),
            ("hadoop.rpc.protection", "privacy"),
        ] {
            config.set(key, value, "a test");
        }
        assert!(renewal_of(&config, &["hdfs://plain:8020".to_owned()]).is_empty());
        let bytes = renewal_of(&config, &["hdfs://remote".to_owned()]);
        let text = String::from_utf8_lossy(&bytes);
        for expected in ["two:8020", "dfs.nameservices", "hdfs/_HOST@REALM", "privacy"] {
            assert!(text.contains(expected), "{expected} is not in {text}");
        }
    }
}
