//! Limits of programs: memory, time to end, ports, and the resources of the machine.

use super::{assert_failed, script};
use std::fs;
use ydl_testkit::{CommandOutput, finish, local::Home};

#[test]
fn a_program_over_its_memory_limit_is_killed_with_used_and_allowed_memory() {
    let home = Home::new();
    let ran = home.submit(
        "name: t\nroles:\n  worker:\n    memory: 64 MiB\n    run: [python3, -c, 'x = bytearray(75 << 20); import time; time.sleep(1000)']\n",
    );
    assert_failed(&ran, 137, "of 64 MiB memory");
    assert!(home.processes().is_empty(), "{:?}", home.processes());
}

#[test]
fn memory_of_the_agent_is_not_charged_to_the_task() {
    let home = Home::new();
    let ran = home
        .submit("name: t\nroles:\n  worker:\n    memory: 32 MiB\n    shell: sleep 3; echo done\n");
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert!(ran.stdout.contains("worker:0 | done\n"), "{ran:#?}");
}

#[test]
fn memory_grows_after_a_memory_limit_kill() {
    let home = Home::new();
    let ran = home.submit(
        "name: t\nroles:\n  worker:\n    memory: 64 MiB\n    memory_growth: {percent: 900, max: 1 GiB}\n    restart: {limit: 1, backoff: {initial: 1ms, max: 1ms}}\n    run: [python3, -c, 'import os, time; x = bytearray(200 << 20); time.sleep(1000 if os.environ[\"YDL_ATTEMPT\"] == \"1\" else 3)']\n",
    );
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert!(home.history().contains(r#""memory-increased":{"task":"worker:0","memory_mib":640}"#));
}

#[test]
fn a_program_that_ignores_sigterm_is_killed_after_its_grace() {
    let home = Home::new();
    let text =
        script(1, "trap '' TERM; echo up; while :; do sleep 1; done", "timeouts: {grace: 300ms}");
    let id = home.detach(&text);
    let log = |home: &Home| home.job().join("logs/worker/0/1/stdout.0");
    home.wait_for_text(log, "up");
    let ran = home.run(&["kill", &id]);
    assert_eq!(ran.code, 0, "{ran:#?}");
    home.wait_until_empty();
    assert!(
        home.history().contains(r#""job-finished":{"outcome":{"killed""#),
        "{}",
        home.history()
    );
}

#[test]
fn a_program_can_clean_up_within_its_grace_period() {
    let home = Home::new();
    let text =
        script(1, "trap 'echo saved; exit 0' TERM; echo up; while :; do sleep 0.1; done", "");
    let id = home.detach(&text);
    let log = |home: &Home| home.job().join("logs/worker/0/1/stdout.0");
    home.wait_for_text(log, "up");
    assert_eq!(home.run(&["kill", &id]).code, 0);
    home.wait_for_text(log, "saved");
    home.wait_until_empty();
}

/// Runs a job of two tasks, and takes the first task's port `times` times between its release and the program's bind.
fn steal(times: u32, limit: u32) -> (Home, CommandOutput) {
    let home = Home::new();
    let dir = home.path().display();
    let program = format!(
        "import os, socket, time\n\
         port, attempt = int(os.environ['YDL_PORT_WEB']), os.environ['YDL_ATTEMPT']\n\
         first = os.environ['YDL_INDEX'] == '0'\n\
         name = '{dir}/port.' + attempt\n\
         if first:\n\
        \x20   open(name + '.new', 'w').write(str(port)); os.rename(name + '.new', name)\n\
        \x20   while not os.path.exists('{dir}/go.' + attempt): time.sleep(0.01)\n\
         socket.create_server(('127.0.0.1', port))\n\
         if not first:\n\
        \x20   while not os.path.exists('{dir}/done'): time.sleep(0.01)\n\
         else:\n\
        \x20   print('port', port, 'round', os.environ['YDL_ROUND'])\n\
        \x20   open('{dir}/done', 'w')\n"
    );
    let program = serde_json::to_string(&program).expect("a string");
    let text = format!(
        "name: t\ngang: true\nrestart: {{limit: {limit}, backoff: {{initial: 1ms, max: 1ms}}}}\n\
         roles: {{worker: {{instances: 2, ports: [web], run: [python3, -c, {program}]}}}}\n"
    );
    let child = home.start(&text);
    let mut stolen = Vec::new();
    for attempt in 1..=times + 1 {
        let name = format!("port.{attempt}");
        let port = home.wait_for(&name, |home| {
            let ended = home.path().join("done").exists();
            let read = fs::read_to_string(home.path().join(&name)).ok();
            read.or_else(|| ended.then(String::new))
        });
        if let (Ok(port), true) = (port.parse::<u16>(), attempt <= times) {
            stolen.push(std::net::TcpListener::bind(("127.0.0.1", port)).expect("a port"));
        }
        home.write(&format!("go.{attempt}"), "");
    }
    let ran = finish(child);
    assert!(home.processes().is_empty(), "{:?}", home.processes());
    (home, ran)
}

#[test]
fn a_port_taken_by_another_process_restarts_the_round_without_using_an_attempt() {
    let (home, ran) = steal(2, 0);
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert!(ran.stdout.ends_with(" round 3\n"), "{ran:#?}");
    let history = home.history();
    let reported = history.matches(r#""port-taken""#).count();
    assert_eq!(reported, 2, "{history}");
}

#[test]
fn an_exhausted_port_range_is_reported() {
    let home = Home::new();
    let ran = home.submit(
        "name: t\nports: 31999-31999\ngang: true\nroles: {worker: {instances: 2, ports: [http], run: 'true'}}\n",
    );
    assert_failed(&ran, 120, "31999");
}

#[test]
fn a_reserved_port_can_be_bound_by_the_program() {
    let home = Home::new();
    let program = r#"import os, socket; s = socket.socket(); s.bind(("127.0.0.1", int(os.environ["YDL_PORT_HTTP"]))); s.listen(); print("bound")"#;
    let program = serde_json::to_string(program).expect("a string");
    let ran = home.submit(&format!(
        "name: t\ngang: true\nroles: {{worker: {{instances: 4, ports: [http], run: [python3, -c, {program}]}}}}\n"
    ));
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert_eq!(ran.stdout.matches("bound").count(), 4, "{ran:#?}");
}

#[test]
fn a_very_long_line_takes_bounded_memory() {
    let home = Home::new();
    // The agent must fit beside the program in 64 MiB, whatever the program prints.
    let ran = home.submit(
        "name: t\nroles: {worker: {memory: 64 MiB, shell: 'head -c 300000000 /dev/zero | tr \"\\\\0\" x; echo; echo end'}}\n",
    );
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.contains("end\n"), "the end of the output is missing");
}

#[test]
fn a_job_that_can_never_fit_is_rejected_before_the_start() {
    let home = Home::new();
    let ran = home.submit("name: t\nroles: {worker: {memory: 900 TiB, run: 'true'}}\n");
    assert_failed(&ran, 2, "memory");
    let ran = home.submit("name: t\nroles: {worker: {gpus: 99, run: 'true'}}\n");
    assert_failed(&ran, 2, "99 GPUs");
    home.write("job.yaml", "name: t\ngang: true\nroles: {worker: {instances: 9, run: 'true'}}\n");
    let ran = home.run(&["submit", "--resources", "vcores=8", "job.yaml"]);
    assert_failed(&ran, 2, "9 vcores");
    assert!(!home.path().join("state/ydl/jobs").exists() || home.processes().is_empty());
}

#[test]
fn independent_tasks_run_one_after_another_on_a_small_machine() {
    let home = Home::new();
    home.write("job.yaml", &script(5, "echo $YDL_INDEX", ""));
    let ran = home.run(&["submit", "--resources", "vcores=1", "job.yaml"]);
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert_eq!(ran.stdout.lines().count(), 5);
}

#[test]
fn programs_have_the_resource_limits_of_the_submitter() {
    let home = Home::new();
    home.write("job.yaml", &script(1, "ulimit -Sn", ""));
    let ydl = home.ydl();
    let limited = format!("ulimit -Sn 300; exec {} submit job.yaml", ydl.get_program().display());
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &limited]).current_dir(home.path());
    command.env("XDG_STATE_HOME", home.path().join("state"));
    let ran = CommandOutput::from(command.output().expect("a shell"));
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "worker:0 | 300\n"));
}
