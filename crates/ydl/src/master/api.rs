//! HTTP API of the master: authorization, and timeouts of long polls.

mod logs;

use super::{
    inbox::{Kept, Letter, Question},
    kv::{OnlyIf, Op, Wait},
    links::Connection,
    store::Wish,
};
use hyper::Method;
use serde::de::DeserializeOwned;
use std::{sync::Arc, time::Duration};
use tokio::{
    net::TcpListener,
    sync::{mpsc, oneshot},
    time::timeout,
};
use ydl_core::{ContainerId, RoleName};
use ydl_net::{
    request::{Head, Reply, Request},
    secret::{Scope, Secret},
    server::{self, Limits},
};
use ydl_proto::kv::Blob;
use ydl_proto::messages::{self as talk, HEARTBEAT_MS, NOT_DURABLE};
use ydl_rendezvous::link::codec::decode_all;

/// Maximum wait of a request. Clients ask again.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Timeout of requests that do not wait. The master is never busy for so long.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Default maximum of entries or events in one response.
const PAGE: usize = 1000;

/// Serves the API until `stop`.
pub async fn serve(
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    secret: Arc<Secret>,
    letters: mpsc::Sender<Letter>,
    stop: impl Future<Output = ()>,
) {
    server::serve(
        listener,
        tls,
        Limits::default(),
        stop,
        move |head| admit(&secret, head),
        move |scope, request| answer(scope, request, letters.clone()),
    )
    .await;
}

/// Authenticates a request by its token.
pub(super) fn admit(secret: &Secret, head: &Head) -> Result<Scope, Reply> {
    let known = head.bearer.as_ref().and_then(|token| secret.verify(token.as_str()));
    let Some(scope) = known else {
        let hint = "the job's owner finds its token in the job's directory".to_owned();
        return Err(Reply::error(401, "this token does not open this job", Some(hint)));
    };
    let path = head.path();
    let allowed = match scope {
        Scope::Agent(_) => {
            ["sync", "log-reply", "port-forward-reply", "tokens", "links"].as_slice()
        }
        Scope::Program(_) => &["kv", "watch", "events", "metrics"],
        Scope::Client => {
            &["kv", "watch", "events", "view", "history", "kill", "scale", "logs", "port-forward"]
        }
        Scope::Viewer => &["view", "history", "logs"],
    };
    let allowed = path.get(1).is_some_and(|door| allowed.contains(door));
    if scope == Scope::Viewer && !allowed {
        let hint = "its owner can name you in `acls.modify`".to_owned();
        return Err(Reply::error(403, "you may look at this job, and not change it", Some(hint)));
    }
    if path.first() != Some(&"v1") || !allowed {
        return Err(Reply::error(403, "this token does not open this door", None));
    }
    Ok(scope)
}

/// Answers one request through the inbox.
pub(super) async fn answer(scope: Scope, request: Request, inbox: mpsc::Sender<Letter>) -> Reply {
    let (question, wait) = match read(scope, request) {
        Ok(read) => read,
        Err(reply) => return reply,
    };
    let is_agent = matches!(question, Question::Sync(..));
    let mut listening = Listening(is_agent.then(|| inbox.clone()));
    let may_wait = question.may_wait();
    let says_something = question.says_something();
    let wait = wait.filter(|_| may_wait).unwrap_or(ANSWER_MAX);
    let (answer, mut answered) = oneshot::channel();
    let kept = Kept::default();
    let letter = Letter { question, answer, kept: kept.clone() };
    // While the master cannot write its journal, it takes no requests and the inbox fills up. Agents must still
    // learn that the master is alive.
    let asked = async {
        match inbox.send(letter).await {
            Ok(()) => (&mut answered).await.ok(),
            Err(_) => Some(over().into()),
        }
    };
    let asked = timeout(wait, asked).await;
    // Close the channel first: the sender then sees that a later response is not delivered, and the last
    // response is not lost.
    answered.close();
    let answered = match (asked, answered.try_recv()) {
        (Err(_), Ok(answer)) => Ok(Some(answer)),
        (asked, _) => asked,
    };
    listening.0 = None;
    match answered {
        Ok(Some(answer)) => answer.into(),
        // An agent that receives "no change" would not repeat its reports.
        Ok(None) | Err(_) if says_something && !kept.is_set() => {
            Reply::error(NOT_DURABLE, "the master has not written it down yet", None)
        }
        // Nothing has changed, or the master is ending: the client asks again.
        Ok(None) | Err(_) if may_wait => Reply::empty(),
        Ok(None) => over(),
        Err(_) => Reply::error(503, "the master has not answered in time", None),
    }
}

/// Pending request of an agent. When it is dropped unanswered, the agent has disconnected, which hints that its
/// container exited.
struct Listening(Option<mpsc::Sender<Letter>>);

impl Drop for Listening {
    fn drop(&mut self) {
        let Some(inbox) = self.0.take() else {
            return;
        };
        let letter = Letter {
            question: Question::Gone,
            answer: oneshot::channel().0,
            kept: Kept::default(),
        };
        // If the inbox is full, the master is busy and polls in any case.
        let _ = inbox.try_send(letter);
    }
}

fn over() -> Reply {
    Reply::error(410, "the job is over", None)
}

