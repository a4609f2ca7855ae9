//! From a configuration to a caller: who it is, whom it trusts, and how patient it is.

use std::time::Duration;

use super::resource_manager::RetryPolicy;
use super::rpc::Authentication;
use super::table::{Config, ConfigError};
use crate::rpc::{Options, RpcError};
use crate::security::{Identity, Policy, ServerPrincipal, TicketSource, replace_host};

/// Calls have deadlines of their own, so that patience without end is only a long one.
const RETRY_TIMEOUT_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// A server that says nothing for this long is given up where nobody set a limit.
const READ_TIMEOUT: Duration = Duration::from_secs(120);

/// Why no caller could be made of a configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The configuration says something that makes no sense, or not enough.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// This machine lacks what calls need.
    #[error(transparent)]
    Rpc(#[from] RpcError),
}

impl Identity {
    /// Who calls, as Hadoop's own programs find out: with Kerberos the holder of the ticket cache, else
    /// `HADOOP_USER_NAME` or the name of this process's user; on behalf of `HADOOP_PROXY_USER`, if set.
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
    /// The user that an insecure cluster is told.
    pub fn user(&self) -> Result<String, ConfigError> {
        let environment = self.environment();
        let user = environment
            .non_empty("HADOOP_USER_NAME")
            .map(str::to_owned)
            .or_else(|| environment.property("HADOOP_USER_NAME"))
            .or_else(|| environment.property("user.name"));
        user.ok_or_else(|| ConfigError::Missing {
            key: "HADOOP_USER_NAME".into(),
            why: "nor has this process's user a name".into(),
        })
    }

    /// The user on whose behalf calls are made, if not one's own (`HADOOP_PROXY_USER`).
    pub fn proxy_user(&self) -> Option<String> {
        let environment = self.environment();
        environment
            .non_empty("HADOOP_PROXY_USER")
            .map(str::to_owned)
            .or_else(|| environment.property("HADOOP_PROXY_USER"))
    }

    /// How to call the ResourceManager.
    pub fn resource_manager_options(&self) -> Result<Options, ConfigError> {
        let server = self.resource_manager_principal()?;
        self.options(server, &self.resource_manager_retry_policy()?)
    }

    /// How to call NodeManagers. They are known by the tokens that only they understand.
    pub fn node_manager_options(&self) -> Result<Options, ConfigError> {
        let server = self.node_manager_principal()?;
        self.options(server, &self.node_manager_retry_policy()?)
    }

    /// How to call NameNodes.
    pub fn namenode_options(&self) -> Result<Options, ConfigError> {
        let server = self.namenode_principal()?;
        self.options(server, &self.namenode_retry_policy()?)
    }

    /// Who may renew the tokens that an application takes with it: the ResourceManager, by the name it has
    /// for NameNodes. `None` where it has no such name, and tokens are not renewed.
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

    /// How to call a server that must be `server` and is tried again as `reconnect` says.
    fn options(
        &self,
        server: Option<ServerPrincipal>,
        policy: &RetryPolicy,
    ) -> Result<Options, ConfigError> {
        let rpc = self.rpc()?;
        let default = Options::default();
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        // With a count of tries and no time, the time is what so many tries take.
        let tries = |count: u32| policy.backoff_max.saturating_mul(count);
        let retry_timeout = policy.timeout.or(policy.attempts_max.map(tries));
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
        // A caller who is not secure asks servers for no proof either.
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
    fn an_insecure_caller_is_the_user_and_acts_for_whom_it_is_told() {
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
    fn a_secure_caller_does_not_fall_back_unless_that_is_configured() {
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
        assert!(policy.protection.is_empty(), "the strongest is best");
    }

    #[test]
    fn times_without_end_become_the_usual_ones() {
        for endless in ["0", "-1"] {
            let options = options(&config(&[
                ("ipc.client.connect.timeout", endless),
                ("ipc.client.rpc-timeout.ms", endless),
                ("ipc.ping.interval", endless),
            ]));
            let usual = Options::default();
            assert_eq!(options.connect_timeout, usual.connect_timeout);
            assert_eq!(options.read_timeout, READ_TIMEOUT);
            assert_eq!(options.ping_interval, usual.ping_interval);
        }
    }

    #[test]
    fn patience_without_end_has_one() {
        let endless = config(&[("yarn.resourcemanager.connect.max-wait.ms", "-1")]);
        assert_eq!(options(&endless).retry_timeout, RETRY_TIMEOUT_MAX);
        assert_eq!(options(&config(&[])).retry_timeout.as_secs(), 15 * 60);
    }
}
