//! RPC settings: authentication, protection, sizes and timeouts.

use std::time::Duration;

use super::table::{Config, ConfigError};
use super::value;
use crate::security::{Quality, ServerPrincipal};

/// Authentication required by servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authentication {
    /// None: servers trust the user name sent by the client.
    Simple,
    /// Kerberos, or tokens issued by servers.
    Kerberos,
}

/// RPC size limits and timeouts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RpcSettings {
    /// Maximum request size accepted by servers, in bytes.
    pub request_bytes_max: u64,
    /// Maximum response size accepted by the client, in bytes.
    pub response_bytes_max: u64,
    /// Connect timeout; `None` is unlimited.
    pub connect_timeout: Option<Duration>,
    /// Connect retries after a refused connection.
    pub connect_retries: u32,
    /// Connect retries after a timeout.
    pub connect_retries_on_timeout: u32,
    /// Delay between connect retries.
    pub connect_retry_interval: Duration,
    /// Call timeout; `None` is unlimited.
    pub call_timeout: Option<Duration>,
    /// Interval of pings on a waiting connection; `None` if disabled.
    pub ping_interval: Option<Duration>,
    /// Idle timeout of connections.
    pub idle_timeout: Duration,
    /// Disables Nagle's algorithm (`TCP_NODELAY`).
    pub no_delay: bool,
}

impl Config {
    /// Returns the authentication method (`hadoop.security.authentication`).
    pub fn authentication(&self) -> Result<Authentication, ConfigError> {
        self.required("hadoop.security.authentication", |text| {
            match text.to_ascii_lowercase().as_str() {
                "simple" => Ok(Authentication::Simple),
                "kerberos" => Ok(Authentication::Kerberos),
                _ => Err("expected `simple` or `kerberos`".into()),
            }
        })
    }

    /// Returns whether servers enforce service-level authorization.
    pub fn authorization(&self) -> Result<bool, ConfigError> {
        self.flag("hadoop.security.authorization")
    }

    /// Returns the accepted qualities of protection, preferred first. `None` if not configured; the
    /// strongest offered is used then.
    pub fn protections(&self) -> Result<Option<Vec<Quality>>, ConfigError> {
        let key = "hadoop.rpc.protection";
        if self.origin(key) == Some(&super::Origin::Default) {
            return Ok(None);
        }
        self.parsed(key, |text| {
            let mut found: Vec<Quality> = Vec::new();
            for name in value::list(text) {
                let protection = name.parse().map_err(|_| {
                    "expected one or more of `authentication`, `integrity`, `privacy`".to_owned()
                })?;
                if !found.contains(&protection) {
                    found.push(protection);
                }
            }
            match found.is_empty() {
                true => Err("the list is empty".into()),
                false => Ok(found),
            }
        })
    }

    /// Returns whether token services contain IP addresses instead of host names.
    pub fn token_services_use_ip(&self) -> Result<bool, ConfigError> {
        self.flag("hadoop.security.token.service.use_ip")
    }

    /// Returns whether a secure client may fall back to an insecure server.
    pub fn fallback_to_simple_allowed(&self) -> Result<bool, ConfigError> {
        self.flag("ipc.client.fallback-to-simple-auth-allowed")
    }

    /// Returns the SASL mechanism for tokens; servers before 3.5 support only `DIGEST-MD5`.
    pub fn token_mechanism(&self) -> Result<String, ConfigError> {
        self.required("hadoop.security.sasl.mechanism", |text| Ok(text.to_owned()))
    }

    /// Returns the rules mapping Kerberos principals to short user names; `None` for Hadoop's
    /// default rules.
    pub fn auth_to_local_rules(&self) -> Result<Option<String>, ConfigError> {
        self.text("hadoop.security.auth_to_local")
    }

    /// RPC size limits and timeouts.
    pub fn rpc(&self) -> Result<RpcSettings, ConfigError> {
        let count = |key: &str| {
            self.required(key, |text| {
                u32::try_from(value::count(text)?).map_err(|_| "too large".into())
            })
        };
        // Hadoop treats zero and negative values as unlimited.
        let limit = |key: &str| -> Result<Option<Duration>, ConfigError> {
            Ok(self.millis_or_unlimited(key)?.filter(|time| !time.is_zero()))
        };
        let ping_enabled = self.flag("ipc.client.ping")?;
        Ok(RpcSettings {
            request_bytes_max: self.bytes("ipc.maximum.data.length")?,
            response_bytes_max: self.bytes("ipc.maximum.response.length")?,
            connect_timeout: limit("ipc.client.connect.timeout")?,
            connect_retries: count("ipc.client.connect.max.retries")?,
            connect_retries_on_timeout: count("ipc.client.connect.max.retries.on.timeouts")?,
            connect_retry_interval: self.millis("ipc.client.connect.retry.interval")?,
            call_timeout: limit("ipc.client.rpc-timeout.ms")?,
            ping_interval: match ping_enabled {
                true => limit("ipc.ping.interval")?,
                false => None,
            },
            idle_timeout: self.millis("ipc.client.connection.maxidletime")?,
            no_delay: self.flag("ipc.client.tcpnodelay")?,
        })
    }

    /// Returns whether web pages require SPNEGO (`hadoop.http.authentication.type`).
    pub fn web_authentication(&self) -> Result<Authentication, ConfigError> {
        self.required("hadoop.http.authentication.type", |text| {
            Ok(match text.eq_ignore_ascii_case("kerberos") {
                true => Authentication::Kerberos,
                // Anything else is `simple` or a custom handler class.
                false => Authentication::Simple,
            })
        })
    }

    /// Returns the principal required of a server, from `key` or `<key>.pattern`, which takes
    /// precedence. `None` if neither is set; no server is trusted then.
    pub(super) fn server_principal(
        &self,
        key: &str,
    ) -> Result<Option<ServerPrincipal>, ConfigError> {
        let name = self.text(key)?;
        let key = format!("{key}.pattern");
        // The default pattern for NameNodes accepts any server, which must not override a
        // configured name.
        if name.is_some() && self.origin(&key) == Some(&super::Origin::Default) {
            return Ok(name.map(ServerPrincipal::Exact));
        }
        match self.text(&key)? {
            Some(pattern) => Ok(Some(ServerPrincipal::Pattern(pattern))),
            None => Ok(name.map(ServerPrincipal::Exact)),
        }
    }
}