/// Parses a request and its maximum wait.
fn read(scope: Scope, request: Request) -> Result<(Question, Option<Duration>), Reply> {
    let Request { head, body } = request;
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
    let limit = || number("limit", PAGE as u64).map(|limit| limit as usize);
    let container = by.as_deref().map(ContainerId::from);
    let store = |wish| {
        let by = container.clone();
        Question::Store { by, wish }
    };
    let question = match (&head.method, &path[1..]) {
        (&Method::POST, ["sync"]) => {
            let container = ContainerId::from(by.unwrap_or_default());
            let beat = Duration::from_millis(HEARTBEAT_MS);
            let beat = wait.map_or(beat, |wait| wait.min(beat));
            return Ok((Question::Sync(container, parse(&body)?), Some(beat)));
        }
        (&Method::GET, ["tokens"]) => Question::Tokens(ContainerId::from(by.unwrap_or_default())),
        (&Method::GET, ["view"]) => Question::View { seen: number("seen", 0)? },
        (&Method::GET, ["history"]) => Question::Facts { after: number("after", 0)? },
        (&Method::GET, ["logs"]) => {
            let (question, wait) = logs::wish(&head, wait)?;
            return Ok((question, Some(wait)));
        }
        (&Method::POST, ["log-reply"]) => {
            let container = ContainerId::from(by.unwrap_or_default());
            logs::found(container, &head, body)?
        }
        (&Method::POST, ["port-forward"]) => logs::open(&head)?,
        (&Method::POST, ["port-forward-reply"]) => {
            let container = ContainerId::from(by.unwrap_or_default());
            logs::opened(container, &head, &body)?
        }
        (&Method::POST | &Method::GET, ["links"]) => {
            let container = ContainerId::from(by.unwrap_or_default());
            let round = number("round", 0)?.try_into();
            let at = Connection {
                round: round.map_err(|_| bad("there is no such round"))?,
                number: number("connection", 0)?,
            };
            match head.method {
                Method::GET => Question::Listen { container, at },
                _ => Question::Links {
                    container,
                    at,
                    ups: decode_all(&body).map_err(|error| bad(error.to_string()))?,
                },
            }
        }
        (&Method::POST, ["metrics"]) => Question::Metrics {
            container: ContainerId::from(by.unwrap_or_default()),
            said: parse(&body)?,
        },
        (&Method::POST, ["kill"]) => Question::Kill(parse(&body)?),
        (&Method::POST, ["scale"]) => {
            let talk::Scale { role, instances } = parse(&body)?;
            Question::Scale { role: RoleName::from(role), instances }
        }
        (&Method::GET, ["kv"]) => {
            let (prefix, after) = (text("prefix").unwrap_or_default(), text("after_key"));
            store(Wish::List { prefix, after, limit: limit()? })
        }
        (&Method::DELETE, ["kv"]) => match text("prefix") {
            Some(prefix) => store(Wish::Do(Op::DeletePrefix { prefix })),
            None => return Err(bad("which keys? name a key or a `prefix`")),
        },
        (&Method::GET, ["kv", ..]) => store(Wish::Get { key: head.rest(2), wait: wait.is_some() }),
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
            store(Wish::Do(Op::Put { key: head.rest(2), value, owner, only_if }))
        }
        (&Method::DELETE, ["kv", ..]) => store(Wish::Do(Op::Delete { key: head.rest(2) })),
        (&Method::GET, ["watch"]) => store(Wish::Watch(Wait::Changes {
            prefix: text("prefix").unwrap_or_default(),
            after: number("after", 0)?,
        })),
        (&Method::POST, ["events", ..]) => {
            let data = Blob::from(body.as_slice());
            store(Wish::Do(Op::Emit { name: head.rest(2), data, by }))
        }
        (&Method::GET, ["events"]) => {
            let (after, name) = (number("after", 0)?, text("name"));
            store(match wait {
                Some(_) => Wish::Watch(Wait::Events { after, name }),
                None => Wish::Events { after, name, limit: limit()? },
            })
        }
        (method, _) => {
            let what = format!("there is no `{method} /{}`", path.join("/"));
            return Err(Reply::error(404, what, None));
        }
    };
    Ok((question, wait))
}

fn bad(what: impl Into<String>) -> Reply {
    Reply::error(400, what, None)
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Reply> {
    serde_json::from_slice(body).map_err(|error| bad(format!("cannot read the request: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ydl_proto::messages::{AgentReport, Sync};

    fn request(path: &str, body: &impl serde::Serialize) -> Request {
        let query = [("wait_ms".to_owned(), "20".to_owned())].into();
        let head = Head {
            method: Method::POST,
            segments: vec!["v1".to_owned(), path.to_owned()],
            query,
            bearer: None,
            content_type: None,
            peer: ([127, 0, 0, 1], 1).into(),
        };
        let body = serde_json::to_vec(body).expect("JSON");
        Request { head, body }
    }

    /// A master that waits for its disks takes no requests, so its inbox fills up.
    #[tokio::test]
    async fn agents_hear_that_their_master_is_there_though_it_can_take_nothing_in() {
        let (letters, inbox) = mpsc::channel(1);
        let sync = |reports| Sync { reports, tokens: 0, last_request: 0, order: 7, usage: None };
        let agent = || Scope::Agent("c1".to_owned());
        for _ in 0..3 {
            let quiet = request("sync", &sync(Vec::new()));
            let reply = answer(agent(), quiet, letters.clone()).await;
            assert_eq!(reply.status, 204);
            let started = vec![AgentReport::Started { round: 1 }];
            let reply = answer(agent(), request("sync", &sync(started)), letters.clone()).await;
            assert_eq!(reply.status, NOT_DURABLE, "it is said again");
        }
        drop(inbox);
        let reply = answer(agent(), request("sync", &sync(Vec::new())), letters).await;
        assert_eq!(reply.status, 410, "the job is over");
    }
}
