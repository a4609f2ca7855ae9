//! A job in YARN's own tools: container logs of nodes, aggregated logs, progress, priority and the tracking URL.

use super::common_cluster;
use testbed::{Cluster, get};
use yarn_native::types::LogState;
use ydl_testkit::yarn::{
    AttemptStart, ClusterJob, WAIT_SCRIPT, application, block_on, client, deadline, wait_finished,
    wait_for,
};

const SMALL: &str = "memory: 128 MiB";
/// Command-line tool behind `yarn logs`.
const LOGS_TOOL: &str = "org.apache.hadoop.yarn.client.cli.LogsCLI";

/// Returns the page of a container's log file on its node.
fn node_page(cluster: &Cluster, start: &AttemptStart, file: &str) -> Option<String> {
    let node = cluster.nodes().iter().find(|node| node.address.ip().to_string() == start.node);
    let (container, user) = (&start.container, cluster.own_user());
    let path = format!("/node/containerlogs/{container}/{user}/{file}/?start=0");
    get(node.expect("a node of the cluster").web, &path).ok()
}

#[test]
fn container_logs_have_the_output_of_each_task() {
    let cluster = &*common_cluster();
    let script = format!("echo out of $YDL_INDEX; echo err of $YDL_INDEX >&2; {WAIT_SCRIPT}");
    let job = ClusterJob::submit(cluster, 2, &script, SMALL, "name: logged");
    job.programs(2);
    let starts = job.wait_starts(2);
    for index in 0..2 {
        let task = format!("worker:{index}");
        let start = starts.iter().find(|start| start.task == task).expect("a start");
        for (stream, line) in [("stdout", "out"), ("stderr", "err")] {
            let file = format!("worker-{index}.attempt-1.{stream}");
            let line = format!("{line} of {index}");
            wait_for(&format!("`{line}` in {file} of {}", job.describe()), || {
                node_page(cluster, start, &file)?.contains(&line).then_some(())
            });
        }
        let agent = node_page(cluster, start, "agent.stderr").expect("the agent's messages");
        assert!(agent.contains(&format!("starting {task}, attempt 1")), "{agent}");
    }
    job.release();
    job.assert_succeeded();
    wait_for(&format!("aggregated logs of {}", job.describe()), || {
        let state = application(cluster, &job.id).logs;
        assert!(!matches!(state, Some(LogState::Failed | LogState::Disabled)), "{state:?}");
        (state == Some(LogState::Succeeded)).then_some(())
    });
    let mut tool = cluster.hadoop(LOGS_TOOL).expect("a tool");
    let output = tool.args(["-applicationId", &job.id]).output().expect("its output");
    let text = String::from_utf8_lossy(&output.stdout);
    for index in 0..2 {
        for (stream, line) in [("stdout", "out"), ("stderr", "err")] {
            let head = format!("LogType:worker-{index}.attempt-1.{stream}\n");
            let (_, rest) = text.split_once(&head).unwrap_or_else(|| panic!("{head}: {text}"));
            let own = rest.split("LogType:").next().unwrap_or_default();
            assert!(own.contains(&format!("{line} of {index}\n")), "{head}: {text}");
        }
    }
    // The job's own logs are complete, too.
    let logs = job.workspace.run(&["logs", &job.id, "worker:1"]);
    assert_eq!((logs.code, logs.stdout.contains("out of 1")), (0, true), "{logs:?}");
}

#[test]
fn progress_and_page_follow_the_job_across_masters() {
    let cluster = &*common_cluster();
    let job = ClusterJob::submit(cluster, 4, WAIT_SCRIPT, SMALL, "name: followed");
    job.programs(4);
    assert_ne!(application(cluster, &job.id).tracking_url, "N/A");
    job.release_task(0);
    wait_for(&format!("progress of {}", job.describe()), || {
        let report = application(cluster, &job.id);
        assert!(report.progress < 0.3, "{report:?}");
        (report.progress > 0.24).then_some(())
    });
    let proxied = format!("/proxy/{}/", job.id);
    let wait_page = |text: &str| {
        wait_for(&format!("`{text}` on the page of {}", job.describe()), || {
            let page = cluster.rest(&proxied).ok()?;
            (page.contains("<h1>followed</h1>") && page.contains(text)).then_some(page)
        })
    };
    let page = wait_page("25 %");
    assert!(page.contains("<td>running</td>"), "{page}");
    assert!(page.contains(&format!("ydl logs {}", job.id)), "{page}");
    let without_slash = cluster.rest(&format!("/proxy/{}", job.id)).expect("the page");
    assert!(without_slash.contains("<h1>followed</h1>"), "{without_slash}");

    job.wait_reported_running(&job.containers());
    job.kill_master(1);
    job.wait_led_by(2);
    wait_page("25 %");
    wait_for(&format!("progress of the second master of {}", job.describe()), || {
        (application(cluster, &job.id).progress > 0.24).then_some(())
    });

    let id = job.id.parse().expect("an id");
    let changed = block_on(async { client(cluster).set_priority(id, 7, deadline()).await });
    assert_eq!(changed.expect("a new priority"), 7);
    wait_for(&format!("the priority of {}", job.describe()), || {
        let status = job.status();
        (status["priority"] == 7 && status["application"]["priority"] == 7).then_some(())
    });

    job.release();
    job.assert_succeeded();
    let report = wait_finished(cluster, &job.id);
    assert_eq!(report.progress, 1.0, "{report:?}");
    let application_page = format!("/cluster/app/{}", job.id);
    assert!(report.original_tracking_url.ends_with(&application_page), "{report:?}");
    assert_ne!(report.tracking_url, "N/A");
    let page = cluster.rest(&application_page).expect("the application's page");
    assert!(page.contains("the job succeeded"), "{page}");
}
