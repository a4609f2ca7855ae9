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

/// Servers on one required node that publish their addresses, and a driver that uses skein's Python interface.
const PROGRAM: &str = r#"
import skein
app = skein.ApplicationClient.from_current()
own = skein.properties.container_id
if own.startswith("server"):
    app.kv.put("address." + own, b"here", owner=own)
    app.kv.wait("end")
else:
    app.scale("server", 2)
    for server in ("server_0", "server_1"):
        assert app.kv.wait("address." + server, return_owner=True).owner == server
    found = app.get_containers(["server"])
    assert [it.id for it in found] == ["server_0", "server_1"], found
    assert all(it.yarn_container_id.startswith("container_") for it in found), found
    app.set_progress(0.5)
    with app.kv.events(key="address.server_0", event_type="delete") as events:
        app.kill_container("server_0")
        # The end of the job stops this program, too, before it could write a buffer.
        print("deleted", events.get(timeout=120).key, flush=True)
    app.shutdown("SUCCEEDED")
"#;

#[test]
fn programs_use_skein_on_the_node_that_their_service_requires() {
    let cluster = &*common_cluster();
    let workspace = Workspace::of(cluster, "alice");
    let node = cluster.nodes()[1].address.ip().to_string();
    workspace.write("program.py", PROGRAM);
    workspace.write(
        "app.yaml",
        &format!(
            "name: required
user: alice
services:
  server:
    instances: 0
    nodes: ['{node}']
    resources: {{memory: 128 MiB, vcores: 1}}
    files: {{program.py: program.py}}
    script: python3 program.py
  driver:
    resources: {{memory: 128 MiB, vcores: 1}}
    files: {{program.py: program.py}}
    script: python3 program.py
"
        ),
    );
    let ran = workspace.run(&["submit", "app.yaml"]);
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert!(ran.stdout.contains("deleted address.server_0"), "{ran:#?}");
    for server in ["server:0", "server:1"] {
        let runs = format!("{server} runs on `{node}`");
        assert!(ran.stderr.contains(&runs), "`{runs}` is not in {ran:#?}");
    }
}
