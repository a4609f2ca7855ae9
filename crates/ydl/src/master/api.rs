//! HTTP API of the master: authorization, and timeouts of long polls.

mod forward;
mod logs;

use super::{
    inbox::{DurableFlag, Envelope, JobChange, MasterRequest},
    kv::{OnlyIf, Op, Wait},
    kv_service::KvRequest,
    links::SessionId,
};
use hyper::Method;
use serde::de::DeserializeOwned;
use std::{str::FromStr, sync::Arc, time::Duration};
use tokio::{
    net::TcpListener,
    sync::{mpsc, oneshot},
    time::timeout,
};
use ydl_core::{ContainerId, RoleName, TaskId};
use ydl_net::{
    request::{Head, Reply, Request as HttpRequest},
    secret::{Scope, Secret},
    server::{self, Limits},
};
use ydl_proto::kv::Blob;
use ydl_proto::messages::{HEARTBEAT_MS, NOT_DURABLE, ProgressReport, Scale};
use ydl_proto::version::{VERSION_HINT, check_protocol};
use ydl_rendezvous::link::codec::decode_all;

/// Maximum wait of a request. Clients ask again.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Timeout of requests that do not wait. A master that cannot write its journal exceeds it; the requester gets 503 and repeats
/// the request.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// Default maximum of entries or events in one response.
const PAGE_MAX: usize = 1000;

/// Endpoints for programs.
const PUBLIC: &[&str] = &["kv", "watch", "events", "metrics", "tasks", "spec", "end", "progress"];
/// Endpoints for the owner of the job.
const OWNER: &[&str] = &[
    "kv",
    "watch",
    "events",
    "tasks",
    "spec",
    "end",
    "progress",
    "view",
    "history",
    "kill",
    "scale",
    "logs",
    "port-forward",
];

/// Serves the API until `stop`.
pub async fn serve(
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    secret: Arc<Secret>,
    requests: mpsc::Sender<Envelope>,
    stop: impl Future<Output = ()>,
) {
    server::serve(
        listener,
        Some(tls),
        Limits::default(),
        stop,
        move |head| admit(&secret, head),
        move |scope, request| respond(scope, request, requests.clone()),
    )
    .await;
}

/// Authenticates a request by its token.
pub(super) fn admit(secret: &Secret, head: &Head) -> Result<Scope, Reply> {
    let scope = head.bearer.as_ref().and_then(|token| secret.verify(token.as_str()));
    let Some(scope) = scope else {
        let hint = "the token of the job's owner is in the job's directory".to_owned();
        return Err(Reply::error(401, "unknown token", Some(hint)));
    };
    let path = head.path();
    let allowed = match scope {
        Scope::Agent(_) => {
            ["sync", "log-reply", "port-forward-reply", "tokens", "links"].as_slice()
        }
        Scope::Program(_) => PUBLIC,
        Scope::Client => OWNER,
        Scope::Viewer => &["view", "history", "logs"],
    };
    let allowed = path.get(1).is_some_and(|endpoint| allowed.contains(endpoint));
    if scope == Scope::Viewer && !allowed {
        let hint = "ask the owner to add you to `acls.modify`".to_owned();
        return Err(Reply::error(
            403,
            "permission denied: viewers cannot change this job",
            Some(hint),
        ));
    }
    if path.first() != Some(&"v1") || !allowed {
        return Err(Reply::error(403, "token not authorized for this endpoint", None));
    }
    check_version(head, path.get(1).copied().unwrap_or_default())?;
    Ok(scope)
}

/// Rejects clients and agents of another version. The endpoints for programs are public and `/v1` is their version, so
/// requests to them may lack the header.
fn check_version(head: &Head, endpoint: &str) -> Result<(), Reply> {
    let is_public = PUBLIC.contains(&endpoint);
    if is_public && head.version.is_none() {
        return Ok(());
    }
    check_protocol(head.version.as_deref()).map_err(|why| {
        let what = format!("the master rejects the request: {why}");
        Reply::error(400, what, Some(VERSION_HINT.to_owned()))
    })
}

