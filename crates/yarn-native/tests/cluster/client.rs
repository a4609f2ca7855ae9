//! Client tests on a real cluster.

use std::path::Path;
use std::process::Command;

use crate::support::client::{
    check_application_lifecycle, check_cluster_reports, check_token_lifecycle, client, config,
    options, soon, submission, until, version,
};
use testbed::{Cluster, Label, Options};
use yarn_native::client::{
    ApplicationFilter, ApplicationScope, LogAggregation, QueueDetail, Submission,
};
use yarn_native::credentials::Credentials;
use yarn_native::rpc::RpcError;
use yarn_native::security::{AuthMethod, Identity};
use yarn_native::types::{
    ApplicationState, AttributeName, LaunchContext, NodeId, QueueState, Resource, Signal,
};

/// The first node has a GPU and, where supported, an attribute; the second has a label.
fn cluster() -> &'static Cluster {
    let version = version();
    let attributes = match version.has_placement_constraints() {
        true => vec![(1, "colour".to_owned(), "red".to_owned())],
        false => Vec::new(),
    };
    let options = options(version);
    let options = Options {
        nodes: 2,
        gpus: vec![1],
        labels: vec![Label { name: "fast".into(), nodes: vec![2], exclusive: true }],
        attributes,
        ..options
    };
    Cluster::shared(options).unwrap_or_else(|failure| panic!("{failure}"))
}

#[tokio::test]
async fn application_is_submitted_moved_changed_and_killed() {
    check_application_lifecycle(&client(cluster())).await;
}

