//! Caller identity, trust policy and RPC options derived from a configuration.

use std::time::Duration;

use super::resource_manager::RetryPolicy;
use super::rpc::Authentication;
use super::table::{Config, ConfigError};
use crate::rpc::{Options, RpcError};
use crate::security::{Identity, Policy, ServerPrincipal, TicketSource, replace_host};

/// Upper bound of the retry timeout. Each call has its own deadline, so an unlimited timeout is
/// only a long one.
const RETRY_TIMEOUT_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Read timeout used when the configuration sets none.
const READ_TIMEOUT: Duration = Duration::from_secs(120);

/// Error building a client from a configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// A value is missing or invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The RPC layer cannot be set up on this machine.
    #[error(transparent)]
    Rpc(#[from] RpcError),
}

impl Identity {
    /// Returns the caller's identity, determined as Hadoop's own clients do: with Kerberos the
    /// owner of the ticket cache, otherwise `HADOOP_USER_NAME` or the user of this process.
    /// `HADOOP_PROXY_USER` sets the effective user.
    pub fn from_config(config: &Config) -> Result<Self, ConfigError> {
        let identity = match config.authentication()? {
            Authentication::Kerberos => Self::kerberos(TicketSource::Default),
            Authentication::Simple => Self::simple(config.user()?),
        };
        Ok(match config.proxy_user() {
            Some(user) => identity.acting_for(user),
            None => identity,
        })
    }
}

impl Config {
    /// Returns the user name sent to an insecure cluster.
    pub fn user(&self) -> Result<String, ConfigError> {
        let environment = self.environment();
        let user = environment
            .non_empty("HADOOP_USER_NAME")
            .map(str::to_owned)
            .or_else(|| environment.property("HADOOP_USER_NAME"))
            .or_else(|| environment.property("user.name"));
        user.ok_or_else(|| ConfigError::Missing {
            key: "HADOOP_USER_NAME".into(),
            why: "the user of this process is unknown".into(),
        })
    }

    /// Returns the user to impersonate (`HADOOP_PROXY_USER`), if any.
    pub fn proxy_user(&self) -> Option<String> {
        let environment = self.environment();
        environment
            .non_empty("HADOOP_PROXY_USER")
            .map(str::to_owned)
            .or_else(|| environment.property("HADOOP_PROXY_USER"))
    }

    /// Returns the RPC options for the ResourceManager.
    pub fn resource_manager_options(&self) -> Result<Options, ConfigError> {
        let server = self.resource_manager_principal()?;
        self.options(server, &self.resource_manager_retry_policy()?)
    }

    /// Returns the RPC options for NodeManagers. Container management calls authenticate with
    /// NodeManager tokens.
    pub fn node_manager_options(&self) -> Result<Options, ConfigError> {
        let server = self.node_manager_principal()?;
        self.options(server, &self.node_manager_retry_policy()?)
    }

    /// Returns the RPC options for NameNodes.
    pub fn namenode_options(&self) -> Result<Options, ConfigError> {
        let server = self.namenode_principal()?;
        self.options(server, &self.namenode_retry_policy()?)
    }

    /// Returns the renewer of an application's tokens: the ResourceManager's principal as NameNodes
    /// know it. `None` when no principal is configured; the tokens are not renewed then.
    pub fn renewer(&self) -> Result<Option<String>, ConfigError> {
        let key = "yarn.resourcemanager.principal";
        let Some(principal) = self.text(key)? else {
            return Ok(None);
        };
        let managers = self.resource_managers()?;
        let host = managers.first().map_or("", |manager| &manager.client.host);
        let renewer = replace_host(&principal, host).map_err(|error| ConfigError::Invalid {
            key: key.into(),
            value: principal,
            origin: self.origin(key).cloned().unwrap_or(super::Origin::Default),
            why: error.to_string(),
        })?;
        Ok(Some(renewer))
    }