/// Answers one request through the inbox.
pub(super) async fn respond(
    scope: Scope,
    request: HttpRequest,
    inbox: mpsc::Sender<Envelope>,
) -> Reply {
    let (request, wait) = match parse_request(scope, request) {
        Ok(read) => read,
        Err(reply) => return reply,
    };
    let is_agent = matches!(request, MasterRequest::Sync(..));
    let mut pending = PendingSync(is_agent.then(|| inbox.clone()));
    let may_time_out = request.may_time_out();
    let must_persist = request.must_persist();
    let wait = wait.filter(|_| may_time_out).unwrap_or(RESPONSE_TIMEOUT);
    let (respond_to, mut response) = oneshot::channel();
    let durable = DurableFlag::default();
    let envelope = Envelope { request, respond_to, durable: durable.clone() };
    // While the master cannot write its journal, it takes no requests and the inbox fills up. Agents must still
    // learn that the master is alive.
    let handled = async {
        match inbox.send(envelope).await {
            Ok(()) => (&mut response).await.ok(),
            Err(_) => Some(job_over().into()),
        }
    };
    let handled = timeout(wait, handled).await;
    // Close the channel first: the sender then sees that a later response is not delivered, and the last
    // response is not lost.
    response.close();
    let response = match (handled, response.try_recv()) {
        (Err(_), Ok(response)) => Ok(Some(response)),
        (handled, _) => handled,
    };
    pending.0 = None;
    match response {
        Ok(Some(response)) => response.into(),
        // An agent that receives "no change" would not repeat its reports.
        Ok(None) | Err(_) if must_persist && !durable.is_set() => {
            Reply::error(NOT_DURABLE, "the master has not persisted the request yet", None)
        }
        // Nothing has changed, or the master is ending: the client asks again.
        Ok(None) | Err(_) if may_time_out => Reply::empty(),
        Ok(None) => job_over(),
        Err(_) => Reply::error(503, "the master did not answer in time", None),
    }
}

/// Pending request of an agent. When it is dropped unanswered, the agent has disconnected, which hints that its
/// container exited; or the agent has news and sends a new request, and the early poll is harmless.
struct PendingSync(Option<mpsc::Sender<Envelope>>);

impl Drop for PendingSync {
    fn drop(&mut self) {
        let Some(inbox) = self.0.take() else {
            return;
        };
        let envelope = Envelope {
            request: MasterRequest::Disconnected,
            respond_to: oneshot::channel().0,
            durable: DurableFlag::default(),
        };
        // If the inbox is full, the master is busy and polls in any case.
        let _ = inbox.try_send(envelope);
    }
}

fn job_over() -> Reply {
    Reply::error(410, "the job is over", None)
}

