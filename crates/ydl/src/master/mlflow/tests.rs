//! Tracker against a server that fails, rejects and forgets on demand.

use super::tracker::{Tracker, late};
use crate::master::event_loop::tests::job_spec;
use serde_json::{Value, json};
use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use ydl_core::{JobSpecBuilder, Outcome, Time, spec::Mlflow};
use ydl_mlflow::{api::Row, server::Failure};
use ydl_proto::files::{JobTarget, LocalResources, SubmittedJob};

/// Response of the server to a path and a body: status and content.
type Answers = fn(&str, &str) -> Option<(u16, Value)>;

/// Server that records its requests.
struct FaultyServer {
    at: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl FaultyServer {
    /// Starts a server without any run. `answers` overrides its responses.
    async fn start(answers: Answers) -> FaultyServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap().to_string();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = asked.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                serve(stream, answers, &seen).await;
            }
        });
        FaultyServer { at, asked }
    }

    async fn tracker(&self) -> Tracker {
        let mut draft = JobSpecBuilder::from(job_spec(1));
        draft.cluster_options.mlflow = Some(Mlflow {
            uri: format!("http://{}", self.at),
            experiment: "e".to_owned(),
            run_name: None,
            tags: Default::default(),
            user: None,
            token_file: None,
        });
        let offer = LocalResources { memory_mib: 1, vcores: 1, gpus: Vec::new() };
        let submitted = SubmittedJob {
            id: "paper-1".to_owned(),
            at: Time(0),
            from: PathBuf::new(),
            spec: draft.build().unwrap(),
            target: JobTarget::Local(offer),
        };
        let tracker = Tracker::start(&submitted, None).await;
        tracker.expect("a job with a run")
    }

    /// Returns the requests since the last call.
    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

async fn serve(mut stream: TcpStream, answers: Answers, seen: &Mutex<Vec<String>>) {
    let mut bytes = Vec::new();
    let (path, body) = loop {
        let mut piece = [0; 4096];
        let length = stream.read(&mut piece).await.unwrap_or_default();
        bytes.extend_from_slice(&piece[..length]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            assert_ne!(length, 0, "{text}");
            continue;
        };
        let wanted = head.lines().find_map(|line| {
            let rest = line.strip_prefix("content-length: ")?;
            rest.parse::<usize>().ok()
        });
        if body.len() >= wanted.unwrap_or_default() {
            let path = head.split(' ').nth(1).unwrap_or_default();
            let path = path.rsplit("/mlflow/").next().unwrap_or_default();
            let path = path.split('?').next().unwrap_or_default();
            break (path.to_owned(), body.to_owned());
        }
    };
    let path = path.trim_start_matches("/api/2.0/mlflow-artifacts/artifacts/");
    seen.lock().unwrap().push(path.to_owned());
    let usual = || match path {
        "experiments/get-by-name" => (200, json!({ "experiment": { "experiment_id": "1" } })),
        "runs/create" => {
            let place = "mlflow-artifacts:/1/r1/artifacts";
            let info = json!({ "run_id": "r1", "artifact_uri": place });
            (200, json!({ "run": { "info": info } }))
        }
        _ => (200, json!({})),
    };
    let (status, said) = answers(path, &body).unwrap_or_else(usual);
    let said = said.to_string();
    let length = said.len();
    let respond_to = format!("HTTP/1.1 {status} So\r\ncontent-length: {length}\r\n\r\n{said}");
    // The client may have disconnected.
    let _ = stream.write_all(respond_to.as_bytes()).await;
}

fn row(step: u64) -> Row {
    Row { key: "worker/0/loss".to_owned(), value: json!(1.0), timestamp: 1, step }
}

fn left() -> super::Artifacts {
    let one = |name: &str| (name.to_owned(), "x".into());
    vec![one("last"), one("large"), one("first")]
}

#[tokio::test]
async fn the_outcome_is_sent_before_the_artifacts() {
    let server = FaultyServer::start(|path, _| match path {
        // A proxy rejects large files.
        "1/r1/artifacts/large" => Some((413, json!({}))),
        _ => None,
    })
    .await;
    let mut tracker = server.tracker().await;
    let begun = ["experiments/get-by-name", "runs/search", "runs/create", "runs/log-batch"];
    assert_eq!(server.asked(), begun);
    tracker.rows.extend((0..501).map(row));
    let mut left = left();
    tracker.finish(&Outcome::Succeeded, &mut left).await.unwrap();
    let sent = [
        "runs/update",
        "runs/log-batch",
        "runs/log-batch",
        "1/r1/artifacts/first",
        "1/r1/artifacts/large",
        "1/r1/artifacts/last",
    ];
    assert_eq!(server.asked(), sent);
    assert!(left.is_empty());
}

#[tokio::test]
async fn sent_artifacts_are_not_sent_again() {
    let server = FaultyServer::start(|path, _| match path {
        "1/r1/artifacts/large" => Some((503, json!({}))),
        _ => None,
    })
    .await;
    let mut tracker = server.tracker().await;
    server.asked();
    let mut left = left();
    for tried in [
        ["runs/update", "1/r1/artifacts/first", "1/r1/artifacts/large"].as_slice(),
        &["1/r1/artifacts/large"],
    ] {
        let failure = tracker.finish(&Outcome::Succeeded, &mut left).await;
        assert!(matches!(failure, Err(Failure::Away(_))), "{failure:?}");
        assert_eq!(server.asked(), tried);
    }
}

#[tokio::test]
async fn values_that_crash_the_server_are_dropped() {
    let server = FaultyServer::start(|path, body| match path {
        "runs/log-batch" if body.contains("\"step\":7") => Some((500, json!({}))),
        _ => None,
    })
    .await;
    let mut tracker = server.tracker().await;
    server.asked();
    tracker.rows.extend([row(7)]);
    for _ in 0..2 {
        assert!(matches!(tracker.push().await, Err(Failure::Broke(500))));
        assert_eq!(tracker.rows.len(), 1);
    }
    tracker.rows.extend((8..510).map(row));
    tracker.push().await.unwrap();
    assert!(tracker.rows.is_empty());
    assert_eq!(server.asked(), ["runs/log-batch"; 4]);
}

#[tokio::test]
async fn rejected_parameters_are_not_sent_again() {
    let server = FaultyServer::start(|path, body| match path {
        "runs/log-batch" if body.contains("\"params\"") => {
            Some((400, json!({ "error_code": "INVALID_PARAMETER_VALUE" })))
        }
        _ => None,
    })
    .await;
    let mut tracker = server.tracker().await;
    server.asked();
    tracker.rows.extend([row(1)]);
    tracker.push().await.unwrap();
    assert_eq!(server.asked(), ["runs/log-batch"]);
}

#[tokio::test]
async fn outages_are_logged_once_until_the_server_recovers() {
    let server = FaultyServer::start(|_, _| None).await;
    let mut tracker = server.tracker().await;
    let why = || late(Duration::from_secs(1));
    let said = |tracker: &Tracker| (tracker.outages, tracker.warnings.len());
    for _ in 0..5 {
        tracker.failed(&why());
        tracker.failed(&Failure::Broke(500));
        tracker.failed(&Failure::Nonsense("what".to_owned()));
    }
    assert_eq!(said(&tracker), (1, 1));
    tracker.went_well();
    tracker.failed(&why());
    assert_eq!(said(&tracker), (2, 1));
    for n in 0..100 {
        tracker.warn_once(&Failure::Nonsense(n.to_string()));
    }
    assert_eq!(said(&tracker), (2, 10));
}
