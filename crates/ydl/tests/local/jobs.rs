//! Whole jobs on this machine, with real processes and signals, through the binary.

mod failures;
mod limits;

use std::fs;
use ydl_testkit::{CommandOutput, finish, local::Home};

/// Returns a job file with one role that runs this shell script.
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
fn output_lines_are_whole_and_prefixed_and_no_process_is_left() {
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
fn processes_get_rank_thread_and_interface_variables_unless_set() {
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
fn modules_of_the_job_are_importable_after_those_in_pythonpath() {
    let home = Home::new();
    let module = |name: &str, says: &str| {
        home.write(&format!("{name}.py"), &format!("print('{says}')\n"));
    };
    module("own", "one of the job");
    fs::create_dir(home.path().join("lib")).expect("a directory");
    module("lib/both", "the one that is named");
    module("both", "one of the job");
    // Modules must be found without the current directory.
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

#[test]
fn programs_that_cannot_be_executed_have_different_errors() {
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
    let elf = home.write("elf", "\u{7f}ELF\u{2}\u{1}\u{1}");
    let mut bytes = fs::read(&elf).expect("the file");
    bytes.resize(64, 0);
    // An ELF header for another machine: 64-bit PowerPC.
    bytes[16] = 2;
    bytes[18] = 21;
    fs::write(&elf, bytes).expect("the file");
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(&elf, fs::Permissions::from_mode(0o755)).expect("a mode");
    let wrong = run("elf");
    assert_failed(&wrong, 120, "could not be started");
    let sentence = |ran: &CommandOutput| {
        let line = ran.stderr.lines().find(|line| line.contains("could not be started"));
        line.expect("a sentence").to_owned()
    };
    assert_ne!(sentence(&ran), sentence(&refused));
    assert_ne!(sentence(&refused), sentence(&wrong));
}

#[test]
fn output_that_is_not_utf8_passes_unchanged() {
    let home = Home::new();
    home.write("job.yaml", &script(1, r"printf 'a\377\376b\n'", ""));
    let output = home.ydl().args(["submit", "job.yaml"]).output().expect("ydl");
    assert!(output.stdout.windows(4).any(|bytes| bytes == b"a\xff\xfeb"), "{output:?}");
}

#[test]
fn outputs_are_copied_after_a_failure() {
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
fn exit_codes_match_the_reference() {
    let home = Home::new();
    assert_eq!(home.submit(&script(1, "exit 0", "")).code, 0);
    assert_eq!(home.submit(&script(1, "exit 42", "")).code, 42);
    assert_eq!(home.submit(&script(1, "kill -TERM $$", "")).code, 143);
    assert_eq!(home.submit(&script(1, "sleep 1000", "timeouts: {run: 200ms}")).code, 120);
    assert_eq!(home.run(&["status", "nobody"]).code, 2);
    assert_eq!(home.run(&["submit", "no-such-file.yaml"]).code, 2);
}

#[test]
fn services_are_stopped_when_the_other_roles_are_done() {
    let home = Home::new();
    let ran = home.submit(
        "name: t\ngang: true\nroles:\n  chief: {shell: 'echo done'}\n  ps: {instances: 2, completion: service, shell: 'sleep 1000'}\n",
    );
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert!(home.processes().is_empty(), "{:?}", home.processes());
}

#[test]
fn a_role_is_scaled_up_and_down_while_it_runs() {
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
fn programs_exchange_values_through_the_key_value_store() {
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
fn the_token_of_a_program_authorizes_only_the_key_value_store() {
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
fn concurrent_submissions_of_one_job_file_are_separate_jobs() {
    let home = Home::new();
    let text = script(2, "echo $YDL_JOB", "gang: true");
    let (one, two) = (home.start(&text), home.start(&text));
    let (one, two) = (finish(one), finish(two));
    assert_eq!((one.code, two.code), (0, 0), "{one:#?} {two:#?}");
    assert_ne!(one.stdout, two.stdout);
}

#[test]
fn a_nested_job_does_not_inherit_variables_of_the_outer_job() {
    let home = Home::new();
    home.write("job.yaml", &script(1, "env | grep -c OUTER", ""));
    let mut command = home.ydl();
    command.args(["submit", "job.yaml"]);
    command.env("YDL_PORT_OUTER", "1").env("MINE_OUTER", "1");
    let ran = CommandOutput::from(command.output().expect("ydl"));
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "worker:0 | 1\n"));
}

#[test]
fn an_ended_container_cannot_write_to_the_key_value_store() {
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
    // A sync with the old agent's token gets the order to stop.
    assert!(ran.stdout.contains(r#""order":{"stop":"#), "{ran:#?}");
    assert!(ran.stdout.contains("has ended and cannot change keys"), "{ran:#?}");
    assert!(ran.stdout.contains("put 2") && ran.stdout.contains("| 2\n"), "{ran:#?}");
}
