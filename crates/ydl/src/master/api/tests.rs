//! Versions and responses of the API.

use super::*;
use ydl_net::{request::ErrorBody, secret::Token};
use ydl_proto::messages::{AgentReport, Sync};

fn request(path: &str, body: &impl serde::Serialize) -> HttpRequest {
    let query = [("wait_ms".to_owned(), "20".to_owned())].into();
    let head = Head {
        method: Method::POST,
        segments: vec!["v1".to_owned(), path.to_owned()],
        query,
        bearer: None,
        content_type: None,
        version: None,
        peer: ([127, 0, 0, 1], 1).into(),
    };
    let body = serde_json::to_vec(body).expect("JSON");
    HttpRequest { head, body }
}

fn head(path: &str, token: &Token, version: Option<&str>) -> Head {
    let HttpRequest { head, .. } = request(path, &());
    Head { bearer: Some(token.clone()), version: version.map(str::to_owned), ..head }
}

#[test]
fn requests_of_another_version_are_rejected_and_public_endpoints_need_none() {
    let secret = Secret::random().unwrap();
    let (agent, client) = (Scope::Agent("c1".to_owned()), Scope::Client);
    let program = Scope::Program("c1".to_owned());
    let admitted = |scope: &Scope, path: &str, version: Option<&str>| {
        let token = secret.token(scope).unwrap();
        admit(&secret, &head(path, &token, version)).map_err(|reply| {
            let body: ErrorBody = serde_json::from_slice(&reply.body).unwrap();
            (reply.status.as_u16(), body.error, body.hint)
        })
    };
    let endpoints = [
        (&agent, "sync"),
        (&agent, "links"),
        (&agent, "tokens"),
        (&agent, "log-reply"),
        (&agent, "port-forward-reply"),
        (&client, "view"),
        (&client, "history"),
        (&client, "kill"),
        (&client, "scale"),
        (&client, "logs"),
        (&client, "port-forward"),
    ];
    let rejected = |why: &str| {
        let what = format!("the master rejects the request: it {why}, this `ydl` uses version 1");
        Err((400, what, Some(VERSION_HINT.to_owned())))
    };
    for (scope, path) in endpoints {
        assert_eq!(admitted(scope, path, Some("1")), Ok(scope.clone()), "{path}");
        let other = admitted(scope, path, Some("2"));
        assert_eq!(other, rejected("uses protocol version 2"), "{path}");
        let missing = admitted(scope, path, None);
        assert_eq!(missing, rejected("has no protocol version"), "{path}");
    }
    for (scope, path) in [
        (&program, "kv"),
        (&program, "metrics"),
        (&program, "tasks"),
        (&program, "spec"),
        (&program, "end"),
        (&program, "progress"),
        (&client, "events"),
    ] {
        assert_eq!(admitted(scope, path, None), Ok(scope.clone()), "{path}");
        assert_eq!(admitted(scope, path, Some("1")), Ok(scope.clone()), "{path}");
        let other = admitted(scope, path, Some("2"));
        assert_eq!(other, rejected("uses protocol version 2"), "{path}");
    }
}

/// A master that waits for its disks takes no requests, so its inbox fills up.
#[tokio::test]
async fn agents_get_a_response_while_the_master_cannot_write() {
    let (requests, inbox) = mpsc::channel(1);
    let sync = |reports| Sync { reports, tokens: 0, last_request: 0, order: 7, usage: None };
    let agent = || Scope::Agent("c1".to_owned());
    for _ in 0..3 {
        let quiet = request("sync", &sync(Vec::new()));
        let reply = respond(agent(), quiet, requests.clone()).await;
        assert_eq!(reply.status, 204);
        let started = vec![AgentReport::Started { round: 1 }];
        let reply = respond(agent(), request("sync", &sync(started)), requests.clone()).await;
        assert_eq!(reply.status, NOT_DURABLE, "acknowledged before it was durable");
    }
    drop(inbox);
    let reply = respond(agent(), request("sync", &sync(Vec::new())), requests).await;
    assert_eq!(reply.status, 410, "the job is over");
}
