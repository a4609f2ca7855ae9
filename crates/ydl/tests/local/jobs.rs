//! Whole jobs on this machine: real processes, real signals, through the binary alone.

use std::{fs, time::Instant};
use ydl_testkit::{
    CommandOutput, finish,
    local::{Home, WAIT_TIMEOUT, kill},
};

/// A job of one role that runs this shell script.
fn script(instances: u32, script: &str, more: &str) -> String {
    let script = serde_json::to_string(script).expect("a string");
    format!(
        "name: t\nroles:\n  worker:\n    instances: {instances}\n    memory: 256 MiB\n    shell: {script}\n{more}\n"
    )
}

fn assert_failed(ran: &CommandOutput, code: i32, sentence: &str) {
    assert_eq!(ran.code, code, "{ran:#?}");
    assert!(ran.stderr.contains(sentence), "`{sentence}` is not in {}", ran.stderr);
}

#[test]
fn a_job_of_four_tasks_prints_whole_prefixed_lines_and_leaves_nothing() {
    let home = Home::new();
    let ran = home.submit(&script(4, "echo one $YDL_INDEX of $YDL_WORLD_SIZE; echo two", ""));
    assert_eq!(ran.code, 0, "{ran:#?}");
    for index in 0..4 {
        assert!(ran.stdout.contains(&format!("worker:{index} | one {index} of 4\n")), "{ran:#?}");
    }
    assert_eq!(ran.stdout.lines().count(), 8, "{ran:#?}");
    assert!(home.processes().is_empty(), "{:?}", home.processes());
}

#[test]
fn processes_know_their_numbers_threads_and_interface_and_what_is_set_stands() {
    let home = Home::new();
    let text = "name: t\nframework: pytorch\nnetwork: 127.0.0.0/8\nroles: {worker: {instances: 1, \
        processes: 2, vcores: 4, shell: 'echo $YDL_RANK of $YDL_WORLD_SIZE, $YDL_LOCAL_RANK of \
        $YDL_LOCAL_WORLD_SIZE, $OMP_NUM_THREADS threads, $GLOO_SOCKET_IFNAME $NCCL_SOCKET_IFNAME'}}\n";
    home.write("job.yaml", text);
    let submit = |threads: Option<&str>| {
        let mut command = home.ydl();
        command.args(["submit", "job.yaml"]);
        command.env("NCCL_SOCKET_IFNAME", "eth7");
        match threads {
            Some(threads) => command.env("OMP_NUM_THREADS", threads),
            None => command.env_remove("OMP_NUM_THREADS"),
        };
        let ran = CommandOutput::from(command.output().expect("ydl"));
        assert_eq!(ran.code, 0, "{ran:#?}");
        let mut lines: Vec<_> = ran.stdout.lines().map(String::from).collect();
        lines.sort_unstable();
        lines
    };
    let lo = "lo eth7";
    assert_eq!(
        submit(None),
        [
            format!("worker:0 | [0] 0 of 2, 0 of 2, 2 threads, {lo}"),
            format!("worker:0 | [1] 1 of 2, 1 of 2, 2 threads, {lo}"),
        ]
    );
    assert!(submit(Some("7")).iter().all(|line| line.contains(", 7 threads,")));
}

#[test]
fn modules_of_the_job_are_found_beside_those_that_the_user_names() {
    let home = Home::new();
    let module = |name: &str, says: &str| {
        home.write(&format!("{name}.py"), &format!("print('{says}')\n"));
    };
    module("own", "one of the job");
    fs::create_dir(home.path().join("lib")).expect("a directory");
    module("lib/both", "the one that is named");
    module("both", "one of the job");
    // Nothing is found because a program happens to start there.
    let program = "import sys; sys.path.remove(''); import both, own";
    let run = format!("run: [python3, -c, \"{program}\"]");
    let lib = home.path().join("lib").display().to_string();
    let text = format!(
        "name: t\nfiles: [own.py, both.py]\nenv: {{PYTHONPATH: '{lib}'}}\nroles: {{worker: {{{run}}}}}\n"
    );
    let ran = home.submit(&text);
    assert_eq!(ran.code, 0, "{ran:#?}");
    let expected = "worker:0 | the one that is named\nworker:0 | one of the job\n";
    assert_eq!(ran.stdout, expected, "{ran:#?}");
}

