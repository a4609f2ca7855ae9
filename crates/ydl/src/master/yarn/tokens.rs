//! Tokens of file systems that outlive their first ones, where a keytab was given.
//!
//! A ResourceManager renews the tokens that a job was submitted with for as long as they may live at all. With a keytab
//! the master does not depend on that: it gets new ones well before, and leaves them where everything in this
//! container looks for tokens when it connects.

use crate::{hdfs::file_systems, jobs::JobDir, report::Report, wire::private};
use std::{
    path::PathBuf,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::time::{Instant, sleep};
use yarn_native::{
    Secret,
    config::Config,
    credentials::{Credentials, Format, Identifier},
    namenode::fetch_tokens,
    security::{Identity, Tickets},
};
use ydl_core::JobSpec;

/// How long all NameNodes together may take.
const FETCH_MAX: Duration = Duration::from_secs(120);
/// After a failure, the next try.
const PAUSE: Duration = Duration::from_secs(60);
/// As long as a token lives at least, if nobody says otherwise: a day.
const LIFE: Duration = Duration::from_secs(24 * 3600);

/// What new tokens are had with.
pub(super) struct Tokens {
    identity: Identity,
    config: Config,
    systems: Vec<String>,
    /// Where everybody in this container looks for tokens.
    file: PathBuf,
}

impl Tokens {
    /// What there is to get new tokens with.
    pub(super) fn new(
        keytab: &Secret,
        spec: &JobSpec,
        staging: &str,
        config: &Config,
        dir: &JobDir,
        file: PathBuf,
    ) -> Result<Option<Tokens>, Report> {
        let Some(named) = &spec.on_cluster.keytab else {
            return Ok(None);
        };
        let path = dir.path().join("ydl.keytab");
        private::write(&path, keytab.expose()).map_err(|e| Report::trouble(e.to_string()))?;
        let principal = named.principal.clone();
        Ok(Some(Tokens {
            identity: Identity::kerberos(Tickets::Keytab { path, principal }),
            config: config.clone(),
            systems: file_systems(spec, staging),
            file,
        }))
    }

    /// New tokens if the ones there are grow old; a master may be started long after its job was submitted.
    pub(super) async fn refresh_if_due(&self) {
        if self.wait().is_zero()
            && let Err(why) = self.refresh().await
        {
            tracing::warn!("no new tokens: {why}");
        }
    }

    /// Gets new tokens for as long as this is asked.
    pub(super) async fn keep_fresh(self) {
        loop {
            sleep(self.wait()).await;
            match self.refresh().await {
                Ok(()) => tracing::info!("there are new tokens"),
                Err(why) => tracing::error!("no new tokens: {why}"),
            }
            // Also where what was fetched does not live as long as it should.
            sleep(PAUSE).await;
        }
    }

    /// How long what there is will do.
    fn wait(&self) -> Duration {
        let life = self.config.hdfs_token_renew_interval().unwrap_or(LIFE);
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        match Credentials::read(&self.file) {
            Ok(credentials) => wait(&credentials, now.unwrap_or_default(), life),
            Err(_) => Duration::ZERO,
        }
    }

    async fn refresh(&self) -> Result<(), String> {
        let renewer = self.config.renewer().map_err(|e| e.to_string())?;
        let renewer = renewer.unwrap_or_default();
        let deadline = Instant::now() + FETCH_MAX;
        let fetched = fetch_tokens(
            &self.config,
            &self.systems,
            &self.identity,
            &renewer,
            deadline,
        );
        let fetched = fetched.await.map_err(|e| e.to_string())?;
        let mut all = Credentials::read(&self.file).map_err(|e| e.to_string())?;
        all.extend(fetched);
        all.write(&self.file, Format::Writable)
            .map_err(|e| e.to_string())
    }
}

/// How long these tokens of file systems will do, when each lives so long unless it is renewed: three quarters of that.
fn wait(credentials: &Credentials, now: Duration, life: Duration) -> Duration {
    let dues = credentials.tokens().filter_map(|(_, token)| {
        if token.kind != "HDFS_DELEGATION_TOKEN" {
            return None;
        }
        match Identifier::of(token).ok()? {
            Identifier::Delegation {
                issued_ms, ends_ms, ..
            } => {
                let issued = Duration::from_millis(issued_ms.try_into().ok()?);
                let most =
                    Duration::from_millis(ends_ms.saturating_sub(issued_ms).try_into().ok()?);
                Some(issued + most.min(life) * 3 / 4)
            }
            _ => None,
        }
    });
    // Where there is none, none is needed.
    dues.min().map_or(LIFE, |due| due.saturating_sub(now))
}
