//! MLflow's own server beside jobs on this machine: what the master tells it, what programs tell it themselves, and servers
//! that are not there or talk nonsense.

mod boards;
mod home;

use boards::{Tracking, program};
use home::{Home, finish};
use std::{
    fs,
    io::{Read, Write},
    net::TcpListener,
    thread,
};

#[test]
fn a_job_is_a_run_with_its_parameters_metrics_artifacts_and_outcome() {
    let home = Home::new();
    let server = Tracking::start(home.path());
    fs::copy(program("tracked.py"), home.path().join("tracked.py")).expect("the program");
    let environment = boards::environment().display();
    let ran = home.submit(&format!(
        "name: tracked\nframework: pytorch\nenvironment: {environment}\nfiles: [tracked.py]\nenv: {{PASSWORD: hidden}}\n\
         mlflow: {{uri: 'http://{}', experiment: digits, run_name: first, tags: {{team: vision}}}}\n\
         roles: {{worker: {{instances: 2, memory: 512 MiB, run: python tracked.py}}}}\n",
        server.at
    ));
    assert_eq!(ran.code, 0, "{ran:#?}");
    let run = server.only_run("digits");
    assert_eq!(run["info"]["status"], "FINISHED", "{run}");
    assert_eq!(run["info"]["run_name"], "first", "{run}");
    let id = run["info"]["run_id"].as_str().expect("an id").to_owned();
    assert!(ran.out.contains(&format!("run {id}")), "{ran:#?}");
    let param = |key: &str| boards::of(&run["data"]["params"], key);
    assert_eq!(param("framework"), "pytorch");
    assert_eq!(param("worker.instances"), "2");
    assert_eq!(param("worker.memory_mib"), "512");
    assert_eq!(param("worker.command"), "python tracked.py");
    // What a program has told MLflow by itself.
    assert_eq!(param("own"), "yes");
    let tag = |key: &str| boards::of(&run["data"]["tags"], key);
    assert_eq!(
        (tag("team").as_str(), tag("mlflow.source.name").as_str()),
        ("vision", "tracked")
    );
    // What it has reported to the master.
    for rank in 0..2 {
        let metric = boards::of(&run["data"]["metrics"], &format!("worker/{rank}/loss"));
        assert_eq!(metric, (0.25 + f64::from(rank)).to_string(), "{run}");
    }
    let files = server.artifacts(&id);
    for name in [
        "ydl/job.json",
        "ydl/facts.jsonl",
        "ydl/logs/worker-0/stdout.txt",
    ] {
        assert!(
            files.iter().any(|(path, _)| path.ends_with(name)),
            "{name} in {files:?}"
        );
    }
    let whole: String = files.iter().map(|(_, text)| text.as_str()).collect();
    assert!(whole.contains(&format!("run {id}")) && !whole.contains("hidden"));
    drop(server);
    home.wait_until_empty();
}

#[test]
fn a_job_that_fails_is_a_run_that_failed() {
    let home = Home::new();
    let server = Tracking::start(home.path());
    let ran = home.submit(&format!(
        "name: sad\nmlflow: 'http://{}'\nroles: {{worker: {{memory: 64 MiB, shell: 'exit 3'}}}}\n",
        server.at
    ));
    assert_eq!(ran.code, 3, "{ran:#?}");
    assert_eq!(server.only_run("sad")["info"]["status"], "FAILED");
}

#[test]
fn without_a_server_a_job_runs_as_if_nobody_had_asked() {
    let home = Home::new();
    // Nobody listens there any more.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("an address");
    drop(listener);
    let ran = home.submit(&format!(
        "name: alone\nmlflow: {{uri: 'http://{at}'}}\n\
         roles: {{worker: {{memory: 64 MiB, shell: 'echo at $MLFLOW_TRACKING_URI run $MLFLOW_RUN_ID.'}}}}\n"
    ));
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert!(
        ran.out.contains(&format!("at http://{at} run .")),
        "{ran:#?}"
    );
    let log = fs::read_to_string(home.job().join("master.log")).expect("its log");
    assert!(
        log.contains("was not told everything yet: connection refused"),
        "{log}"
    );
}

/// Answers everybody with this.
fn lies(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("an address").to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut head = [0; 4096];
            // Whatever it is that was asked, and whoever has gone meanwhile.
            let _ = stream.read(&mut head);
            let _ = stream.write_all(answer);
        }
    });
    at
}

#[test]
fn a_server_that_talks_nonsense_changes_nothing() {
    let lies = [
        lies(b"SSH-2.0-OpenSSH_9.0\r\n"),
        lies(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n<html>"),
        lies(b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n"),
        lies(b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{\"experiment\": {\"experiment_id\": \"../../etc/passwd\"}}"),
    ];
    for at in lies {
        let home = Home::new();
        let ran = home.submit(&format!(
            "name: lied\nmlflow: 'http://{at}'\nroles: {{worker: {{memory: 64 MiB, shell: 'echo run $MLFLOW_RUN_ID.'}}}}\n"
        ));
        assert_eq!(ran.code, 0, "{ran:#?}");
        assert!(ran.out.contains("run ."), "{ran:#?}");
    }
}

#[test]
fn secrets_are_refused_where_others_would_see_them() {
    let home = Home::new();
    let check = |mlflow: &str, env: &str, sentence: &str| {
        let ran = home.submit(&format!(
            "name: open\nmlflow: {mlflow}\nenv: {env}\nroles: {{worker: {{run: 'true'}}}}\n"
        ));
        assert_eq!(ran.code, 2, "{ran:#?}");
        assert!(
            ran.err.contains(sentence),
            "`{sentence}` is not in {ran:#?}"
        );
    };
    check(
        "'http://me:word@host'",
        "{}",
        "an address with a password in it",
    );
    check(
        "'http://host'",
        "{MLFLOW_TRACKING_TOKEN: x}",
        "would be seen by whoever sees the job",
    );
    check(
        "sqlite:///x.db",
        "{}",
        "begins with neither `http://` nor `https://`",
    );
    check(
        "{uri: 'http://host', token_file: nowhere}",
        "{}",
        "`nowhere` cannot be read",
    );
}

/// A token reaches the server and nobody else.
#[test]
fn a_token_goes_to_the_server_and_into_no_file_that_others_read() {
    let home = Home::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("an address");
    let asked = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a call");
        let mut head = [0; 4096];
        let length = stream.read(&mut head).expect("its head");
        let _ = stream.write_all(b"HTTP/1.1 401 No\r\ncontent-length: 0\r\n\r\n");
        String::from_utf8_lossy(&head[..length]).into_owned()
    });
    home.write("token", "very-secret-word\n");
    let child = home.start(&format!(
        "name: token\nmlflow: {{uri: 'http://{at}', token_file: token}}\nroles: {{worker: {{memory: 64 MiB, run: env}}}}\n"
    ));
    let ran = finish(child);
    assert_eq!(ran.code, 0, "{ran:#?}");
    let head = asked.join().expect("what was asked");
    assert!(
        head.contains("authorization: Bearer very-secret-word"),
        "{head}"
    );
    assert!(!ran.out.contains("very-secret-word") && !ran.err.contains("very-secret-word"));
    let kept = home.job().join("mlflow.secret");
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&kept).expect("it").permissions());
    assert_eq!(mode & 0o777, 0o600);
    for name in ["job.json", "events.jsonl", "master.log", "result.json"] {
        let text = fs::read_to_string(home.job().join(name)).expect("a file");
        assert!(!text.contains("very-secret-word"), "{name}");
    }
}
