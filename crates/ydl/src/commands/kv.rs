//! `ydl kv`: a job's key-value store and events, from inside a task or by the job's owner.

use crate::{
    cli::{self, GlobalArgs, KvCommand},
    client::{
        jobs::JobStatus,
        master_client::{self, MasterClient, block_on, settled_status},
        resolve::resolve_job,
    },
    terminal::{self, clean},
};
use hyper::{Method, StatusCode};
use std::{
    io::{self, IsTerminal, Read},
    time::{Duration, Instant},
};
use ydl_jobfile::span;
use ydl_net::{
    client::{CallError, Payload},
    text::percent,
};
use ydl_os::report::{Exit, Report};
use ydl_proto::kv::{Change, Changes, Entries, Entry, Event, Events, REVISION_HEADER};

/// Long-poll timeout of one request; longer waits take several requests.
const WAIT: Duration = Duration::from_secs(20);
/// Bytes read of a value: one more than the master accepts, so that it rejects a larger value.
const VALUE_BYTES_MAX: u64 = (16 << 20) + 1;
/// Delay before a long poll that returned early is repeated.
const RETRY_DELAY: Duration = Duration::from_millis(50);

/// Exit code for a missing key or a failed condition.
const NOT_FOUND_OR_CONFLICT: Exit = Exit::Program(1);

/// Runs a command on the store.
pub(crate) fn run(args: cli::KvArgs, global: GlobalArgs) -> Result<Exit, Report> {
    block_on(async {
        let store =
            KvClient { master: connect(args.job.as_deref(), global).await?, json: global.json };
        match args.command {
            KvCommand::Get { key, wait } => store.get(&key, wait.as_deref()).await,
            KvCommand::Put { key, value, if_absent, if_revision, owned } => {
                let mut conditions = Vec::new();
                if if_absent {
                    conditions.push("if=absent".to_string());
                }
                conditions.extend(if_revision.map(|revision| format!("if={revision}")));
                if owned {
                    conditions.push("owned=1".to_string());
                }
                store.put(&key, bytes(value)?, &conditions.join("&")).await
            }
            KvCommand::Ls { prefix } => store.ls(&prefix).await,
            KvCommand::Rm { key, prefix } => store.rm(&key, prefix).await,
            KvCommand::Watch { prefix, after, count } => store.watch(&prefix, after, count).await,
            KvCommand::Events { name, after, follow } => {
                store.events(name.as_deref(), after, follow).await
            }
            KvCommand::Emit { name, data } => store.emit(&name, bytes(data)?).await,
        }
    })
}

/// Connects to the master of the given job, or of the job whose task this process is.
async fn connect(job: Option<&str>, global: GlobalArgs) -> Result<MasterClient, Report> {
    let Some(name) = job else {
        return MasterClient::of_this_task()?.ok_or_else(|| {
            Report::bad_input("no job given, and this process is not a task of a job")
                .hint("write `ydl kv --job JOB …`; `ydl ls` lists the jobs")
        });
    };
    let (job, _mirror) = resolve_job(Some(name), global).await?.into_full()?;
    match settled_status(&job).await {
        JobStatus::Running(address) => MasterClient::to(&job.dir, &address),
        JobStatus::Starting => Err(master_client::no_master(&job)),
        JobStatus::Finished(_) | JobStatus::Lost | JobStatus::NoResult(_) => {
            let what = format!("`{}` has ended: its key-value store is gone", job.id());
            Err(Report::new(Exit::Unreachable, what))
        }
    }
}

/// Returns the value of an argument, or reads it from stdin.
fn bytes(argument: Option<String>) -> Result<Vec<u8>, Report> {
    let Some(text) = argument else {
        let mut bytes = Vec::new();
        let read = io::stdin().lock().take(VALUE_BYTES_MAX).read_to_end(&mut bytes);
        read.map_err(|error| {
            Report::internal(format!("cannot read stdin: {}", ydl_os::reason(&error)))
        })?;
        return Ok(bytes);
    };
    Ok(text.into_bytes())
}

struct KvClient {
    master: MasterClient,
    json: bool,
}

