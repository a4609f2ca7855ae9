//! A skein application on a real cluster.

use crate::common_cluster;
use ydl_testkit::yarn::{Workspace, application, digits, wait_finished};

/// Two services, one of which depends on the other and gets its greeting through the key-value store, as was usual
/// with skein.
const APP: &str = r#"
name: hello
queue: default
tags: [demo]
services:
  server:
    resources: {memory: 256 MiB, vcores: 1}
    files: {greeting: greeting.txt}
    env: {PLACE: here}
    script: |
      echo "serving as $SKEIN_CONTAINER_ID of $SKEIN_APPLICATION_ID"
      ydl kv put greeting "$(cat greeting) from $PLACE"
      ydl kv get --wait 5m heard/client_0
      ydl kv get --wait 5m heard/client_1
  client:
    instances: 2
    depends: [server]
    max_restarts: 1
    resources: {memory: 256 MiB, vcores: 1}
    script: |
      heard=$(ydl kv get --wait 5m greeting)
      echo "$SKEIN_CONTAINER_ID heard: $heard ($SKEIN_RESOURCE_MEMORY MiB)"
      ydl kv put "heard/$SKEIN_CONTAINER_ID" yes
"#;

#[test]
fn an_application_with_dependent_services_runs() {
    let cluster = &*common_cluster();
    let workspace = Workspace::of(cluster, "alice");
    workspace.write("greeting.txt", "good morning");
    workspace.write("app.yaml", APP);
    let ran = workspace.run(&["submit", "app.yaml"]);
    assert_eq!(ran.code, 0, "{ran:#?}");
    let id = digits::job_id(&ran);
    for line in [
        &format!("serving as server_0 of {id}"),
        "client_0 heard: good morning from here (256 MiB)",
        "client_1 heard: good morning from here (256 MiB)",
    ] {
        assert!(ran.stdout.contains(line), "`{line}` is not in {ran:#?}");
    }
    let note = "`services.client.max_restarts` applies to each task";
    assert!(ran.stderr.contains(note), "{ran:#?}");
    let report = wait_finished(cluster, &id);
    assert!(report.tags.iter().any(|tag| tag == "demo"), "{report:?}");
    assert_eq!(application(cluster, &id).name, "hello");
    // No container was requested before its dependencies ran.
    let started = |task: &str| {
        let output = format!("{task} runs on");
        let at = ran.stderr.lines().position(|line| line.contains(&output));
        at.unwrap_or_else(|| panic!("`{output}` is not in {ran:#?}"))
    };
    assert!(started("server:0") < started("client:0"), "{ran:#?}");
    assert!(started("server:0") < started("client:1"), "{ran:#?}");
}
