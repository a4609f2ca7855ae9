//! Test support: a client from a cluster's configuration, and checks that hold for every version of
//! Hadoop.

use std::time::{Duration, SystemTime};

use testbed::{Cluster, File, Hdfs, Options, Queue, Version};
use tokio::time::{Instant, sleep};
use yarn_native::client::{ApplicationFilter, Client, Submission};
use yarn_native::config::{Config, Environment};
use yarn_native::credentials::TokenIdentifier;
use yarn_native::rpc::{ExceptionKind, RpcError};
use yarn_native::security::{Identity, SecurityError};
use yarn_native::types::{
    ApplicationId, ApplicationReport, ApplicationState, AttemptState, ContainerState,
    LaunchContext, NodeState, Resource,
};

/// The Hadoop version under test; these tests pass on all supported versions.
pub fn version() -> Version {
    match std::env::var("HADOOP_VERSION") {
        Ok(name) => name.parse().unwrap_or_else(|failure| panic!("{failure}")),
        Err(_) => Version::NEWEST,
    }
}

/// Two queues, application priorities, and no HDFS.
pub fn options(version: Version) -> Options {
    Options {
        hdfs: Hdfs::None,
        queues: vec![Queue::new("default", 50), Queue::new("other", 50)],
        ..Options::new(version)
    }
    .set(File::Yarn, "yarn.cluster.max-application-priority", "9")
}

pub fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

pub fn config(cluster: &Cluster) -> Config {
    let environment = Environment::of_process();
    let environment = environment.with_variable("HADOOP_USER_NAME", cluster.own_user());
    Config::from_directories(&[cluster.configuration()], environment).expect("a configuration")
}

pub fn client(cluster: &Cluster) -> Client {
    let config = config(cluster);
    let identity = Identity::from_config(&config).expect("an identity");
    Client::from_config(&config, identity).expect("a client")
}

/// An ApplicationMaster that never registers and runs until it is killed.
pub fn idle() -> LaunchContext {
    // Bounded, so that a failing test leaves no process behind.
    LaunchContext::command("sleep 120")
}

pub async fn submission(client: &Client, name: &str) -> Submission {
    let new = client.new_application(soon()).await.expect("an id");
    assert!(new.capability_max.memory_mib >= 1024, "{new:?}");
    Submission { attempts_max: Some(1), launch: idle(), ..Submission::new(new.id, name) }
}

/// Returns the last part of a queue's name; some versions report the whole path.
pub fn leaf(queue: &str) -> &str {
    queue.rsplit('.').next().unwrap_or(queue)
}

/// Polls until the application's report satisfies `condition`.
pub async fn until(
    client: &Client,
    id: ApplicationId,
    expected: &str,
    condition: impl Fn(&ApplicationReport) -> bool,
) -> ApplicationReport {
    let deadline = soon();
    loop {
        let report = client.application(id, deadline).await.expect("a report");
        if condition(&report) {
            return report;
        }
        assert!(Instant::now() < deadline, "waited for {expected}: {report:?}");
        sleep(Duration::from_millis(100)).await;
    }
}

/// Submits, finds, moves, changes, inspects and kills an application.
pub async fn check_application_lifecycle(client: &Client) {
    let tag = format!("Life-{}", std::process::id());
    let submission = Submission {
        tags: vec![tag.clone()],
        priority: Some(3),
        lifetime: Some(Duration::from_secs(3600)),
        resource: Resource::new(300, 1),
        ..submission(client, "a life").await
    };
    let id = submission.id;
    let unknown = client.application(id, soon()).await;
    assert_rejected(unknown, ExceptionKind::ApplicationNotFound);
    let report = client.submit_and_wait(&submission, soon()).await.unwrap();
    assert_eq!(report.state, ApplicationState::Accepted, "{report:?}");
    client.submit(&submission, soon()).await.expect("again");
    assert_eq!((leaf(&report.queue), report.priority), ("default", 3));
    assert_eq!(report.tags, [tag.to_lowercase()]);
    let left = report.lifetime.left.expect("a limited lifetime").as_secs();
    assert!((3000..=3600).contains(&left), "{left}");

    let filter = ApplicationFilter {
        states: vec![ApplicationState::Accepted],
        tags: vec![tag],
        name: Some("a life".into()),
        limit: Some(5),
        ..ApplicationFilter::default()
    };
    let found = client.applications(&filter, soon()).await.unwrap();
    let ids: Vec<ApplicationId> = found.iter().map(|report| report.id).collect();
    assert_eq!(ids, [id]);
    let no_match = ApplicationFilter { users: vec!["nobody-at-all".into()], ..filter };
    assert_eq!(client.applications(&no_match, soon()).await.unwrap(), []);

    client.move_to_queue(id, "other", soon()).await.unwrap();
    let moved = until(client, id, "the other queue", |report| leaf(&report.queue) == "other");
    assert_eq!(moved.await.state, ApplicationState::Accepted);
    let nowhere = client.move_to_queue(id, "nowhere", soon()).await;
    assert!(matches!(nowhere, Err(RpcError::Rejected { .. })), "{nowhere:?}");
    assert_eq!(client.set_priority(id, 5, soon()).await.unwrap(), 5);
    until(client, id, "its priority", |report| report.priority == 5).await;
    // Milliseconds, the precision of the ResourceManager.
    let end = SystemTime::UNIX_EPOCH + Duration::from_millis(now_ms() + 1_800_000);
    assert_eq!(client.set_expiry(id, end, soon()).await.unwrap(), end);
    let report = client.application(id, soon()).await.unwrap();
    let left = report.lifetime.left.expect("a limited lifetime").as_secs();
    assert!((1500..=1800).contains(&left), "{left}");

    check_attempt_reports(client, id).await;

    assert!(client.kill_and_wait(id, "enough of it", soon()).await.unwrap());
    let report = client.application(id, soon()).await.unwrap();
    assert_eq!(report.state, ApplicationState::Killed, "{report:?}");
    assert!(report.diagnostics.contains("enough of it"), "{report:?}");
    assert!(client.kill(id, soon()).await.unwrap(), "it has ended");
}

