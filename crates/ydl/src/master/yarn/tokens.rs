//! Renewal of file system tokens beyond their maximum lifetime, with a keytab.
//!
//! A ResourceManager renews the submitted tokens up to their maximum lifetime. With a keytab the master
//! fetches new ones well before that. It writes them to the container's token file and distributes them to its
//! agents.

use std::{
    convert::Infallible,
    path::PathBuf,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until, timeout},
};
use yarn_native::{
    Secret, Token,
    config::Config,
    credentials::{Credentials, Format, TokenIdentifier},
    namenode::{NameNodes, fetch_tokens},
    security::{Identity, TicketSource},
};
use ydl_core::JobSpec;
use ydl_os::{private, report::Report};
use ydl_proto::files::JobDir;
use ydl_storage::hdfs::{AgentTokens, EXPIRY_MARGIN, TOKEN_KIND, job_file_systems, short_name};

/// Timeout for all NameNodes together.
const FETCH_TIMEOUT: Duration = Duration::from_secs(120);
/// Time limit to replace expired tokens at the start.
const START_MAX: Duration = Duration::from_secs(300);
/// Timeout for cancelling tokens at the end.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);
/// Initial and maximum retry delay.
const RETRY_DELAY: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));
/// Minimum interval between renewals.
const MIN_INTERVAL: Duration = Duration::from_secs(5);
/// Default minimum lifetime of a token: a day.
const LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// Fetches new tokens.
pub(super) struct TokenRenewer {
    pub(super) identity: Identity,
    /// Owner and renewer of the tokens. Renewing a token returns its lifetime.
    owner: String,
    config: Config,
    systems: Vec<String>,
    /// Token file of this container.
    file: PathBuf,
    /// Channel that distributes new tokens.
    current: watch::Sender<AgentTokens>,
    /// Last tokens of this master.
    last: Vec<(String, Token)>,
}

impl TokenRenewer {
    /// Creates a renewer if the job has a keytab.
    pub(super) fn new(
        keytab: &Secret,
        spec: &JobSpec,
        staging: &str,
        config: &Config,
        dir: &JobDir,
        file: PathBuf,
        current: watch::Sender<AgentTokens>,
    ) -> Result<Option<TokenRenewer>, Report> {
        let Some(named) = &spec.cluster_options.keytab else {
            return Ok(None);
        };
        let path = dir.path().join("ydl.keytab");
        private::write(&path, keytab.expose()).map_err(|e| Report::internal(e.to_string()))?;
        let principal = named.principal.clone();
        let owners = owners(&current.borrow().credentials);
        let mut identity = Identity::kerberos(TicketSource::Keytab { path, principal });
        let owner = match owners {
            Some((owner, real_user)) => {
                // A proxy user submitted the job for its owner, and the keytab belongs to the proxy user.
                if !real_user.is_empty() {
                    identity = identity.acting_for(short_name(&owner));
                }
                short_name(&owner)
            }
            None => short_name(&named.principal),
        };
        Ok(Some(TokenRenewer {
            identity,
            owner,
            config: config.clone(),
            systems: job_file_systems(config, spec, staging)?,
            file,
            current,
            last: Vec::new(),
        }))
    }

    /// Fetches new tokens if the current ones are old: a master may start long after submission. Waits only if
    /// they have expired.
    pub(super) async fn begin(&mut self) -> Result<Instant, Report> {
        let now = since_1970();
        let life = self.config.hdfs_token_renew_interval().unwrap_or(LIFETIME);
        let (due, ends) = {
            let current = self.current.borrow();
            due(&current.credentials, life)
        };
        if due > now {
            return Ok(Instant::now() + (due - now));
        }
        let end = Instant::now() + START_MAX;
        loop {
            let why = match self.refresh().await {
                Ok(next) => return Ok(next),
                Err(why) => why,
            };
            tracing::error!("cannot fetch new tokens: {why}");
            if ends > since_1970() {
                return Ok(Instant::now() + RETRY_DELAY.0);
            }
            if Instant::now() + RETRY_DELAY.0 > end {
                let what = format!(
                    "the job's tokens have expired, and fetching new ones with its keytab failed: {why}"
                );
                return Err(Report::internal(what));
            }
            sleep(RETRY_DELAY.0).await;
        }
    }

    /// Fetches new tokens whenever they are due.
    pub(super) async fn keep_fresh(&mut self, mut next: Instant) -> Infallible {
        let mut delay = RETRY_DELAY.0;
        loop {
            sleep_until(next).await;
            next = match self.refresh().await {
                Ok(next) => {
                    tracing::info!("fetched new tokens");
                    delay = RETRY_DELAY.0;
                    next.max(Instant::now() + MIN_INTERVAL)
                }
                Err(why) => {
                    tracing::error!("cannot fetch new tokens: {why}");
                    let next = Instant::now() + delay;
                    delay = (delay * 2).min(RETRY_DELAY.1);
                    next
                }
            };
        }
    }

    /// Fetches new tokens. Returns when the next are due.
    async fn refresh(&mut self) -> Result<Instant, String> {
        let deadline = Instant::now() + FETCH_TIMEOUT;
        let fetched =
            fetch_tokens(&self.config, &self.systems, &self.identity, &self.owner, deadline);
        let fetched = fetched.await.map_err(|e| e.to_string())?;
        let wait = self.wait(&fetched, deadline).await;
        let mut own = Credentials::read(&self.file).map_err(|e| e.to_string())?;
        own.extend(fetched.clone());
        own.write(&self.file, Format::Writable).map_err(|e| e.to_string())?;
        let last = fetched.tokens();
        self.last = last.map(|(to, token)| (to.to_owned(), token.clone())).collect();
        self.current.send_modify(|current| {
            // Numbers of earlier masters are lower.
            let now = u64::try_from(since_1970().as_millis()).unwrap_or(u64::MAX);
            current.number = now.max(current.number + 1);
            current.credentials.extend(fetched);
        });
        Ok(Instant::now() + wait)
    }

