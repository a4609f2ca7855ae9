//! Commands on running jobs and on ended ones.

use serde_json::Value;
use std::{
    fs,
    io::{BufRead, BufReader, Read},
    process::Stdio,
};
use ydl_testkit::{
    CommandOutput, finish,
    local::{Home, kill},
};

fn job(name: &str, instances: u32, script: &str, more: &str) -> String {
    let script = serde_json::to_string(script).expect("a string");
    format!(
        "name: {name}\nroles:\n  worker:\n    instances: {instances}\n    memory: 256 MiB\n    shell: {script}\n{more}\n"
    )
}

fn objects(output: &CommandOutput) -> Vec<Value> {
    let lines = output.stdout.lines();
    lines.map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

fn object(output: &CommandOutput) -> Value {
    let mut all = objects(output);
    assert_eq!(all.len(), 1, "{output:#?}");
    all.swap_remove(0)
}

fn running(home: &Home, id: &str, tasks: usize) {
    home.wait_for("running tasks", |home| {
        let status = object(&home.run(&["status", "--json", id]));
        let tasks_now = status["view"]["tasks"].as_array()?;
        let running = tasks_now.iter().filter(|task| task["state"] == "running").count();
        (running == tasks).then_some(())
    });
}

#[test]
fn jobs_are_listed_inspected_and_killed() {
    let home = Home::new();
    let id = home.detach(&job("demo", 2, "sleep 1000", ""));
    assert!(id.starts_with("demo-") && id.len() == 11, "{id}");
    running(&home, &id, 2);

    let list = object(&home.run(&["ls", "--json"]));
    assert_eq!(list["id"], id.as_str());
    assert_eq!(list["state"], "running");
    let table = home.run(&["ls"]).stdout;
    assert!(table.contains("running") && table.contains("2/2"), "{table}");

    let status = home.run(&["status"]);
    assert!(status.stdout.contains("2 tasks running"), "{status:#?}");
    assert!(status.stdout.contains("worker:1  running"), "{status:#?}");

    let killed = home.run(&["kill", "demo"]);
    assert_eq!(killed.code, 0, "{killed:#?}");
    assert!(home.processes().is_empty(), "{:?}", home.processes());
    let again = home.run(&["kill", &id[..8]]);
    assert_eq!(again.code, 0, "{again:#?}");
    assert!(again.stderr.contains("had already ended: killed"), "{again:#?}");
    let status = object(&home.run(&["status", "--json"]));
    assert_eq!(status["state"], "killed");
    assert_eq!(status["view"]["outcome"]["killed"]["by"], "`ydl kill`");
    assert_eq!(home.run(&["scale", &id, "worker=2"]).code, 2);
    assert_eq!(home.run(&["kv", "--job", &id, "ls"]).code, 122);
}

#[test]
fn a_submit_without_a_terminal_names_the_cause_of_a_failure_twice() {
    let home = Home::new();
    let output = home.submit(&job("t", 1, "exit 3", ""));
    assert_eq!(output.code, 3, "{output:#?}");
    // When the program ends, and as the last error.
    assert_eq!(output.stderr.matches("exited with code 3").count(), 2, "{output:#?}");
}

#[test]
fn kill_names_what_it_waits_for() {
    let home = Home::new();
    let script = "trap '' TERM; echo up; while true; do sleep 1; done";
    let id = home.detach(&job("t", 1, script, "timeouts: {grace: 5s}"));
    home.wait_for_text(|home| home.job().join("logs/worker/0/1/stdout.0"), "up");
    let killed = home.run(&["kill", &id]);
    assert_eq!(killed.code, 0, "{killed:#?}");
    assert!(killed.stderr.starts_with(&format!("waiting for {id} to stop;")), "{killed:#?}");
}

#[test]
fn a_file_is_rejected_as_the_destination_of_fetch() {
    let home = Home::new();
    home.submit(&job("t", 1, "echo out", ""));
    let file = home.write("file", "");
    let output = home.run(&["fetch", "t", &file.to_string_lossy()]);
    assert_eq!(output.code, 2, "{output:#?}");
    assert!(output.stderr.contains("is a file, not a directory"), "{output:#?}");
}

#[test]
fn status_waits_for_the_end_of_a_job() {
    let home = Home::new();
    let id = home.detach(&job("long", 1, "ydl kv get --wait 5m go; exit 3", ""));
    running(&home, &id, 1);
    let soon = object(&home.run(&["status", "--json", "--wait", "10ms", &id]));
    assert_eq!(soon["state"], "running");
    let mut waiting = home.ydl();
    waiting.args(["status", "--json", "--wait", "1h", &id]);
    waiting.stdout(Stdio::piped()).stderr(Stdio::piped());
    let waiting = waiting.spawn().expect("ydl");
    assert_eq!(home.run(&["kv", "--job", &id, "put", "go", "1"]).code, 0);
    // The command itself succeeds although the job failed.
    let output = finish(waiting);
    assert_eq!(output.code, 0, "{output:#?}");
    assert_eq!(object(&output)["state"], "failed");
    assert!(home.processes().is_empty(), "{:?}", home.processes());
    let output = home.run(&["status", "--wait", "1h", &id]);
    assert!(output.stdout.contains("failed"), "{output:#?}");
    let wrong = home.run(&["status", "--wait", "soon", &id]);
    assert_eq!(wrong.code, 2, "{wrong:#?}");
    assert!(wrong.stderr.contains("`soon` is not a time"), "{wrong:#?}");
}

#[test]
fn a_job_name_selects_the_newest_job_of_that_name() {
    let home = Home::new();
    let first = home.run(&["submit", "--name", "x", "--", "echo", "first"]);
    let second = home.run(&["submit", "--name", "x", "--", "echo", "second"]);
    assert_eq!((first.code, second.code), (0, 0), "{first:#?} {second:#?}");
    assert_eq!(home.run(&["logs", "x"]).stdout, "worker:0 | second\n");
    assert_eq!(home.run(&["logs", "x", "worker:0"]).stdout, "second\n");
    let ambiguous = home.run(&["status", "x-"]);
    assert_eq!(ambiguous.code, 2);
    assert!(ambiguous.stderr.contains("matches 2 jobs"), "{ambiguous:#?}");
}

#[test]
fn a_name_shared_by_running_jobs_is_rejected_as_ambiguous() {
    let home = Home::new();
    let first = home.detach(&job("x", 1, "sleep 1000", ""));
    let second = home.detach(&job("x", 1, "sleep 1000", ""));
    for args in [&["kill", "x"][..], &["scale", "x", "worker=2"]] {
        let refused = home.run(args);
        assert_eq!(refused.code, 2, "{refused:#?}");
        let expected = format!(
            "2 running jobs are named `x`: `{second}`, `{first}`\n\nhint: use an id: `ydl {} {second}`",
            args[0]
        );
        assert!(refused.stderr.contains(&expected), "{refused:#?}");
    }
    let killed = home.run(&["kill", &second]);
    assert!(killed.stderr.contains("ended: killed"), "{killed:#?}");
    // The newest job has ended, so the name selects the running one.
    let killed = home.run(&["kill", "x"]);
    let expected = format!("{first} ended: killed");
    assert!(killed.stderr.contains(&expected), "{killed:#?}");
    let again = home.run(&["kill", "x"]);
    let expected = format!("{second} had already ended: killed");
    assert!(again.stderr.contains(&expected), "{again:#?}");
    assert!(home.processes().is_empty(), "{:?}", home.processes());
}

#[test]
fn status_shows_the_range_of_an_elastic_role() {
    let home = Home::new();
    let id = home.detach(
        "name: x
gang: true
roles:
  worker: {instances: {min: 1, max: 3, start: 2}, memory: 256 MiB, run: sleep 1000}
  board: {completion: sidecar, memory: 256 MiB, run: sleep 1000}
",
    );
    running(&home, &id, 3);
    let status = home.run(&["status", &id]);
    assert!(status.stdout.contains("elastic    2 × `worker` of 1 to 3\n"), "{status:#?}");
    let view = &object(&home.run(&["status", "--json", &id]))["view"];
    let range = serde_json::json!({ "min": 1, "max": 3 });
    assert_eq!(view["roles"][0]["elastic"], range, "{view:#}");
    assert!(view["roles"][1].get("elastic").is_none(), "{view:#}");
    assert_eq!(home.run(&["kill", &id]).code, 0);
}

#[test]
fn logs_are_filtered_by_task_stream_attempt_and_length() {
    let home = Home::new();
    let script = "echo out $YDL_ATTEMPT; echo more; echo err >&2; test $YDL_ATTEMPT = 2";
    let more = "restart: {limit: 1, backoff: {initial: 1ms, max: 1ms}}";
    let output = home.submit(&job("t", 2, script, more));
    assert_eq!(output.code, 0, "{output:#?}");
    let logs = |args: &[&str]| {
        let output = home.run(&[&["logs"], args].concat());
        assert_eq!(output.code, 0, "{output:#?}");
        output.stdout
    };
    assert_eq!(logs(&["worker:0"]), "out 2\nmore\nerr\n");
    assert_eq!(logs(&["worker:0", "--stderr"]), "err\n");
    assert_eq!(logs(&["worker:1", "--attempt", "1", "--stdout"]), "out 1\nmore\n");
    assert_eq!(logs(&["--stdout", "--tail", "1"]), "worker:0 | more\nworker:1 | more\n");
    assert_eq!(logs(&["worker", "--all-attempts"]).lines().count(), 12);
    assert_eq!(logs(&["-f", "t", "worker:1", "--stderr"]), "err\n");
    let lines = objects(&home.run(&["logs", "worker:0", "--stdout", "--json"]));
    assert_eq!(lines[0]["output"]["line"], "out 2");
    assert_eq!(lines[0]["output"]["attempt"], 2);
    for args in [["logs", "chief"], ["logs", "worker:x"]] {
        assert_eq!(home.run(&args).code, 2, "{args:?}");
    }
    let unknown = home.run(&["logs", "t", "chief"]);
    assert!(unknown.stderr.contains("hint: it has `worker`"), "{unknown:#?}");
    let late = home.run(&["logs", "--attempt", "9"]);
    assert!(late.stderr.contains("no task has had an attempt 9"), "{late:#?}");
}

#[test]
fn logs_are_followed_until_the_job_is_over() {
    let home = Home::new();
    let script = "echo one; until test -e \"$YDL_CHECKPOINT/go\"; do sleep 0.01; done; printf two";
    let id = home.detach(&job("t", 1, script, ""));
    let mut command = home.ydl();
    command.args(["logs", "-f", "worker:0"]).stdout(Stdio::piped());
    let mut child = command.spawn().expect("ydl can be started");
    let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    out.read_line(&mut line).expect("a line");
    assert_eq!(line, "one\n");
    let checkpoint = home.path().join("state/ydl/jobs").join(&id).join("checkpoint");
    std::fs::write(checkpoint.join("go"), "").expect("a file");
    let mut rest = String::new();
    out.read_to_string(&mut rest).expect("the rest");
    assert_eq!(rest, "two");
    assert!(child.wait().expect("an exit").success());
}

#[test]
fn a_closed_output_pipe_changes_neither_the_job_nor_its_exit_code() {
    let home = Home::new();
    home.write("job.yaml", &job("t", 1, "yes | head -n 200000; exit 7", ""));
    let mut command = home.ydl();
    command.args(["submit", "job.yaml"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("ydl can be started");
    let mut line = String::new();
    let out = child.stdout.take().expect("a pipe");
    BufReader::new(out).read_line(&mut line).expect("a line");
    assert_eq!(line, "worker:0 | y\n");
    let output = finish(child);
    assert_eq!(output.code, 7, "{output:#?}");

    let mut command = home.ydl();
    let mut child = command.arg("logs").stdout(Stdio::piped()).spawn().expect("ydl");
    drop(child.stdout.take());
    assert_eq!(child.wait().expect("an exit").code(), Some(0));
}

#[test]
fn the_second_interrupt_detaches_at_once() {
    let home = Home::new();
    let script = "trap '' TERM; echo up; while :; do sleep 0.1; done";
    home.write("job.yaml", &job("t", 1, script, ""));
    let mut command = home.ydl();
    command.args(["submit", "job.yaml"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("ydl can be started");
    let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    out.read_line(&mut line).expect("a line");
    kill(child.id(), 2);
    let mut err = BufReader::new(child.stderr.take().expect("a pipe"));
    while !line.contains("stopping the job") {
        line.clear();
        assert_ne!(err.read_line(&mut line).expect("a line"), 0, "no message at the end");
    }
    kill(child.id(), 2);
    let mut rest = String::new();
    err.read_to_string(&mut rest).expect("the rest");
    assert_eq!(child.wait().expect("an exit").code(), Some(130), "{rest}");
    assert!(rest.contains("is still stopping"), "{rest}");
    assert_eq!(home.run(&["kill", "--now", "t"]).code, 0);
    home.wait_until_empty();
}

#[test]
fn json_output_lists_the_events_of_a_job() {
    let home = Home::new();
    home.write("job.yaml", &job("t", 2, "echo hi; exit $YDL_INDEX", ""));
    let output = home.run(&["submit", "--json", "job.yaml"]);
    assert_eq!(output.code, 1, "{output:#?}");
    let all = objects(&output);
    assert!(all[0]["job"]["id"].as_str().is_some_and(|id| id.starts_with("t-")), "{output:#?}");
    assert!(all.iter().any(|o| o["output"]["line"] == "hi"), "{output:#?}");
    assert!(all.iter().any(|o| !o["event"]["kind"]["job-finished"].is_null()), "{output:#?}");
    let last = &all[all.len() - 1]["result"];
    assert_eq!(last["outcome"]["failed"]["task"]["task"], "worker:1", "{output:#?}");
    let detached = object(&home.run(&["submit", "--json", "--detach", "--", "true"]));
    assert!(detached["job"]["id"].is_string());
    home.wait_until_empty();
}

#[test]
fn the_owner_accesses_the_key_value_store_from_the_command_line() {
    let home = Home::new();
    let id = home.detach(&job("t", 1, "sleep 1000", ""));
    let kv = |args: &[&str]| home.run(&[&["kv", "--job", &id], args].concat());
    assert_eq!(kv(&["put", "a/b c", "1"]).code, 0);
    assert_eq!(kv(&["get", "a/b c"]).stdout, "1");
    assert_eq!(object(&kv(&["put", "z", "2", "--json"]))["keys"], 1);
    assert_eq!(kv(&["put", "z", "3", "--if-absent"]).code, 1);
    assert_eq!(kv(&["put", "z", "3", "--if-revision", "2"]).code, 0);
    assert_eq!(kv(&["ls"]).stdout, "a/b c\t1\nz\t3\n");
    assert_eq!(kv(&["ls", "a/"]).stdout, "a/b c\t1\n");
    assert_eq!(kv(&["watch", "--count", "2"]).stdout, "put\ta/b c\t1\nput\tz\t3\n");
    let missing = kv(&["get", "nothing"]);
    assert_eq!((missing.code, missing.stderr.as_str()), (1, "error: no such key `nothing`\n"));
    let waited = kv(&["get", "nothing", "--wait", "20ms"]);
    assert_eq!(waited.code, 1, "{waited:#?}");
    assert!(waited.stderr.contains("was not set within 20ms"), "{waited:#?}");
    assert_eq!(kv(&["get", "nothing", "--wait", "soon"]).code, 2);
    assert_eq!(kv(&["rm", "z"]).code, 0);
    assert_eq!(kv(&["watch", "--after", "3", "--count", "1"]).stdout, "deleted\tz\n");
    assert_eq!(kv(&["emit", "epoch", "7"]).code, 0);
    assert_eq!(kv(&["emit", "loss", "0.5"]).code, 0);
    assert_eq!(kv(&["events"]).stdout, "1\tepoch\t7\n2\tloss\t0.5\n");
    assert_eq!(kv(&["events", "--name", "loss"]).stdout, "2\tloss\t0.5\n");
    assert_eq!(kv(&["events", "--after", "1", "--json"]).stdout.lines().count(), 1);
    assert_eq!(kv(&["rm", "--prefix", "a"]).code, 0);
    assert_eq!(kv(&["ls"]).stdout, "");
    assert_eq!(home.run(&["scale", &id, "chief=2"]).code, 2);
    assert_eq!(home.run(&["kill", "--now", &id]).code, 0);
}

#[test]
fn tasks_get_files_as_they_were_at_submit() {
    let home = Home::new();
    home.write("data.txt", "before");
    let script = "until test -e \"$YDL_CHECKPOINT/go\"; do sleep 0.01; done; cat data.txt";
    let id = home.detach(&job("t", 1, script, "files: [data.txt]"));
    home.write("data.txt", "after");
    running(&home, &id, 1);
    let checkpoint = home.path().join("state/ydl/jobs").join(&id).join("checkpoint");
    std::fs::write(checkpoint.join("go"), "").expect("a file");
    home.wait_until_empty();
    assert_eq!(home.run(&["logs", "worker:0"]).stdout, "before");
}

#[test]
fn cyclic_and_broken_links_in_a_directory_are_handled() {
    use std::os::unix::fs::symlink;
    let home = Home::new();
    home.write("real.txt", "real");
    let data = home.path().join("data");
    std::fs::create_dir(&data).expect("a directory");
    symlink("../real.txt", data.join("file")).expect("a link");
    symlink(".", data.join("circle")).expect("a link");
    symlink("nowhere", data.join("broken")).expect("a link");
    let output = home.submit(&job("t", 1, "cat data/file data/circle/file", "files: [data]"));
    assert_eq!(output.stdout, "worker:0 | realreal\n", "{output:#?}");
    let output = home.submit(&job("t", 1, "true", "files: [{all: .}]"));
    assert_eq!(output.code, 2, "{output:#?}");
    assert!(output.stderr.contains("contains the directory of the job itself"), "{output:#?}");
    assert_eq!(home.run(&["ls", "--json"]).stdout.lines().count(), 1, "files are left");
}

#[test]
fn an_interrupt_while_files_are_copied_starts_no_job_and_leaves_no_files() {
    let home = Home::new();
    let data = home.path().join("data");
    fs::create_dir(&data).expect("a directory");
    for n in 0..30_000 {
        fs::write(data.join(n.to_string()), "").expect("a file");
    }
    let child = home.start("name: t\nfiles: [data]\nroles: {worker: {run: sleep 1000}}\n");
    let jobs = home.path().join("state/ydl/jobs");
    home.wait_for("copying", |_| {
        let job = fs::read_dir(&jobs).ok()?.next()?.ok()?.path();
        job.join("files/data").exists().then_some(())
    });
    kill(child.id(), 2);
    let output = finish(child);
    assert_eq!(output.code, 130, "{output:#?}");
    assert!(output.stderr.contains("nothing was started"), "{output:#?}");
    assert_eq!(fs::read_dir(&jobs).expect("jobs").count(), 0);
    assert!(home.processes().is_empty(), "{:?}", home.processes());
}

#[test]
fn a_job_directory_is_readable_by_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let home = Home::new();
    assert_eq!(home.run(&["submit", "--", "true"]).code, 0);
    let mode = std::fs::metadata(home.job()).expect("a directory").permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

/// Runs a command on a new terminal and prints its output.
const TERMINAL: &str = "
import os, pty, sys
pid, terminal = pty.fork()
if pid == 0:
    os.environ['TERM'] = 'xterm'
    os.execv(sys.argv[1], sys.argv[1:])
while True:
    try: data = os.read(terminal, 65536)
    except OSError: break
    if not data: break
    sys.stdout.buffer.write(data)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
";

#[test]
fn a_terminal_shows_a_task_table_below_the_log_until_the_end() {
    let home = Home::new();
    let script = "echo one; until test -e \"$YDL_CHECKPOINT/go\"; do sleep 0.01; done; echo two";
    home.write("job.yaml", &job("t", 2, script, ""));
    home.write("terminal.py", TERMINAL);
    let mut command = std::process::Command::new("python3");
    command
        .arg("terminal.py")
        .arg(ydl_testkit::ydl())
        .args(["submit", "job.yaml"])
        .current_dir(home.path())
        .env("XDG_STATE_HOME", home.path().join("state"))
        .env_remove("NO_COLOR")
        .stdout(Stdio::piped());
    let mut child = command.spawn().expect("python3 can be started");
    let mut out = child.stdout.take().expect("a pipe");
    let mut seen = Vec::new();
    let mut text = String::new();
    while !text.contains("worker:1  \u{1b}[1mrunning") {
        let mut buffer = [0; 4096];
        let n = out.read(&mut buffer).expect("output");
        assert_ne!(n, 0, "{text}");
        seen.extend_from_slice(&buffer[..n]);
        text = String::from_utf8_lossy(&seen).into_owned();
    }
    std::fs::write(home.job().join("checkpoint/go"), "").expect("a file");
    out.read_to_end(&mut seen).expect("the rest");
    assert_eq!(child.wait().expect("an exit").code(), Some(0));
    let text = String::from_utf8_lossy(&seen);
    assert!(text.contains("TASK      STATE"), "{text}");
    let (_, last) = text.rsplit_once("\u{1b}[J").expect("the table was erased");
    assert!(!last.contains("TASK"), "{last:?}");
    assert!(last.contains("succeeded"), "{last:?}");
    assert_eq!(text.matches(" | two").count(), 2, "{text}");
}

#[test]
fn doctor_checks_this_machine_and_runs_a_test_job() {
    let home = Home::new();
    let checks = objects(&home.run(&["doctor", "--cluster", "local", "--json"]));
    let names: Vec<_> = checks.iter().filter_map(|it| it["check"].as_str()).collect();
    assert_eq!(names, ["machine", "docker", "state directory", "job"], "{checks:#?}");
    let passed = |check: &Value| check["state"] == "ok" || check["state"] == "warning";
    assert!(checks[..4].iter().all(passed), "{checks:#?}");
    let phases = checks[3]["phases"].as_object().expect("phases");
    assert!(phases["container_ms"].as_u64().is_some(), "{checks:#?}");
    assert_eq!(checks[4]["result"]["exit"], 0, "{checks:#?}");

    // A state directory that is not writable is reported before the test job runs.
    fs::write(home.path().join("occupied"), "").expect("a file");
    let mut command = home.ydl();
    command.args(["doctor", "--cluster", "local"]);
    command.env("XDG_STATE_HOME", home.path().join("occupied"));
    let output = CommandOutput::from(command.output().expect("ydl can be started"));
    assert_eq!(output.code, 123, "{output:#?}");
    assert!(output.stderr.starts_with("error: state directory: cannot write `"), "{output:#?}");
    assert!(output.stderr.contains("hint: make it writable"), "{output:#?}");
    assert!(
        output.stdout.contains("skipped  job              because `state directory` failed"),
        "{output:#?}"
    );
    let output = home.run(&["doctor", "--cluster", "local", "--queue", "q"]);
    assert_eq!(output.code, 2, "{output:#?}");
    assert!(output.stderr.contains("`--queue` applies to a cluster"), "{output:#?}");
}

/// A configuration directory that is set but has no Hadoop files.
#[test]
fn a_directory_without_hadoop_configuration_is_reported() {
    let home = Home::new();
    let conf = home.path().join("conf");
    fs::create_dir(&conf).expect("a directory");
    let named = format!("there is no Hadoop configuration in `{}`", conf.display());
    let run = |args: &[&str]| {
        let mut command = home.ydl();
        command.args(args).env("HADOOP_CONF_DIR", &conf);
        CommandOutput::from(command.output().expect("ydl can be started"))
    };
    let output = run(&["doctor"]);
    assert_eq!(output.code, 2, "{output:#?}");
    let first = format!("error: configuration: {named}\n\nhint: set `HADOOP_CONF_DIR`");
    assert!(output.stderr.starts_with(&first), "{output:#?}");
    assert!(output.stderr.contains("`--cluster local`"), "{output:#?}");
    for args in [vec!["submit", "--cluster", "yarn", "--", "true"], vec!["nodes"]] {
        let output = run(&args);
        assert_eq!(output.code, 2, "{output:#?}");
        assert!(output.stderr.starts_with(&format!("error: {named}\n")), "{output:#?}");
    }
    // Without `--cluster` the job runs on this machine, with a note.
    let output = run(&["submit", "--memory", "64MiB", "--", "true"]);
    assert_eq!(output.code, 0, "{output:#?}");
    let note = format!("note: {named}; the job runs on this machine\n");
    assert!(output.stderr.starts_with(&note), "{output:#?}");
}

/// The ResourceManager's port for administrators is open, and the configured client port refuses connections.
#[test]
fn a_resource_manager_that_refuses_clients_is_not_reported_as_standby() {
    let home = Home::new();
    let admin = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let admin = (admin.local_addr().expect("an address"), admin);
    let set = |key: &str, value: &str| {
        format!(
            "<property><name>yarn.resourcemanager.{key}</name><value>{value}</value></property>"
        )
    };
    let conf = home.path().join("conf");
    fs::create_dir(&conf).expect("a directory");
    let keys = set("address", "127.0.0.1:1") + &set("admin.address", &admin.0.to_string());
    let site = home.write("conf/yarn-site.xml", &format!("<configuration>{keys}</configuration>"));
    let mut command = home.ydl();
    command.arg("nodes").env("HADOOP_CONF_DIR", &conf);
    let output = CommandOutput::from(command.output().expect("ydl can be started"));
    assert_eq!(output.code, 122, "{output:#?}");
    let what = format!(
        "error: no ResourceManager can be reached at `127.0.0.1:1`: connection refused; its admin endpoint `{}` is open\n\n\
         hint: check `yarn.resourcemanager.address` in `{}`; or the ResourceManager may still be starting\n",
        admin.0,
        site.display()
    );
    assert!(output.stderr.ends_with(&what), "{output:#?}");
}

#[test]
fn ls_fails_if_jobs_of_the_cluster_cannot_be_listed() {
    let home = Home::new();
    let output = home.submit(&job("short", 1, "true", ""));
    assert_eq!(output.code, 0, "{output:#?}");
    fs::create_dir(home.path().join("conf")).expect("a directory");
    let address =
        "<property><name>yarn.resourcemanager.address</name><value>127.0.0.1:1</value></property>";
    home.write("conf/yarn-site.xml", &format!("<configuration>{address}</configuration>"));
    let mut command = home.ydl();
    let conf = home.path().join("conf");
    command.arg("ls").env("HADOOP_CONF_DIR", conf);
    let output = CommandOutput::from(command.output().expect("ydl can be started"));
    assert_eq!(output.code, 122, "{output:#?}");
    assert!(output.stdout.contains("short"), "{output:#?}");
    assert!(output.stderr.contains("error: no ResourceManager can be reached"), "{output:#?}");
}