async fn check_attempt_reports(client: &Client, id: ApplicationId) {
    let report = until(client, id, "its attempt", |report| report.attempt.is_some()).await;
    let attempt = report.attempt.unwrap();
    let deadline = soon();
    let report = loop {
        let report = client.attempt(attempt, deadline).await.unwrap();
        if report.state == AttemptState::Launched {
            break report;
        }
        assert!(Instant::now() < deadline, "not started: {report:?}");
        sleep(Duration::from_millis(100)).await;
    };
    let attempts = client.attempts(id, soon()).await.unwrap();
    assert_eq!(attempts.len(), 1);
    assert_eq!(attempts[0].id, attempt);
    let master = report.master.expect("a container");
    let containers = client.containers(attempt, soon()).await.unwrap();
    assert_eq!(containers.len(), 1, "{containers:?}");
    let container = client.container(master, soon()).await.unwrap();
    assert_eq!(container.id, containers[0].id);
    assert_ne!(container.state, ContainerState::Complete);
    assert!(container.resource.memory_mib >= 300, "{container:?}");
    assert_eq!(container.exit, None);
    assert!(container.node.is_some());
}

/// Checks the reports available in every version: nodes, metrics, queues.
pub async fn check_cluster_reports(client: &Client, count: usize) {
    let nodes = client.nodes(&[NodeState::Running], soon()).await.unwrap();
    assert_eq!(nodes.len(), count, "{nodes:?}");
    assert!(nodes.iter().all(|node| node.capability.memory_mib == 8192));
    assert_eq!(client.nodes(&[NodeState::Lost], soon()).await.unwrap(), []);
    let metrics = client.cluster_metrics(soon()).await.unwrap();
    assert_eq!(metrics.active, count as i32);
    let root = client.queues(soon()).await.unwrap();
    let names: Vec<&str> = root.children.iter().map(|queue| queue.name.as_str()).collect();
    assert!(names.contains(&"default") && names.contains(&"other"), "{names:?}");
    assert!(root.children.iter().all(|queue| queue.capacity == 0.5));
    let permissions = client.queue_permissions(soon()).await.unwrap();
    assert!(permissions.iter().any(|queue| !queue.permissions.is_empty()));
}

/// Fetches, uses, renews and cancels a delegation token of the ResourceManager.
pub async fn check_token_lifecycle(config: &Config, client: &Client, renewer: &str) {
    let token = client.delegation_token(renewer, soon()).await.unwrap();
    assert_eq!(token.kind, "RM_DELEGATION_TOKEN");
    let address = &config.resource_managers().unwrap()[0].client;
    assert_eq!(token.service, address.to_string(), "the test cluster uses addresses");
    let Ok(TokenIdentifier::Delegation { renewer: named, .. }) = TokenIdentifier::decode(&token)
    else {
        panic!("an unreadable token");
    };
    assert_eq!(named, renewer);

    let holder = || Client::from_config(config, Identity::token(token.clone())).unwrap();
    let metrics = holder().cluster_metrics(soon()).await.unwrap();
    assert!(metrics.active > 0);
    let until = client.renew_token(&token, soon()).await.unwrap();
    assert!(until > SystemTime::now());
    client.cancel_token(&token, soon()).await.unwrap();
    let again = client.renew_token(&token, soon()).await;
    assert_rejected(again, ExceptionKind::InvalidToken);
    let refused = holder().cluster_metrics(soon()).await;
    assert!(
        matches!(refused, Err(RpcError::Security { source: SecurityError::Rejected { .. }, .. })),
        "{refused:?}"
    );
}

pub fn assert_rejected<T: std::fmt::Debug>(outcome: Result<T, RpcError>, kind: ExceptionKind) {
    match outcome {
        Err(RpcError::Rejected { exception, .. }) if exception.kind() == kind => {}
        other => panic!("expected {kind:?}, not {other:?}"),
    }
}

pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.expect("a clock").as_millis() as u64
}