impl KvClient {
    async fn get(&self, key: &str, wait: Option<&str>) -> Result<Exit, Report> {
        let timeout = match wait {
            Some(text) => {
                let span = span(text).map_err(|(what, hint)| Report::bad_input(what).hint(hint))?;
                Some(Duration::from_millis(span.0))
            }
            None => None,
        };
        let began = Instant::now();
        loop {
            let left = timeout.map(|timeout| timeout.saturating_sub(began.elapsed()).min(WAIT));
            let mut path = format!("/v1/kv/{}", percent(key));
            if let Some(left) = left {
                path += &format!("?wait_ms={}", left.as_millis());
            }
            let requested_at = Instant::now();
            let wait = left.unwrap_or_default();
            let response = self.master.call(Method::GET, &path, Payload::Nothing, wait).await;
            let response = response.map_err(report)?;
            if response.status != StatusCode::NO_CONTENT {
                if self.json {
                    let revision: Option<u64> =
                        response.header(REVISION_HEADER).and_then(|text| text.parse().ok());
                    let value = ydl_proto::kv::Blob::from(&response.body[..]);
                    terminal::print_json(&serde_json::json!({
                        "key": key, "value": value, "revision": revision,
                    }))?;
                } else {
                    terminal::print(&response.body)?;
                    // Keeps a shell prompt from following the value on its line.
                    if io::stdout().is_terminal() && !response.body.ends_with(b"\n") {
                        terminal::print("\n")?;
                    }
                }
                return Ok(Exit::Success);
            }
            if timeout.is_none_or(|timeout| began.elapsed() >= timeout) {
                let timeout = span_text(timeout.unwrap_or_default());
                let what = format!("key `{}` was not set within {timeout}", clean(key));
                return Err(Report::new(NOT_FOUND_OR_CONFLICT, what));
            }
            pause(requested_at).await;
        }
    }

    async fn put(&self, key: &str, value: Vec<u8>, conditions: &str) -> Result<Exit, Report> {
        let path = format!("/v1/kv/{}?{conditions}", percent(key));
        self.change(Method::PUT, &path, Payload::Raw(value.into())).await
    }

    async fn rm(&self, key: &str, prefix: bool) -> Result<Exit, Report> {
        let path = match prefix {
            true => format!("/v1/kv?prefix={}", percent(key)),
            false => format!("/v1/kv/{}", percent(key)),
        };
        self.change(Method::DELETE, &path, Payload::Nothing).await
    }

    async fn emit(&self, name: &str, data: Vec<u8>) -> Result<Exit, Report> {
        let path = format!("/v1/events/{}", percent(name));
        self.change(Method::POST, &path, Payload::Raw(data.into())).await
    }

    /// Sends a change to the store. Prints the response only as JSON.
    async fn change(&self, method: Method, path: &str, payload: Payload) -> Result<Exit, Report> {
        let response = self.master.call(method, path, payload, Duration::ZERO).await;
        let response = response.map_err(report)?;
        if self.json {
            terminal::print_json(&response.json::<serde_json::Value>().map_err(report)?)?;
        }
        Ok(Exit::Success)
    }

    /// Returns every entry with a prefix, and the store's revision.
    async fn entries(&self, prefix: &str) -> Result<(Vec<Entry>, u64), Report> {
        let mut all: Vec<Entry> = Vec::new();
        loop {
            let mut path = format!("/v1/kv?prefix={}", percent(prefix));
            if let Some(last) = all.last() {
                path += &format!("&after_key={}", percent(&last.key));
            }
            let page: Entries =
                self.request(&path, Duration::ZERO).await?.ok_or_else(empty_response)?;
            let more = page.more && !page.entries.is_empty();
            all.extend(page.entries);
            if !more {
                return Ok((all, page.revision));
            }
        }
    }

    async fn ls(&self, prefix: &str) -> Result<Exit, Report> {
        for entry in self.entries(prefix).await?.0 {
            self.print_entry(&entry)?;
        }
        Ok(Exit::Success)
    }

    fn print_entry(&self, entry: &Entry) -> Result<(), Report> {
        if self.json {
            return terminal::print_json(entry);
        }
        let value = clean(&String::from_utf8_lossy(&entry.value.0));
        terminal::print(format!("{}\t{value}\n", clean(&entry.key)))
    }