/// Parses a request and its maximum wait.
fn parse_request(
    scope: Scope,
    request: HttpRequest,
) -> Result<(MasterRequest, Option<Duration>), Reply> {
    let HttpRequest { head, body } = request;
    let path = head.path();
    let wait = match head.query.get("wait_ms") {
        Some(text) => {
            let ms = text.parse().map_err(|_| bad(format!("`wait_ms={text}` is not a number")))?;
            Some(Duration::from_millis(ms).min(WAIT_MAX))
        }
        None => None,
    };
    let number = |name: &str, default: u64| match head.query.get(name) {
        Some(text) => text.parse().map_err(|_| bad(format!("`{name}={text}` is not a number"))),
        None => Ok(default),
    };
    let text = |name: &str| head.query.get(name).cloned();
    let by = match &scope {
        Scope::Agent(container) | Scope::Program(container) => Some(container.clone()),
        Scope::Client | Scope::Viewer => None,
    };
    let limit = || number("limit", PAGE_MAX as u64).map(|limit| limit as usize);
    let container = by.as_deref().map(ContainerId::from);
    let kv = |request| {
        let by = container.clone();
        MasterRequest::Kv { by, request }
    };
    let change = |change| {
        let by = container.clone();
        MasterRequest::Change { by, change }
    };
    let request = match (&head.method, &path[1..]) {
        (&Method::POST, ["sync"]) => {
            let container = ContainerId::from(by.unwrap_or_default());
            let interval = Duration::from_millis(HEARTBEAT_MS);
            let interval = wait.map_or(interval, |wait| wait.min(interval));
            return Ok((MasterRequest::Sync(container, parse(&body)?), Some(interval)));
        }
        (&Method::GET, ["tokens"]) => {
            MasterRequest::Tokens(ContainerId::from(by.unwrap_or_default()))
        }
        (&Method::GET, ["view"]) => MasterRequest::View { seen: number("seen", 0)? },
        (&Method::GET, ["history"]) => MasterRequest::History { after: number("after", 0)? },
        (&Method::GET, ["logs"]) => {
            let (request, wait) = logs::parse_request(&head, wait)?;
            return Ok((request, Some(wait)));
        }
        (&Method::POST, ["log-reply"]) => {
            let container = ContainerId::from(by.unwrap_or_default());
            logs::parse_reply(container, &head, body)?
        }
        (&Method::POST, ["port-forward"]) => forward::parse_request(&head)?,
        (&Method::POST, ["port-forward-reply"]) => {
            let container = ContainerId::from(by.unwrap_or_default());
            forward::parse_reply(container, &head, &body)?
        }
        (&Method::POST | &Method::GET, ["links"]) => {
            let container = ContainerId::from(by.unwrap_or_default());
            let round = number("round", 0)?.try_into();
            let session = SessionId {
                round: round.map_err(|_| bad("invalid `round`"))?,
                number: number("session", 0)?,
            };
            match head.method {
                Method::GET => MasterRequest::ListenLinks { container, session },
                _ => MasterRequest::Links {
                    container,
                    session,
                    frames: decode_all(&body).map_err(|error| bad(error.to_string()))?,
                },
            }
        }
        (&Method::POST, ["metrics"]) => MasterRequest::Metrics {
            container: ContainerId::from(by.unwrap_or_default()),
            report: parse(&body)?,
        },
        (&Method::POST, ["kill"]) => MasterRequest::Kill(parse(&body)?),
        (&Method::POST, ["scale"]) => {
            let Scale { role, instances } = parse(&body)?;
            MasterRequest::Scale { role: RoleName::from(role), instances }
        }
        (&Method::GET, ["tasks"]) => MasterRequest::Tasks,
        (&Method::GET, ["spec"]) => MasterRequest::Spec,
        (&Method::POST, ["tasks"]) => change(JobChange::AddTask(parse(&body)?)),
        (&Method::DELETE, ["tasks", task]) => {
            let id = task.parse().map_err(|_| bad(format!("`{task}` is not a task")))?;
            change(JobChange::StopTask(id))
        }
        (&Method::POST, ["end"]) => change(JobChange::End(parse(&body)?)),
        (&Method::PUT, ["progress"]) => {
            let ProgressReport { progress } = parse(&body)?;
            if !(0.0..=1.0).contains(&progress) {
                return Err(bad(format!("progress is from 0 to 1, not {progress}")));
            }
            change(JobChange::Progress(progress))
        }
        (&Method::POST, ["kv"]) => kv(KvRequest::Apply(Op::Transact(parse(&body)?))),
        (&Method::GET, ["kv"]) => {
            let (prefix, after) = (text("prefix").unwrap_or_default(), text("after_key"));
            kv(KvRequest::List { prefix, after, limit: limit()? })
        }
        (&Method::DELETE, ["kv"]) => match text("prefix") {
            Some(prefix) => kv(KvRequest::Apply(Op::DeletePrefix { prefix })),
            None => return Err(bad("missing key or parameter `prefix`")),
        },
        (&Method::GET, ["kv", ..]) => {
            kv(KvRequest::Get { key: head.rest(2), wait: wait.is_some() })
        }
        (&Method::PUT, ["kv", ..]) => {
            let only_if = match text("if").as_deref() {
                None => None,
                Some("absent") => Some(OnlyIf::Absent),
                Some(revision) => Some(OnlyIf::Revision(
                    revision.parse().map_err(|_| bad("`if` is `absent` or a revision"))?,
                )),
            };
            let owner = by.filter(|_| head.query.contains_key("owned"));
            let value = Blob::from(body.as_slice());
            kv(KvRequest::Apply(Op::Put { key: head.rest(2), value, owner, only_if }))
        }
        (&Method::DELETE, ["kv", ..]) => kv(KvRequest::Apply(Op::Delete { key: head.rest(2) })),
        (&Method::GET, ["watch"]) => kv(KvRequest::Watch(Wait::Changes {
            prefix: text("prefix").unwrap_or_default(),
            after: number("after", 0)?,
        })),
        (&Method::POST, ["events", ..]) => {
            let data = Blob::from(body.as_slice());
            kv(KvRequest::Apply(Op::Emit { name: head.rest(2), data, by }))
        }
        (&Method::GET, ["events"]) => {
            let (after, name) = (number("after", 0)?, text("name"));
            kv(match wait {
                Some(_) => KvRequest::Watch(Wait::Events { after, name }),
                None => KvRequest::Events { after, name, limit: limit()? },
            })
        }
        (method, _) => {
            let what = format!("no such endpoint: `{method} /{}`", path.join("/"));
            return Err(Reply::error(404, what, None));
        }
    };
    Ok((request, wait))
}

fn task(head: &Head) -> Result<TaskId, Reply> {
    let task = head.query.get("task").map_or("", String::as_str);
    TaskId::from_str(task)
        .map_err(|_| bad(format!("invalid task `{task}`: expected a task such as `worker:0`")))
}

/// Returns the number of the request that an agent replies to.
fn request_id(head: &Head) -> Result<u64, Reply> {
    number(head, "request")?.ok_or_else(|| bad("missing parameter `request`"))
}

fn number<T: FromStr>(head: &Head, name: &str) -> Result<Option<T>, Reply> {
    let text = head.query.get(name);
    text.map(|text| text.parse()).transpose().map_err(|_| bad(format!("`{name}` is not a number")))
}

fn bad(what: impl Into<String>) -> Reply {
    Reply::error(400, what, None)
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Reply> {
    serde_json::from_slice(body).map_err(|error| bad(format!("cannot read the request: {error}")))
}

#[cfg(test)]
mod tests;
