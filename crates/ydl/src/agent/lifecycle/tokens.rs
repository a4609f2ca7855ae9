//! Replaces delegation tokens: a job may outlive those that its containers were started with.
//!
//! The master announces new tokens. They are fetched outside the loop and written to the files that the agent and its
//! program read before each connection.

use super::Agent;
use crate::agent::bootstrap::PROGRAM_CREDENTIALS;
use hyper::Method;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::{sync::oneshot, time::sleep};
use yarn_native::credentials::{Credentials, Format};
use ydl_net::client::Client;
use ydl_os::env;

/// Timeout of one request.
const CALL_MAX: Duration = Duration::from_secs(10);
/// Retries and their interval; afterwards the master announces the tokens again.
const ATTEMPTS: u32 = 5;
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Tokens of this container.
#[derive(Debug)]
pub(super) struct TokenRefresh {
    /// Number of the tokens that are present or being fetched.
    pub(super) number: u64,
    /// Number of the tokens that are present.
    held: u64,
    /// Result of the fetch in progress.
    pub(super) fetching: Option<oneshot::Receiver<bool>>,
    files: Vec<PathBuf>,
}

impl TokenRefresh {
    /// Tokens that the container in that directory was started with.
    pub(super) fn new(dir: &Path) -> TokenRefresh {
        let own = std::env::var_os(env::HADOOP_TOKEN_FILE_LOCATION).map(PathBuf::from);
        let program = dir.join(PROGRAM_CREDENTIALS);
        TokenRefresh {
            number: 0,
            held: 0,
            fetching: None,
            files: own.into_iter().chain([program]).collect(),
        }
    }
}

impl Agent {
    /// Handles the master's token number, which may be newer than ours.
    pub(super) fn on_tokens(&mut self, number: u64) {
        // The loop confirms the number meanwhile, or the master would repeat it with each reply.
        if number == 0 || number == self.tokens.number || self.tokens.fetching.is_some() {
            return;
        }
        self.tokens.number = number;
        let (done, fetching) = oneshot::channel();
        self.tokens.fetching = Some(fetching);
        let (client, files) = (Arc::clone(&self.master.client), self.tokens.files.clone());
        tokio::spawn(async move {
            // The receiver is gone if the agent is exiting.
            let _ = done.send(fetch(&client, &files).await);
        });
    }

    pub(super) fn on_tokens_fetched(&mut self, fetched: bool) {
        self.tokens.fetching = None;
        match fetched {
            true => self.tokens.held = self.tokens.number,
            // The master, perhaps a new one, announces the tokens again.
            false => self.tokens.number = self.tokens.held,
        }
    }
}

/// Fetches the newest tokens and writes them to their files; returns true on success.
async fn fetch(client: &Client, files: &[PathBuf]) -> bool {
    for _ in 0..ATTEMPTS {
        match try_fetch(client, files).await {
            Ok(()) => {
                tracing::info!("tokens replaced");
                return true;
            }
            Err(why) => tracing::warn!("cannot fetch new tokens: {why}"),
        }
        sleep(RETRY_DELAY).await;
    }
    false
}

async fn try_fetch(client: &Client, files: &[PathBuf]) -> Result<(), String> {
    let path = "/v1/tokens";
    let call = client.call(Method::GET, path, ydl_net::client::Payload::Nothing, CALL_MAX);
    let reply = call.await.map_err(|e| e.to_string())?;
    let newest = Credentials::from_bytes(&reply.body).map_err(|e| e.to_string())?;
    let files = files.to_vec();
    let replaced = tokio::task::spawn_blocking(move || replace_tokens(&newest, &files));
    replaced.await.map_err(|e| e.to_string())?
}

/// Replaces the tokens in each file atomically: concurrent readers see all old or all new ones.
fn replace_tokens(newest: &Credentials, files: &[PathBuf]) -> Result<(), String> {
    for file in files {
        let mut all = Credentials::read(file).map_err(|e| e.to_string())?;
        for (alias, token) in newest.tokens() {
            all.add(alias, token.clone());
        }
        all.write(file, Format::Writable).map_err(|e| e.to_string())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use yarn_native::Token;

    fn token(password: &str) -> Token {
        Token {
            identifier: b"user".to_vec(),
            password: password.as_bytes().to_vec().into(),
            kind: "HDFS_DELEGATION_TOKEN".into(),
            service: "nn:1".into(),
        }
    }

    #[test]
    fn new_tokens_replace_old_ones_and_keep_secrets() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tokens");
        let mut old = Credentials::default();
        old.add("nn:1", token("old"));
        old.add("else", token("else"));
        old.set_secret("users.own", b"theirs".to_vec());
        old.write(&file, Format::Writable).unwrap();
        let mut newest = Credentials::default();
        newest.add("nn:1", token("new"));
        newest.set_secret("users.own", b"not theirs".to_vec());
        replace_tokens(&newest, std::slice::from_ref(&file)).unwrap();
        let tokens = Credentials::read(&file).unwrap();
        assert_eq!(tokens.token("nn:1"), Some(&token("new")));
        assert_eq!(tokens.token("else"), Some(&token("else")));
        assert_eq!(tokens.secret("users.own").unwrap().expose(), b"theirs");
        let mode = file.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let absent = dir.path().join("none");
        assert!(replace_tokens(&newest, &[absent]).unwrap_err().contains("none`"));
    }
}