/// Takes the port of a task between the moment it is let go and the moment its program listens, so often.
fn steal(times: u32, limit: u32) -> (Home, CommandOutput) {
    let home = Home::new();
    let here = home.path().display();
    let program = format!(
        "import os, socket, time\n\
         port, attempt = int(os.environ['YDL_PORT_WEB']), os.environ['YDL_ATTEMPT']\n\
         first = os.environ['YDL_INDEX'] == '0'\n\
         name = '{here}/port.' + attempt\n\
         if first:\n\
        \x20   open(name + '.new', 'w').write(str(port)); os.rename(name + '.new', name)\n\
        \x20   while not os.path.exists('{here}/go.' + attempt): time.sleep(0.01)\n\
         socket.create_server(('127.0.0.1', port))\n\
         if not first:\n\
        \x20   while not os.path.exists('{here}/done'): time.sleep(0.01)\n\
         else:\n\
        \x20   print('port', port, 'round', os.environ['YDL_ROUND'])\n\
        \x20   open('{here}/done', 'w')\n"
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
            let over = home.path().join("done").exists();
            let read = fs::read_to_string(home.path().join(&name)).ok();
            read.or_else(|| over.then(String::new))
        });
        if let (Ok(port), true) = (port.parse::<u16>(), attempt <= times) {
            stolen.push(std::net::TcpListener::bind(("127.0.0.1", port)).expect("its port"));
        }
        home.write(&format!("go.{attempt}"), "");
    }
    let ran = finish(child);
    assert!(home.processes().is_empty(), "{:?}", home.processes());
    (home, ran)
}