#[tokio::test]
async fn nodes_queues_and_metrics_are_reported() {
    let client = client(cluster());
    check_cluster_reports(&client, 2).await;
    let detail = QueueDetail { applications: true, ..QueueDetail::default() };
    let queue = client.queue("other", detail, soon()).await.unwrap();
    let queue = queue.expect("a queue");
    assert_eq!((queue.name.as_str(), queue.state), ("other", QueueState::Running));
    // Some servers return an error, others nothing.
    match client.queue("nowhere", detail, soon()).await {
        Ok(None) | Err(RpcError::Rejected { .. }) => {}
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn labels_attributes_and_resource_types_are_reported() {
    let client = client(cluster());
    let second = cluster().nodes()[1].address.to_string();
    let labels = client.labels(soon()).await.unwrap();
    assert_eq!(labels.len(), 1);
    assert!(labels[0].exclusive && labels[0].name == "fast", "{labels:?}");
    let by_label = client.nodes_by_label(&["fast".into()], soon()).await;
    let by_label = by_label.unwrap();
    let mut nodes = by_label["fast"].iter();
    let host = |node: &NodeId| second.starts_with(&format!("{}:", node.host));
    assert!(nodes.len() > 0 && nodes.all(host), "{by_label:?}");
    let by_node = client.labels_by_node(soon()).await.unwrap();
    assert!(by_node.values().any(|labels| labels == &["fast"]), "{by_node:?}");

    let kinds = client.resource_kinds(soon()).await.unwrap();
    let names: Vec<_> = kinds.iter().map(|kind| kind.name.as_str()).collect();
    assert!(names.contains(&"yarn.io/gpu") && names.contains(&"vcores"), "{names:?}");

    let attributes = client.attributes(soon()).await;
    if !version().has_placement_constraints() {
        assert!(matches!(attributes, Err(RpcError::Unsupported { .. })), "{attributes:?}");
        return;
    }
    let colour: AttributeName = "nm.yarn.io/colour".parse().unwrap();
    assert_eq!(attributes.unwrap(), std::slice::from_ref(&colour));
    let by_host = client.attributes_by_host(&[], soon()).await.unwrap();
    let all: Vec<String> = by_host.values().flatten().map(|a| a.to_string()).collect();
    assert_eq!(all, ["nm.yarn.io/colour=red"]);
    let hosts = client.hosts_by_attribute(std::slice::from_ref(&colour), soon()).await;
    let hosts = hosts.unwrap();
    assert!(hosts[&colour].values().eq(["red"]), "{hosts:?}");
}

#[tokio::test]
async fn resource_manager_token_is_fetched_used_renewed_and_cancelled() {
    let client = client(cluster());
    check_token_lifecycle(&config(cluster()), &client, &cluster().own_user()).await;
}

#[tokio::test]
async fn master_runs_on_its_labelled_node_and_its_exit_is_reported() {
    let client = client(cluster());
    let submission = Submission {
        master_label: Some("fast".into()),
        launch: LaunchContext::command("exit 7"),
        failure_window: Some(std::time::Duration::from_secs(60)),
        keep_containers: true,
        logs: Some(LogAggregation { include: Some("std.*".into()), ..LogAggregation::default() }),
        ..submission(&client, "labelled").await
    };
    client.submit(&submission, soon()).await.unwrap();
    let report = until(&client, submission.id, "its end", |r| r.state.is_over()).await;
    assert_eq!(report.state, ApplicationState::Failed);
    assert!(report.diagnostics.contains("exitCode: 7"), "{report:?}");
    assert_eq!(report.master_label.as_deref(), Some("fast"), "{report:?}");
}

#[tokio::test]
async fn signal_is_delivered_to_a_container() {
    let client = client(cluster());
    let started = cluster().directory().join("started");
    let command = format!("touch {} && exec sleep 120", started.display());
    let submission = Submission {
        launch: LaunchContext::command(command),
        ..submission(&client, "signalled").await
    };
    client.submit(&submission, soon()).await.unwrap();
    // The report may be older than the file.
    let report =
        until(&client, submission.id, "its start", |r| r.attempt.is_some() && started.exists())
            .await;
    let attempt = client.attempt(report.attempt.unwrap(), soon()).await.unwrap();
    let master = attempt.master.expect("a container");
    client.signal(master, Signal::Terminate, soon()).await.unwrap();
    let report = until(&client, submission.id, "its end", |r| r.state.is_over()).await;
    assert!(report.diagnostics.contains("exitCode: 143"), "{report:?}");
}

#[tokio::test]
async fn invalid_submissions_are_rejected_with_a_reason() {
    let client = client(cluster());
    let huge =
        Submission { resource: Resource::new(1 << 30, 1), ..submission(&client, "huge").await };
    let refused = client.submit(&huge, soon()).await;
    assert!(matches!(refused, Err(RpcError::Rejected { .. })), "{refused:?}");
    let nowhere = Submission { queue: "nowhere".into(), ..submission(&client, "nowhere").await };
    let report = client.submit_and_wait(&nowhere, soon()).await.unwrap();
    assert_eq!(report.state, ApplicationState::Failed);
    assert!(report.diagnostics.contains("nowhere"), "{report:?}");
}

#[tokio::test]
async fn impersonation_works_only_where_allowed() {
    let config = config(cluster());
    let as_bob = Identity::simple("proxy").acting_for("bob");
    let client = yarn_native::client::Client::from_config(&config, as_bob).unwrap();
    let submission = submission(&client, "for bob").await;
    let report = client.submit_and_wait(&submission, soon()).await.unwrap();
    assert_eq!(report.user, "bob");
    let own =
        ApplicationFilter { scope: Some(ApplicationScope::Own), ..ApplicationFilter::default() };
    let found = client.applications(&own, soon()).await.unwrap();
    assert!(found.iter().all(|report| report.user == "bob") && !found.is_empty());
    assert!(client.kill_and_wait(submission.id, "done", soon()).await.unwrap());

    let as_root = Identity::simple("mallory").acting_for("bob");
    assert!(matches!(as_root.auth, AuthMethod::Simple { .. }));
    let client = yarn_native::client::Client::from_config(&config, as_root).unwrap();
    let refused = client.cluster_metrics(soon()).await.unwrap_err();
    assert!(refused.to_string().contains("not allowed to impersonate"), "{refused}");
}

/// Runs an example, from a prebuilt directory if configured.
fn example(name: &str, arguments: &[&str]) -> String {
    let mut command = match std::env::var_os("YARN_NATIVE_EXAMPLES") {
        Some(built) => Command::new(Path::new(&built).join(name)),
        None => {
            let mut cargo = Command::new(env!("CARGO"));
            cargo.args(["run", "--quiet", "--package", env!("CARGO_PKG_NAME")]);
            cargo.args(["--example", name, "--"]);
            cargo
        }
    };
    let output = command
        .args(arguments)
        .env("HADOOP_CONF_DIR", cluster().configuration())
        .env("HADOOP_USER_NAME", cluster().own_user())
        .env_remove("YARN_CONF_DIR")
        .output()
        .expect("a process");
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{stdout} {output:?}");
    stdout
}

#[test]
fn examples_run_successfully() {
    let run = example("run", &["2", "true"]);
    let id = run.lines().next().expect("an id");
    assert_eq!(run.lines().count(), 3, "{run}");
    // The ResourceManager records the end shortly after the ApplicationMaster has unregistered.
    let list = cluster().wait("the example among those that finished", || {
        let list = example("applications", &["FINISHED"]);
        list.contains(id).then_some(list)
    });
    let list = list.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(list.starts_with("2 of 2 nodes are active\n"), "{list}");
    let file = cluster().directory().join("tokens");
    let token = example("token", &[file.to_str().expect("a plain path")]);
    assert!(token.starts_with("RM_DELEGATION_TOKEN for 127."), "{token}");
    let credentials = Credentials::read(&file).expect("credentials");
    assert!(credentials.of_kind("RM_DELEGATION_TOKEN").is_some());
}