    async fn watch(
        &self,
        prefix: &str,
        after: Option<u64>,
        count: Option<u64>,
    ) -> Result<Exit, Report> {
        let mut left = count.unwrap_or(u64::MAX);
        let mut resync = after.is_none();
        let mut after = after.unwrap_or(0);
        while left > 0 {
            if std::mem::take(&mut resync) {
                let (entries, revision) = self.entries(prefix).await?;
                for entry in entries.into_iter().take(left.try_into().unwrap_or(usize::MAX)) {
                    self.print_change(&Change::Put(entry))?;
                    left -= 1;
                }
                after = revision;
                continue;
            }
            let wait = WAIT.as_millis();
            let path = format!("/v1/watch?prefix={}&after={after}&wait_ms={wait}", percent(prefix));
            let requested_at = Instant::now();
            match self.request(&path, WAIT).await? {
                Some(Changes::Current { revision, changes }) => {
                    after = revision;
                    for change in changes.iter().take(left.try_into().unwrap_or(usize::MAX)) {
                        self.print_change(change)?;
                        left -= 1;
                    }
                }
                Some(Changes::Resync { .. }) => resync = true,
                None => pause(requested_at).await,
            }
        }
        Ok(Exit::Success)
    }

    fn print_change(&self, change: &Change) -> Result<(), Report> {
        if self.json {
            return terminal::print_json(change);
        }
        match change {
            Change::Put(entry) => {
                let value = clean(&String::from_utf8_lossy(&entry.value.0));
                terminal::print(format!("put\t{}\t{value}\n", clean(&entry.key)))
            }
            Change::Deleted { key, .. } => terminal::print(format!("deleted\t{}\n", clean(key))),
        }
    }

    async fn events(&self, name: Option<&str>, after: u64, follow: bool) -> Result<Exit, Report> {
        let mut after = after;
        loop {
            let mut path = format!("/v1/events?after={after}");
            if let Some(name) = name {
                path += &format!("&name={}", percent(name));
            }
            let wait = if follow { WAIT } else { Duration::ZERO };
            if follow {
                path += &format!("&wait_ms={}", wait.as_millis());
            }
            let requested_at = Instant::now();
            let Some(page) = self.request::<Events>(&path, wait).await? else {
                pause(requested_at).await;
                continue;
            };
            if page.missed {
                terminal::message("note: older events were discarded");
            }
            for event in &page.events {
                self.print_event(event)?;
            }
            if !follow && page.events.is_empty() {
                return Ok(Exit::Success);
            }
            after = page.through.max(after);
        }
    }

    fn print_event(&self, event: &Event) -> Result<(), Report> {
        if self.json {
            return terminal::print_json(event);
        }
        let data = clean(&String::from_utf8_lossy(&event.data.0));
        terminal::print(format!("{}\t{}\t{data}\n", event.sequence, clean(&event.name)))
    }

    async fn request<T: serde::de::DeserializeOwned>(
        &self,
        path: &str,
        wait: Duration,
    ) -> Result<Option<T>, Report> {
        let response = self.master.call(Method::GET, path, Payload::Nothing, wait).await;
        let response = response.map_err(report)?;
        match response.status {
            StatusCode::NO_CONTENT => Ok(None),
            _ => response.json().map(Some).map_err(report),
        }
    }
}

fn report(error: CallError) -> Report {
    let is_condition = matches!(error, CallError::Refused { status: 404 | 409 | 412, .. });
    let report = master_client::call_report(error);
    if is_condition { Report { exit: NOT_FOUND_OR_CONFLICT, ..report } } else { report }
}

fn empty_response() -> Report {
    report(CallError::Protocol { what: "empty response".to_string() })
}

fn span_text(span: Duration) -> String {
    ydl_core::Span(span.as_millis() as u64).to_string()
}

/// Waits before a long poll that returned early is repeated.
async fn pause(requested_at: Instant) {
    if requested_at.elapsed() < WAIT / 2 {
        tokio::time::sleep(RETRY_DELAY).await;
    }
}