    /// Builds RPC options that require the principal `server` and retry by `policy`.
    fn options(
        &self,
        server: Option<ServerPrincipal>,
        policy: &RetryPolicy,
    ) -> Result<Options, ConfigError> {
        let rpc = self.rpc()?;
        let default = Options::default();
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        // With a maximum number of attempts and no timeout, the timeout is what those attempts
        // take.
        let duration_of = |count: u32| policy.backoff_max.saturating_mul(count);
        let retry_timeout = policy.timeout.or(policy.attempts_max.map(duration_of));
        Ok(Options {
            security: self.policy(server)?,
            connect_timeout: rpc.connect_timeout.unwrap_or(default.connect_timeout),
            read_timeout: rpc.call_timeout.unwrap_or(READ_TIMEOUT),
            ping_interval: rpc.ping_interval.unwrap_or(default.ping_interval),
            idle_timeout: rpc.idle_timeout,
            retry_timeout: retry_timeout.unwrap_or(RETRY_TIMEOUT_MAX).min(RETRY_TIMEOUT_MAX),
            backoff_max: policy.backoff_max,
            request_bytes_max: size(rpc.request_bytes_max),
            response_bytes_max: size(rpc.response_bytes_max),
            ..default
        })
    }

    fn policy(&self, server: Option<ServerPrincipal>) -> Result<Policy, ConfigError> {
        let secure = self.authentication()? == Authentication::Kerberos;
        // An insecure client does not require servers to authenticate either.
        let fallback = !secure || self.fallback_to_simple_allowed()?;
        Ok(Policy {
            server,
            protection: self.protections()?.unwrap_or_default(),
            fallback_to_simple: match fallback {
                true => Some(self.user()?),
                false => None,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Environment;
    use crate::security::{AuthMethod, Quality};

    fn config(values: &[(&str, &str)]) -> Config {
        let environment = Environment::default()
            .with_variable("USER", "alice")
            .with_variable("HADOOP_PROXY_USER", "bob");
        let mut config = Config::defaults(environment);
        for (key, value) in values {
            config.set(key, *value, "a test");
        }
        config
    }

    fn options(config: &Config) -> Options {
        config.resource_manager_options().unwrap()
    }

    #[test]
    fn simple_identity_uses_the_user_name_and_the_configured_proxy_user() {
        let config = config(&[]);
        let identity = Identity::from_config(&config).unwrap();
        assert!(matches!(&identity.auth, AuthMethod::Simple { user } if user == "alice"));
        assert_eq!(identity.acting_for.as_deref(), Some("bob"));
        let named = Environment::default()
            .with_variable("USER", "alice")
            .with_variable("HADOOP_USER_NAME", "carol");
        let identity = Identity::from_config(&Config::defaults(named)).unwrap();
        assert!(matches!(&identity.auth, AuthMethod::Simple { user } if user == "carol"));
        assert_eq!(identity.acting_for, None);
    }

    #[test]
    fn kerberos_client_falls_back_to_simple_only_when_configured() {
        let kerberos = ("hadoop.security.authentication", "kerberos");
        let protection = ("hadoop.rpc.protection", "privacy");
        let secure = config(&[kerberos, protection]);
        let identity = Identity::from_config(&secure).unwrap();
        assert!(matches!(identity.auth, AuthMethod::Kerberos(_)));
        let policy = options(&secure).security;
        assert_eq!(policy.fallback_to_simple, None);
        assert_eq!(policy.protection, [Quality::Privacy]);
        let allowed = ("ipc.client.fallback-to-simple-auth-allowed", "true");
        let policy = options(&config(&[kerberos, allowed])).security;
        assert_eq!(policy.fallback_to_simple.as_deref(), Some("alice"));
        assert!(policy.protection.is_empty(), "the strongest offered is used");
    }

    #[test]
    fn unlimited_timeouts_use_the_defaults() {
        for unlimited in ["0", "-1"] {
            let options = options(&config(&[
                ("ipc.client.connect.timeout", unlimited),
                ("ipc.client.rpc-timeout.ms", unlimited),
                ("ipc.ping.interval", unlimited),
            ]));
            let default = Options::default();
            assert_eq!(options.connect_timeout, default.connect_timeout);
            assert_eq!(options.read_timeout, READ_TIMEOUT);
            assert_eq!(options.ping_interval, default.ping_interval);
        }
    }

    #[test]
    fn unlimited_retry_timeout_is_capped() {
        let unlimited = config(&[("yarn.resourcemanager.connect.max-wait.ms", "-1")]);
        assert_eq!(options(&unlimited).retry_timeout, RETRY_TIMEOUT_MAX);
        assert_eq!(options(&config(&[])).retry_timeout.as_secs(), 15 * 60);
    }
}