    /// Returns how long new tokens last. Renewing one is the only way to learn its lifetime.
    async fn wait(&self, fetched: &Credentials, deadline: Instant) -> Duration {
        let life = self.config.hdfs_token_renew_interval().unwrap_or(LIFETIME);
        let now = since_1970();
        let mut wait = due(fetched, life).0.saturating_sub(now);
        for system in &self.systems {
            let namenodes = NameNodes::from_config(&self.config, system, self.identity.clone());
            let Ok(namenodes) = namenodes else { continue };
            let service = namenodes.token_service().await;
            let Some(token) = fetched.for_service(TOKEN_KIND, &service) else {
                continue;
            };
            match namenodes.renew_token(token, deadline).await {
                Ok(ends) => {
                    let left = ends.duration_since(SystemTime::now()).unwrap_or_default();
                    wait = wait.min(left * 3 / 4);
                }
                Err(error) => tracing::warn!("cannot learn the lifetime of tokens: {error}"),
            }
        }
        wait
    }

    /// Cancels the tokens of this master: the ResourceManager cancels the submitted ones only.
    pub(super) async fn cancel(self) {
        let deadline = Instant::now() + CANCEL_TIMEOUT;
        for system in &self.systems {
            let namenodes = NameNodes::from_config(&self.config, system, self.identity.clone());
            let Ok(namenodes) = namenodes else { continue };
            let Ok(service) = timeout(CANCEL_TIMEOUT, namenodes.token_service()).await else {
                continue;
            };
            let own = self.last.iter().find(|(_, token)| token.service == service);
            if let Some((_, token)) = own
                && let Err(error) = namenodes.cancel_token(token, deadline).await
            {
                tracing::debug!("cannot cancel a token: {error}");
            }
        }
    }
}

fn since_1970() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default()
}

/// Returns the owner of the file system tokens and the user that fetched them.
fn owners(credentials: &Credentials) -> Option<(String, String)> {
    match TokenIdentifier::decode(credentials.of_kind(TOKEN_KIND)?).ok()? {
        TokenIdentifier::Delegation { owner, real_user, .. } => Some((owner, real_user)),
        _ => None,
    }
}

/// Returns when to replace the tokens and when they expire, as time since 1970. `life` is the lifetime without
/// renewal.
fn due(credentials: &Credentials, life: Duration) -> (Duration, Duration) {
    // Without tokens none are needed.
    let (mut due, mut end) = (since_1970() + LIFETIME, Duration::MAX);
    for (_, token) in credentials.tokens() {
        if token.kind != TOKEN_KIND {
            continue;
        }
        let Ok(TokenIdentifier::Delegation { issued_ms, max_date_ms, .. }) =
            TokenIdentifier::decode(token)
        else {
            continue;
        };
        let at = |ms: i64| Duration::from_millis(ms.try_into().unwrap_or(0));
        let ends = at(max_date_ms).saturating_sub(EXPIRY_MARGIN);
        let most = ends.saturating_sub(at(issued_ms));
        due = due.min(at(issued_ms) + most.min(life) * 3 / 4);
        end = end.min(ends);
    }
    (due, end)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a token like a NameNode does, with a lifetime in ms since 1970.
    fn token(issued_ms: u64, max_date_ms: u64) -> Token {
        let mut identifier = vec![0];
        for text in ["alice", "yarn", ""] {
            identifier.push(text.len() as u8);
            identifier.extend_from_slice(text.as_bytes());
        }
        for number in [issued_ms, max_date_ms] {
            // Eight bytes in Hadoop's variable-length encoding.
            identifier.push((-120i8) as u8);
            identifier.extend_from_slice(&number.to_be_bytes());
        }
        identifier.extend_from_slice(&[1, 2]);
        Token {
            identifier,
            password: b"x".to_vec().into(),
            kind: TOKEN_KIND.into(),
            service: "nn:1".into(),
        }
    }

    fn credentials(token: Token) -> Credentials {
        let mut credentials = Credentials::default();
        credentials.add("nn:1", token);
        credentials
    }

    #[test]
    fn tokens_are_replaced_at_three_quarters_of_their_lifetime_without_renewal() {
        let ms = Duration::from_millis;
        let day = 24 * 3600 * 1000;
        let week = credentials(token(day, 8 * day));
        assert_eq!(due(&week, LIFETIME), (ms(day + day * 3 / 4), ms(8 * day) - EXPIRY_MARGIN));
        // A token with an hour of life is not used in its last minute.
        let hour = credentials(token(day, day + 3_600_000));
        let most = ms(3_600_000) - EXPIRY_MARGIN;
        assert_eq!(due(&hour, LIFETIME).0, ms(day) + most * 3 / 4);
        // A token that expired before it was issued is due at once.
        let expired = credentials(token(day, 0));
        assert_eq!(due(&expired, LIFETIME), (ms(day), Duration::ZERO));
        let (later, never) = due(&Credentials::default(), LIFETIME);
        assert!(later > since_1970() && never == Duration::MAX);
    }

    #[test]
    fn the_owner_is_read_from_the_tokens_themselves() {
        let week = credentials(token(1 << 40, 1 << 41));
        assert_eq!(owners(&week), Some(("alice".to_owned(), String::new())));
        assert_eq!(short_name("alice/host@REALM"), "alice");
        assert_eq!(owners(&Credentials::default()), None);
    }
}
