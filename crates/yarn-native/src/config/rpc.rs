//! Calls: how they are authenticated and protected, how large they are, how long they may take.

use std::time::Duration;

use super::table::{Config, ConfigError};
use super::value;
use crate::security::{Quality, ServerPrincipal};

/// How servers know who calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authentication {
    /// They believe what they are told.
    Simple,
    /// By Kerberos, or by tokens once given out.
    Kerberos,
}

/// Sizes and times of calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RpcSettings {
    /// The largest request servers take, in bytes.
    pub request_bytes_max: u64,
    /// The largest response we take, in bytes.
    pub response_bytes_max: u64,
    /// How long connecting may take; `None` is without end.
    pub connect_timeout: Option<Duration>,
    /// How often connecting is tried again when it is refused.
    pub connect_retries: u32,
    /// How often connecting is tried again when it takes too long.
    pub connect_retries_on_timeout: u32,
    /// How long to wait before connecting again.
    pub connect_retry_interval: Duration,
    /// How long a call may take; `None` is without end.
    pub call_timeout: Option<Duration>,
    /// How often to ask whether a silent server is still there; `None` when asking is switched off.
    pub ping_interval: Option<Duration>,
    /// How long a connection without calls is kept.
    pub idle_timeout: Duration,
    /// Whether small packets are sent at once.
    pub no_delay: bool,
}

impl Config {
    /// How servers know who calls (`hadoop.security.authentication`).
    pub fn authentication(&self) -> Result<Authentication, ConfigError> {
        self.required("hadoop.security.authentication", |text| {
            match text.to_ascii_lowercase().as_str() {
                "simple" => Ok(Authentication::Simple),
                "kerberos" => Ok(Authentication::Kerberos),
                _ => Err("expected `simple` or `kerberos`".into()),
            }
        })
    }

    /// Whether servers check who may call them at all.
    pub fn authorization(&self) -> Result<bool, ConfigError> {
        self.flag("hadoop.security.authorization")
    }

    /// The protections we accept, the preferred one first. `None` when nobody chose: then the strongest a
    /// server offers is best.
    pub fn protections(&self) -> Result<Option<Vec<Quality>>, ConfigError> {
        let key = "hadoop.rpc.protection";
        if self.origin(key) == Some(&super::Origin::Default) {
            return Ok(None);
        }
        self.parsed(key, |text| {
            let mut found: Vec<Quality> = Vec::new();
            for name in value::list(text) {
                let protection = name.parse().map_err(|_| {
                    "expected some of `authentication`, `integrity`, `privacy`".to_owned()
                })?;
                if !found.contains(&protection) {
                    found.push(protection);
                }
            }
            match found.is_empty() {
                true => Err("names nothing".into()),
                false => Ok(found),
            }
        })
    }

    /// Whether tokens name their servers by address rather than by name.
    pub fn token_services_use_ip(&self) -> Result<bool, ConfigError> {
        self.flag("hadoop.security.token.service.use_ip")
    }

    /// Whether a secure client may talk to a server that is not.
    pub fn fallback_to_simple_allowed(&self) -> Result<bool, ConfigError> {
        self.flag("ipc.client.fallback-to-simple-auth-allowed")
    }

    /// The SASL mechanism for tokens; servers before 3.5 know only `DIGEST-MD5`.
    pub fn token_mechanism(&self) -> Result<String, ConfigError> {
        self.required("hadoop.security.sasl.mechanism", |text| Ok(text.to_owned()))
    }

    /// The rules that make short user names of Kerberos names, as text; `None`: Hadoop's own.
    pub fn auth_to_local_rules(&self) -> Result<Option<String>, ConfigError> {
        self.text("hadoop.security.auth_to_local")
    }

    /// Sizes and times of calls.
    pub fn rpc(&self) -> Result<RpcSettings, ConfigError> {
        let small = |key: &str| {
            self.required(key, |text| {
                u32::try_from(value::count(text)?).map_err(|_| "too large".into())
            })
        };
        // Hadoop takes 0, and what is below it, for "without end".
        let limit = |key: &str| -> Result<Option<Duration>, ConfigError> {
            Ok(self.millis_or_unlimited(key)?.filter(|time| !time.is_zero()))
        };
        let pings = self.flag("ipc.client.ping")?;
        Ok(RpcSettings {
            request_bytes_max: self.bytes("ipc.maximum.data.length")?,
            response_bytes_max: self.bytes("ipc.maximum.response.length")?,
            connect_timeout: limit("ipc.client.connect.timeout")?,
            connect_retries: small("ipc.client.connect.max.retries")?,
            connect_retries_on_timeout: small("ipc.client.connect.max.retries.on.timeouts")?,
            connect_retry_interval: self.millis("ipc.client.connect.retry.interval")?,
            call_timeout: limit("ipc.client.rpc-timeout.ms")?,
            ping_interval: match pings {
                true => limit("ipc.ping.interval")?,
                false => None,
            },
            idle_timeout: self.millis("ipc.client.connection.maxidletime")?,
            no_delay: self.flag("ipc.client.tcpnodelay")?,
        })
    }

    /// Whether web pages ask for SPNEGO (`hadoop.http.authentication.type`).
    pub fn web_authentication(&self) -> Result<Authentication, ConfigError> {
        self.required("hadoop.http.authentication.type", |text| {
            Ok(match text.eq_ignore_ascii_case("kerberos") {
                true => Authentication::Kerberos,
                // Anything else is `simple`, or a class of the site's own that we cannot know.
                false => Authentication::Simple,
            })
        })
    }

    /// Who a server must be, from a key and `<key>.pattern`, which takes its place. `None` when nobody
    /// said: then no server is trusted.
    pub(super) fn server_principal(
        &self,
        key: &str,
    ) -> Result<Option<ServerPrincipal>, ConfigError> {
        let name = self.text(key)?;
        let key = format!("{key}.pattern");
        // The default for NameNodes takes any server at all, which nobody meant who gave a name.
        if name.is_some() && self.origin(&key) == Some(&super::Origin::Default) {
            return Ok(name.map(ServerPrincipal::Exact));
        }
        match self.text(&key)? {
            Some(pattern) => Ok(Some(ServerPrincipal::Pattern(pattern))),
            None => Ok(name.map(ServerPrincipal::Exact)),
        }
    }
}