#[test]
fn a_port_that_a_stranger_took_repeats_the_round_and_uses_up_no_restart() {
    let (home, ran) = steal(2, 0);
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert!(ran.stdout.ends_with(" round 3\n"), "{ran:#?}");
    let facts = home.history();
    let told = facts.matches(r#""port-taken""#).count();
    assert_eq!(told, 2, "{facts}");
}

#[test]
fn a_killed_program_starts_a_new_round_and_facts_say_why() {
    let home = Home::new();
    let text = script(
        3,
        "test $YDL_ROUND = 2 && exit 0; echo up; sleep 1000",
        "gang: true\nrestart: {scope: job, limit: 1, backoff: {initial: 10ms, max: 10ms}}",
    );
    let child = home.start(&text);
    home.wait_for("three programs", |home| (home.find("sleep 1000").len() >= 6).then_some(()));
    let victim = home.find("/bin/sh -c test")[0].pid;
    kill(victim, 9);
    let ran = finish(child);
    assert_eq!(ran.code, 0, "{ran:#?}");
    let facts = home.history();
    assert!(facts.contains(r#""round-restarted":{"round":2"#), "{facts}");
    assert!(facts.contains(r#""ending":{"signalled":{"signal":9}}"#), "{facts}");
    assert!(facts.contains(r#""round-started":{"round":2,"tasks":3}"#), "{facts}");
    assert!(home.processes().is_empty(), "{:?}", home.processes());
}

#[test]
fn without_restarts_a_killed_program_fails_the_job_at_once_and_by_name() {
    let home = Home::new();
    let more = "gang: true\ntimeouts: {grace: 1h}";
    let child = home.start(&script(3, "sleep 1000", more));
    home.wait_for("three programs", |home| (home.find("sleep 1000").len() >= 6).then_some(()));
    let victim = home.find("/bin/sh -c sleep")[0].pid;
    let began = Instant::now();
    kill(victim, 9);
    let ran = finish(child);
    // Neither the others' end nor their grace of an hour was waited for.
    assert!(began.elapsed() < WAIT_TIMEOUT, "it took {:?}", began.elapsed());
    assert_failed(&ran, 137, "was killed by SIGKILL on `");
    assert!(ran.stderr.contains("worker:"), "{ran:#?}");
    assert!(home.processes().is_empty(), "{:?}", home.processes());
}

#[test]
fn the_masters_death_ends_everything_and_status_tells_the_truth() {
    let home = Home::new();
    // Long before an agent without news of its master would leave by itself.
    let more = "timeouts: {heartbeat: 1h}";
    let id = home.detach(&script(2, "trap '' HUP; sleep 1000 & wait", more));
    home.wait_for("the programs", |home| (home.find("sleep 1000").len() >= 4).then_some(()));
    kill(home.find(" master ")[0].pid, 9);
    home.wait_until_empty();
    let ran = home.run(&["status", &id]);
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert!((ran.stdout + &ran.stderr).contains("master"), "status does not say what happened");
    let ran = home.run(&["ls"]);
    assert!(ran.stdout.contains("lost"), "{ran:#?}");
}

#[test]
fn an_agents_death_leaves_no_orphan_and_its_task_is_repaired() {
    let home = Home::new();
    let text = script(
        1,
        "test $YDL_ATTEMPT = 2 && exit 0; setsid sleep 1000 & sleep 1000",
        "restart: {limit: 1, backoff: {initial: 1ms, max: 1ms}}",
    );
    let child = home.start(&text);
    home.wait_for("the programs", |home| (home.find("sleep 1000").len() >= 3).then_some(()));
    kill(home.find(" agent ")[0].pid, 9);
    let ran = finish(child);
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert!(home.history().contains(r#""agent-died":{"status":137}"#), "{}", home.history());
    assert!(home.processes().is_empty(), "{:?}", home.processes());
}

#[test]
fn what_agent_and_shim_leave_behind_when_both_are_killed_is_ended() {
    let home = Home::new();
    let text = script(
        1,
        "daemon=$YDL_CHECKPOINT/daemon; \
         if test $YDL_ATTEMPT = 2; then ! kill -0 $(cat $daemon); exit; fi; \
         setsid sleep 1000 & echo $! > $daemon; echo up; sleep 1000",
        "restart: {limit: 1, backoff: {initial: 1ms, max: 1ms}}",
    );
    let child = home.start(&text);
    home.wait_for_job();
    home.wait_for_text(|home| home.job().join("logs/worker/0/1/stdout.0"), "up");
    home.wait_for("the daemon", |home| (home.find("sleep 1000").len() >= 3).then_some(()));
    let agent = home.find(" agent ")[0].pid;
    let shims = fs::read_to_string(format!("/proc/{agent}/task/{agent}/children"));
    let shim = shims.expect("a list").trim().parse().expect("one shim");
    // Neither may clean up after the other.
    for (pid, signal) in [(agent, 19), (shim, 9), (agent, 9)] {
        kill(pid, signal);
    }
    let ran = finish(child);
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert!(home.processes().is_empty(), "{:?}", home.processes());
}

#[test]
fn a_program_that_daemonises_is_ended_with_its_task() {
    let home = Home::new();
    let ran = home.submit(&script(1, "(setsid sh -c 'setsid sleep 1000 &' &); echo gone", ""));
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert!(home.processes().is_empty(), "{:?}", home.processes());
}

#[test]
fn a_program_over_its_memory_is_killed_with_the_figures() {
    let home = Home::new();
    let ran = home.submit(
        "name: t\nroles:\n  worker:\n    memory: 64 MiB\n    run: [python3, -c, 'x = bytearray(75 << 20); import time; time.sleep(1000)']\n",
    );
    assert_failed(&ran, 137, "of 64 MiB memory");
    assert!(home.processes().is_empty(), "{:?}", home.processes());
}

#[test]
fn what_ydl_needs_itself_is_not_charged_to_a_task() {
    let home = Home::new();
    let ran = home
        .submit("name: t\nroles:\n  worker:\n    memory: 32 MiB\n    shell: sleep 3; echo done\n");
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert!(ran.stdout.contains("worker:0 | done\n"), "{ran:#?}");
}

#[test]
fn memory_can_grow_after_such_a_kill() {
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
fn a_program_may_clean_up_within_its_grace() {
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

#[test]
fn what_cannot_be_executed_is_told_in_three_sentences() {
    let home = Home::new();
    let run = |name: &str| {
        let job = format!("name: t\nfiles: [{name}]\nroles: {{worker: {{run: ./{name}}}}}\n");
        home.submit(&job)
    };
    let ran = home.submit("name: t\nroles: {worker: {run: no-such-program}}\n");
    assert_failed(&ran, 120, "could not be started");
    assert!(ran.stderr.contains("no-such-program"), "{ran:#?}");
    home.write("plain", "just text\n");
    let refused = run("plain");
    assert_failed(&refused, 120, "not executable");
    let foreign = home.write("foreign", "\u{7f}ELF\u{2}\u{1}\u{1}");
    let mut bytes = fs::read(&foreign).expect("the file");
    bytes.resize(64, 0);
    // An ELF header for another machine: 64-bit PowerPC.
    bytes[16] = 2;
    bytes[18] = 21;
    fs::write(&foreign, bytes).expect("the file");
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(&foreign, fs::Permissions::from_mode(0o755)).expect("its mode");
    let wrong = run("foreign");
    assert_failed(&wrong, 120, "could not be started");
    let sentence = |ran: &CommandOutput| {
        let line = ran.stderr.lines().find(|line| line.contains("could not be started"));
        line.expect("a sentence").to_owned()
    };
    assert_ne!(sentence(&ran), sentence(&refused));
    assert_ne!(sentence(&refused), sentence(&wrong));
}

#[test]
fn a_port_range_that_is_used_up_is_told_as_such() {
    let home = Home::new();
    let ran = home.submit(
        "name: t\nports: 31999-31999\ngang: true\nroles: {worker: {instances: 2, ports: [http], run: 'true'}}\n",
    );
    assert_failed(&ran, 120, "31999");
}

#[test]
fn a_port_is_really_free_when_the_program_binds_it() {
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
fn invalid_utf8_passes_unchanged() {
    let home = Home::new();
    home.write("job.yaml", &script(1, r"printf 'a\377\376b\n'", ""));
    let output = home.ydl().args(["submit", "job.yaml"]).output().expect("ydl");
    assert!(output.stdout.windows(4).any(|bytes| bytes == b"a\xff\xfeb"), "{output:?}");
}

#[test]
fn a_line_without_end_costs_neither_memory_nor_the_job() {
    let home = Home::new();
    // The agent must fit beside the program in 64 MiB, whatever the program prints.
    let ran = home.submit(
        "name: t\nroles: {worker: {memory: 64 MiB, shell: 'head -c 300000000 /dev/zero | tr \"\\\\0\" x; echo; echo end'}}\n",
    );
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.contains("end\n"), "the end of the output is missing");
}

#[test]
fn outputs_are_copied_also_after_a_failure() {
    let home = Home::new();
    let ran = home.submit(&script(
        2,
        "mkdir model; echo $YDL_INDEX > model/weights; exit 3",
        "outputs: {model/: 'result/{role}-{index}'}\nrestart: {limit: 0}\ngang: true",
    ));
    assert_eq!(ran.code, 3, "{ran:#?}");
    let copied = |index: u32| home.path().join(format!("result/worker-{index}/weights")).exists();
    assert!(copied(0) || copied(1), "no outputs were copied");
}

#[test]
fn exit_codes_are_those_of_the_table() {
    let home = Home::new();
    assert_eq!(home.submit(&script(1, "exit 0", "")).code, 0);
    assert_eq!(home.submit(&script(1, "exit 42", "")).code, 42);
    assert_eq!(home.submit(&script(1, "kill -TERM $$", "")).code, 143);
    assert_eq!(home.submit(&script(1, "sleep 1000", "timeouts: {run: 200ms}")).code, 120);
    assert_eq!(home.run(&["status", "nobody"]).code, 2);
    assert_eq!(home.run(&["submit", "no-such-file.yaml"]).code, 2);
}

#[test]
fn what_can_never_fit_fails_before_anything_starts() {
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
fn tasks_that_start_on_their_own_take_turns() {
    let home = Home::new();
    home.write("job.yaml", &script(5, "echo $YDL_INDEX", ""));
    let ran = home.run(&["submit", "--resources", "vcores=1", "job.yaml"]);
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert_eq!(ran.stdout.lines().count(), 5);
}

#[test]
fn services_are_stopped_when_the_others_are_done() {
    let home = Home::new();
    let ran = home.submit(
        "name: t\ngang: true\nroles:\n  chief: {shell: 'echo done'}\n  ps: {instances: 2, completion: service, shell: 'sleep 1000'}\n",
    );
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert!(home.processes().is_empty(), "{:?}", home.processes());
}

#[test]
fn a_role_can_grow_and_shrink_while_it_runs() {
    let home = Home::new();
    let id = home.detach(&script(1, "sleep 1000", ""));
    let running =
        |n: usize| move |home: &Home| (home.find("/bin/sh -c sleep").len() == n).then_some(());
    home.wait_for("one task", running(1));
    assert_eq!(home.run(&["scale", &id, "worker=3"]).code, 0);
    home.wait_for("three tasks", running(3));
    assert_eq!(home.run(&["scale", &id, "worker=2"]).code, 0);
    home.wait_for("two tasks", running(2));
    assert_eq!(home.run(&["kill", &id]).code, 0);
    home.wait_until_empty();
}

#[test]
fn programs_meet_in_the_key_value_store() {
    let home = Home::new();
    let ydl = ydl_testkit::ydl().display().to_string();
    let text = format!(
        "if test $YDL_INDEX = 0; then {ydl} kv put address here; else {ydl} kv get address --wait 30s; fi"
    );
    let ran = home.submit(&script(2, &text, "gang: true"));
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert!(ran.stdout.contains("worker:1 | here"), "{ran:#?}");
}

#[test]
fn a_token_of_a_program_opens_nothing_but_the_store() {
    let home = Home::new();
    let program = r#"
import os, ssl, urllib.request, urllib.error
context = ssl.create_default_context(cafile=os.environ["YDL_CERTIFICATE_FILE"])
token = open(os.environ["YDL_TOKEN_FILE"]).read().strip()
assert (os.stat(os.environ["YDL_TOKEN_FILE"]).st_mode & 0o77) == 0
def ask(path, token=token):
    request = urllib.request.Request(os.environ["YDL_MASTER"] + path, headers={"Authorization": "Bearer " + token})
    try: return urllib.request.urlopen(request, context=context, timeout=20).status
    except urllib.error.HTTPError as error: return error.code
print(ask("/v1/kv"), ask("/v1/view"), ask("/v1/kv", "client.00"))
assert not any(token in value for value in os.environ.values())
"#;
    home.write("ask.py", program);
    let ran = home.submit("name: t\nfiles: [ask.py]\nroles: {worker: {run: python3 ask.py}}\n");
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert!(ran.stdout.contains("200 403 401"), "{ran:#?}");
}

#[test]
fn the_same_job_twice_at_once_is_two_jobs() {
    let home = Home::new();
    let text = script(2, "echo $YDL_JOB", "gang: true");
    let (one, two) = (home.start(&text), home.start(&text));
    let (one, two) = (finish(one), finish(two));
    assert_eq!((one.code, two.code), (0, 0), "{one:#?} {two:#?}");
    assert_ne!(one.stdout, two.stdout);
}

#[test]
fn one_interrupt_stops_the_job_and_waits() {
    let home = Home::new();
    let child = home.start(&script(
        2,
        "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.1; done",
        "",
    ));
    let log = |home: &Home| home.job().join("logs/worker/1/1/stdout.0");
    home.wait_for_job();
    home.wait_for_text(log, "up");
    kill(child.id(), 2);
    let ran = finish(child);
    assert_eq!(ran.code, 121, "{ran:#?}");
    assert!(ran.stdout.contains("bye"), "{ran:#?}");
    assert!(home.processes().is_empty(), "{:?}", home.processes());
}

#[test]
fn a_client_that_dies_changes_nothing() {
    let home = Home::new();
    let go = home.path().join("go");
    let text = format!("until test -e {}; do sleep 0.1; done", go.display());
    let mut child = home.start(&script(1, &text, ""));
    home.wait_for("the program", |home| (!home.find("/bin/sh -c until").is_empty()).then_some(()));
    kill(child.id(), 9);
    child.wait().expect("a child");
    fs::write(go, "").expect("a file");
    home.wait_for_text(history_file, r#""job-finished":{"outcome":"succeeded"}"#);
    home.wait_until_empty();
}

#[test]
fn an_agent_that_hangs_is_noticed_and_its_task_repaired() {
    let home = Home::new();
    let stopped = home.path().join("stopped");
    // On a busy machine an agent may miss so short a time by itself, and is replaced as often as that happens.
    let text = script(
        1,
        &format!("test -e {} && exit 0; sleep 1000", stopped.display()),
        "timeouts: {heartbeat: 1s, run: 10m}\nrestart: {limit: 100, backoff: {initial: 1ms, max: 1ms}}",
    );
    let child = home.start(&text);
    home.wait_for("the program", |home| (home.find("sleep 1000").len() >= 2).then_some(()));
    fs::write(stopped, "").expect("a file");
    for agent in home.find(" agent ") {
        kill(agent.pid, 19);
    }
    let ran = finish(child);
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert!(home.history().contains(r#""heartbeat-timeout":"#), "{}", home.history());
    assert!(home.processes().is_empty(), "{:?}", home.processes());
}

#[test]
fn an_agent_that_was_quiet_for_a_moment_is_kept() {
    let home = Home::new();
    // It goes on for longer than an agent may be silent, which is long after a quiet one is missed.
    let text = script(1, "echo up; sleep 14", "timeouts: {heartbeat: 8s}");
    let child = home.start(&text);
    home.wait_for_job();
    home.wait_for_text(|home| home.job().join("logs/worker/0/1/stdout.0"), "up");
    let agent = home.find(" agent ")[0].pid;
    kill(agent, 19);
    home.wait_for_text(|home| home.job().join("master.log"), "missed heartbeats of an agent");
    kill(agent, 18);
    let ran = finish(child);
    assert_eq!(ran.code, 0, "{ran:#?}");
}

#[test]
fn a_program_that_somebody_has_stopped_is_ended_and_starts_again() {
    let home = Home::new();
    let text = script(
        1,
        "test $YDL_ATTEMPT = 2 && exit 0; echo up; exec sleep 1000",
        "timeouts: {heartbeat: 6s}\nrestart: {limit: 1, backoff: {initial: 1ms, max: 1ms}}",
    );
    let child = home.start(&text);
    home.wait_for_job();
    home.wait_for_text(|home| home.job().join("logs/worker/0/1/stdout.0"), "up");
    kill(home.find("sleep 1000")[0].pid, 19);
    let ran = finish(child);
    assert_eq!(ran.code, 0, "{ran:#?}");
    let facts = home.history();
    assert!(facts.contains("was stopped (SIGSTOP) for "), "{facts}");
    assert!(home.processes().is_empty(), "{:?}", home.processes());
}

#[test]
fn programs_have_the_limits_of_whoever_submits() {
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

#[test]
fn a_job_inside_a_job_sees_nothing_of_the_one_around_it() {
    let home = Home::new();
    home.write("job.yaml", &script(1, "env | grep -c OUTER", ""));
    let mut command = home.ydl();
    command.args(["submit", "job.yaml"]);
    command.env("YDL_PORT_OUTER", "1").env("MINE_OUTER", "1");
    let ran = CommandOutput::from(command.output().expect("ydl"));
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "worker:0 | 1\n"));
}

#[test]
fn a_signal_to_the_master_ends_the_job_in_order() {
    let home = Home::new();
    let text = script(2, "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.1; done", "");
    let id = home.detach(&text);
    for index in 0..2 {
        let log = |home: &Home| home.job().join(format!("logs/worker/{index}/1/stdout.0"));
        home.wait_for_text(log, "up");
    }
    kill(home.find(" master ")[0].pid, 15);
    home.wait_until_empty();
    let log = fs::read_to_string(home.job().join("logs/worker/1/1/stdout.0"));
    assert!(log.is_ok_and(|log| log.ends_with("bye\n")));
    let ran = home.run(&["status", &id]);
    assert!(ran.stdout.contains("killed"), "{ran:#?}");
    let facts = home.history();
    assert!(facts.contains("SIGTERM to the master"), "{facts}");
}

#[test]
fn a_second_master_of_a_job_changes_nothing() {
    let home = Home::new();
    let id = home.detach(&script(1, "echo up; sleep 1000", ""));
    home.wait_for_text(|home| home.job().join("logs/worker/0/1/stdout.0"), "up");
    // It leads a session of its own, or it would not outlive its terminal.
    let master = home.find(" master ")[0].pid;
    let stat = fs::read_to_string(format!("/proc/{master}/stat")).expect("a process");
    let session = stat.rsplit(')').next().and_then(|rest| rest.split(' ').nth(4));
    assert_eq!(session, Some(master.to_string().as_str()));
    let job = home.job();
    let ran = home.run(&["master", job.to_str().expect("a path")]);
    assert_ne!(ran.code, 0, "{ran:#?}");
    assert!(ran.stdout.contains("journal"), "{ran:#?}");
    let ran = home.run(&["kill", &id]);
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert!(home.processes().is_empty(), "{:?}", home.processes());
}

#[test]
fn a_container_that_is_gone_changes_nothing_in_the_store() {
    let home = Home::new();
    let ydl = ydl_testkit::ydl().display().to_string();
    let text = script(
        1,
        &format!(
            "old=$YDL_CHECKPOINT/old; \
             if test $YDL_ATTEMPT = 1; then \
             cp -p $YDL_TOKEN_FILE $old; cp -p ${{YDL_TOKEN_FILE%program.token}}agent.token $old.agent; exit 1; fi; \
             python3 ask.py $old.agent; \
             YDL_TOKEN_FILE=$old {ydl} kv put a 1; echo put $?; \
             {ydl} kv put a 2 && {ydl} kv get a"
        ),
        "files: [ask.py]\nrestart: {limit: 1, backoff: {initial: 1ms, max: 1ms}}",
    );
    home.write(
        "ask.py",
        r#"
import os, ssl, sys, urllib.request
context = ssl.create_default_context(cafile=os.environ["YDL_CERTIFICATE_FILE"])
request = urllib.request.Request(
    os.environ["YDL_MASTER"] + "/v1/sync",
    data=b'{"reports": [], "order": 0, "usage": null}',
    headers={"Authorization": "Bearer " + open(sys.argv[1]).read().strip(), "ydl-version": "1"},
)
print(urllib.request.urlopen(request, context=context, timeout=20).read().decode())
"#,
    );
    let ran = home.submit(&text);
    assert_eq!(ran.code, 0, "{ran:#?}");
    // Its agent, were it still there, is told to stop.
    assert!(ran.stdout.contains(r#""order":{"stop":"#), "{ran:#?}");
    assert!(ran.stdout.contains("has ended and cannot change keys"), "{ran:#?}");
    assert!(ran.stdout.contains("put 2") && ran.stdout.contains("| 2\n"), "{ran:#?}");
}

fn history_file(home: &Home) -> std::path::PathBuf {
    home.job().join("history.jsonl")
}
