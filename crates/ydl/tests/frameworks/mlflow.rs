//! A real MLflow server and jobs on this machine: reports of the master and of programs, and faulty servers.

use serde_json::Value;
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
};
use ydl_net::tls::Identity;
use ydl_testkit::{
    CommandOutput,
    dashboards::{MlflowServer, program},
    finish,
    local::Home,
};

#[test]
fn a_job_is_a_run_with_its_parameters_metrics_artifacts_and_outcome() {
    let home = Home::new();
    let server = MlflowServer::start(home.path());
    fs::copy(program("tracked.py"), home.path().join("tracked.py")).expect("the program");
    let environment = ydl_testkit::dashboards::dashboard_environment().display();
    let ran = home.submit(&format!(
        "name: tracked\nframework: pytorch\nenvironment: {environment}\nfiles: [tracked.py]\nenv: {{PASSWORD: hidden}}\n\
         mlflow: {{uri: 'http://{}', experiment: digits, run_name: first, tags: {{team: vision}}}}\n\
         roles: {{worker: {{instances: 2, memory: 512 MiB, run: python tracked.py}}}}\n",
        server.address
    ));
    assert_eq!(ran.code, 0, "{ran:#?}");
    let run = server.only_run("digits");
    assert_eq!(run["info"]["status"], "FINISHED", "{run}");
    assert_eq!(run["info"]["run_name"], "first", "{run}");
    let id = run["info"]["run_id"].as_str().expect("an id").to_owned();
    assert!(ran.stdout.contains(&format!("run {id}")), "{ran:#?}");
    let param = |key: &str| ydl_testkit::dashboards::value_of(&run["data"]["params"], key);
    assert_eq!(param("job.framework"), "pytorch");
    assert_eq!(param("worker.instances"), "2");
    assert_eq!(param("worker.memory_mib"), "512");
    assert_eq!(param("worker.command"), "python tracked.py");
    // Logged by the program itself.
    assert_eq!(param("own"), "yes");
    let tag = |key: &str| ydl_testkit::dashboards::value_of(&run["data"]["tags"], key);
    assert_eq!((tag("team").as_str(), tag("mlflow.source.name").as_str()), ("vision", "tracked"));
    // Reported by the program to the master.
    for rank in 0..2 {
        let metric = ydl_testkit::dashboards::value_of(
            &run["data"]["metrics"],
            &format!("worker/{rank}/loss"),
        );
        assert_eq!(metric, (0.25 + f64::from(rank)).to_string(), "{run}");
    }
    let files = server.artifacts(&id);
    for name in ["ydl/job.json", "ydl/history.jsonl", "ydl/logs/worker-0/stdout.txt"] {
        assert!(files.iter().any(|(path, _)| path.ends_with(name)), "{name} in {files:?}");
    }
    let text: String = files.iter().map(|(_, text)| text.as_str()).collect();
    assert!(text.contains(&format!("run {id}")) && !text.contains("hidden"));
    drop(server);
    home.wait_until_empty();
}

#[test]
fn a_failed_job_is_a_failed_run() {
    let home = Home::new();
    let server = MlflowServer::start(home.path());
    let ran = home.submit(&format!(
        "name: sad\nmlflow: 'http://{}'\nroles: {{worker: {{memory: 64 MiB, shell: 'exit 3'}}}}\n",
        server.address
    ));
    assert_eq!(ran.code, 3, "{ran:#?}");
    assert_eq!(server.only_run("sad")["info"]["status"], "FAILED");
}

#[test]
fn a_job_runs_without_its_mlflow_server() {
    let home = Home::new();
    // Port 1 has no listener and is not assigned to other programs.
    let at = "127.0.0.1:1";
    let ran = home.submit(&format!(
        "name: alone\nmlflow: {{uri: 'http://{at}'}}\n\
         roles: {{worker: {{memory: 64 MiB, shell: 'echo at $MLFLOW_TRACKING_URI run $MLFLOW_RUN_ID.'}}}}\n"
    ));
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert!(ran.stdout.contains(&format!("at http://{at} run .")), "{ran:#?}");
    assert_eq!(update_error(&home), "connection refused");
}

/// Returns the master's error about an unreachable server, which it logs only once.
fn update_error(home: &Home) -> String {
    let log = fs::read_to_string(home.job().join("master.log")).expect("a log");
    let mut all = log.split("update failed: ").skip(1);
    let first = all.next().unwrap_or_else(|| panic!("nothing in {log}"));
    assert!(all.next().is_none(), "{log}");
    first.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn requests_to_an_unresponsive_server_time_out() {
    let home = Home::new();
    // Connections to this listener are never accepted.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("an address");
    let ran = home.submit(&format!(
        "name: silent\nmlflow: 'http://{at}'\nroles: {{worker: {{memory: 64 MiB, shell: 'echo run $MLFLOW_RUN_ID.'}}}}\n"
    ));
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert!(ran.stdout.contains("run ."), "{ran:#?}");
    assert_eq!(update_error(&home), "it has not answered in 10 s");
}

/// Starts a server that sends this response to every request. Returns its address.
fn serve_response(response: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("an address").to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut head = [0; 4096];
            // The request is ignored, and the client may have disconnected.
            let _ = stream.read(&mut head);
            let _ = stream.write_all(response);
        }
    });
    at
}

#[test]
fn invalid_responses_of_the_server_do_not_affect_the_job() {
    let servers = [
        serve_response(b"SSH-2.0-OpenSSH_9.0\r\n"),
        serve_response(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n<html>"),
        serve_response(b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n"),
        serve_response(b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{\"experiment\": {\"experiment_id\": \"../../etc/passwd\"}}"),
    ];
    for at in servers {
        let home = Home::new();
        let ran = home.submit(&format!(
            "name: lied\nmlflow: 'http://{at}'\nroles: {{worker: {{memory: 64 MiB, shell: 'echo run $MLFLOW_RUN_ID.'}}}}\n"
        ));
        assert_eq!(ran.code, 0, "{ran:#?}");
        assert!(ran.stdout.contains("run ."), "{ran:#?}");
    }
}

#[test]
fn secrets_in_visible_settings_are_rejected() {
    let home = Home::new();
    let check = |mlflow: &str, env: &str, sentence: &str| {
        let ran = home.submit(&format!(
            "name: open\nmlflow: {mlflow}\nenv: {env}\nroles: {{worker: {{run: 'true'}}}}\n"
        ));
        assert_eq!(ran.code, 2, "{ran:#?}");
        assert!(ran.stderr.contains(sentence), "`{sentence}` is not in {ran:#?}");
    };
    check("'http://me:word@host'", "{}", "a password in the address");
    check(
        "'http://host'",
        "{MLFLOW_TRACKING_TOKEN: x}",
        "would be visible to all viewers of the job",
    );
    check("sqlite:///x.db", "{}", "does not start with `http://` or `https://`");
    let ran = home.submit(
        "name: open\nmlflow: 'http://host'\nroles: {worker: {run: 'true', env: {MLFLOW_TRACKING_PASSWORD: x}}}\n",
    );
    let sentence = "`roles.worker.env.MLFLOW_TRACKING_PASSWORD`";
    assert!(ran.code == 2 && ran.stderr.contains(sentence), "{ran:#?}");
    check("'http://host/?token=hidden'", "{}", "the part after `?` or `#`");
    check("{uri: 'http://host', user: me}", "{}", "`user` requires a password");
    check("{uri: 'http://host', tags: {a//b: c}}", "{}", "invalid tag name for MLflow");
    check("{uri: 'http://host', token_file: nowhere}", "{}", "`nowhere` cannot be read");
}

/// TLS proxy in front of a server, stopped at the end of the test.
struct TlsProxy {
    child: Child,
    uri: String,
}

impl TlsProxy {
    fn start(certificate: &Path, at: &str) -> TlsProxy {
        let mut command =
            Command::new(ydl_testkit::dashboards::dashboard_environment().join("bin/python"));
        command.arg(program("tls_front.py")).arg(certificate).arg(at).stdout(Stdio::piped());
        let mut child = command.spawn().expect("Python can be started");
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
        out.read_line(&mut line).expect("a port");
        let uri = format!("https://127.0.0.1:{}", line.trim());
        TlsProxy { child, uri }
    }
}

impl Drop for TlsProxy {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn runs_are_sent_over_https_to_a_trusted_server_only() {
    let home = Home::new();
    let server = MlflowServer::start(home.path());
    let identity = Identity::generate().expect("a certificate");
    let own = home.path().join("own.pem");
    identity.write(&own).expect("written");
    let trusted = home.write("trusted.pem", &identity.certificate_pem());
    let proxy = TlsProxy::start(&own, &server.address);
    fs::copy(program("tracked.py"), home.path().join("tracked.py")).expect("the program");
    home.write("token", "very-secret-word\n");
    let submit = |experiment: &str, trust: Option<&Path>| {
        let yaml = format!(
            "name: secure\nenvironment: {}\nfiles: [tracked.py]\n\
             env: {{MLFLOW_TRACKING_SERVER_CERT_PATH: '{}'}}\n\
             mlflow: {{uri: '{}', experiment: {experiment}, token_file: token}}\n\
             roles: {{worker: {{memory: 512 MiB, run: python tracked.py}}}}\n",
            ydl_testkit::dashboards::dashboard_environment().display(),
            trusted.display(),
            proxy.uri
        );
        home.write("job.yaml", &yaml);
        let mut command = home.ydl();
        command.args(["submit", "job.yaml"]);
        match trust {
            Some(trusted) => command.env("SSL_CERT_FILE", trusted),
            None => command.env_remove("SSL_CERT_FILE"),
        };
        CommandOutput::from(command.output().expect("ydl can be started"))
    };
    let ran = submit("sealed", Some(&trusted));
    assert_eq!(ran.code, 0, "{ran:#?}");
    let run = server.only_run("sealed");
    assert_eq!(run["info"]["status"], "FINISHED", "{run}");
    assert_eq!(
        ydl_testkit::dashboards::value_of(&run["data"]["metrics"], "worker/0/loss"),
        "0.25",
        "{run}"
    );
    let id = run["info"]["run_id"].as_str().expect("an id");
    assert!(!server.artifacts(id).is_empty());
    fs::remove_dir_all(home.job()).expect("the job that is over");

    // A master that does not trust the server sends neither the token nor any data.
    let ran = submit("strange", None);
    let text = fs::read_to_string(home.job().join("master.log")).expect("a log");
    assert!(text.contains("TLS failed: invalid peer certificate"), "{text}");
    assert!(!text.contains("very-secret-word"), "{text}");
    assert!(server.runs("strange").is_empty());
    // The program has no run, and trusts the server by its own variable.
    assert_eq!(ran.code, 0, "{ran:#?}");
}

/// Metrics that MLflow rejects do not affect other metrics. Metrics of an ended attempt stay in MLflow, and are not
/// part of the job's current status.
#[test]
fn valid_metrics_are_stored_and_expire_with_their_attempt() {
    let home = Home::new();
    let server = MlflowServer::start(home.path());
    fs::copy(program("wild.py"), home.path().join("wild.py")).expect("the program");
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python");
    let id = home.detach(&format!(
        "name: wild\nenvironment: {}\nfiles: [wild.py]\nenv: {{PYTHONPATH: '{}', PYTHONDONTWRITEBYTECODE: '1'}}\n\
         mlflow: 'http://{}'\nroles: {{worker: {{memory: 128 MiB, restart: {{limit: 1}}, run: python wild.py {}}}}}\n",
        ydl_testkit::dashboards::dashboard_environment().display(),
        python.canonicalize().expect("the package").display(),
        server.address,
        home.path().join("go").display(),
    ));
    let status = |home: &Home| {
        let ran = home.run(&["status", "--json", &id]);
        serde_json::from_str::<Value>(&ran.stdout).expect(&ran.stdout)
    };
    let metrics = |status: &Value| status["metrics"]["worker:0"].clone();
    home.wait_for("what the first attempt reports, in MLflow", |_| {
        let metrics = server.runs("wild").pop()?["data"]["metrics"].to_string();
        metrics.contains("worker/0/of1").then_some(())
    });
    home.write("go.1", "");
    home.wait_for("what the second attempt reports", |home| {
        let found = metrics(&status(home));
        let is_there = |name: &str| found.get(name).is_some();
        assert!(!(is_there("of1") && is_there("of2")), "{found}");
        is_there("of2").then_some(())
    });
    home.write("go.2", "");
    let run = home.wait_for("its end", |_| {
        let mut runs = server.runs("wild");
        assert!(runs.len() <= 1, "{runs:?}");
        runs.pop().filter(|run| run["info"]["status"] == "FINISHED")
    });
    home.wait_until_empty();
    let found = server.only_run("wild");
    let value = |name: &str| {
        ydl_testkit::dashboards::value_of(&found["data"]["metrics"], &format!("worker/0/{name}"))
    };
    for (name, number) in [
        ("a/_/b", "1.0"),
        ("_/up", "2.0"),
        ("_/_", "3.0"),
        ("acc_5", "4.0"),
        ("_", "5.0"),
        ("of1", "1.0"),
        ("of2", "2.0"),
        ("far", "1.0"),
        ("loss", "NaN"),
    ] {
        assert_eq!(value(name), number, "{name} of {found}");
    }
    assert!(value("most").parse::<f64>().expect("a number") > 1e300);
    assert!(value("least").parse::<f64>().expect("a number") < -1e300);
    let id = run["info"]["run_id"].as_str().expect("an id");
    let steps = server.history(id, "worker/0/loss");
    let steps: Vec<_> = steps.iter().map(|it| it["step"].as_u64()).collect();
    assert_eq!(steps, [Some(1), Some(2)]);
}

/// Only the server receives the token.
#[test]
fn the_token_is_sent_to_the_server_and_kept_in_a_private_file() {
    let home = Home::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("an address");
    let request = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a call");
        let mut head = [0; 4096];
        let length = stream.read(&mut head).expect("a request");
        let _ = stream.write_all(b"HTTP/1.1 401 No\r\ncontent-length: 0\r\n\r\n");
        String::from_utf8_lossy(&head[..length]).into_owned()
    });
    home.write("token", "very-secret-word\n");
    let child = home.start(&format!(
        "name: token\nmlflow: {{uri: 'http://{at}', token_file: token}}\nroles: {{worker: {{memory: 64 MiB, run: env}}}}\n"
    ));
    let ran = finish(child);
    assert_eq!(ran.code, 0, "{ran:#?}");
    let head = request.join().expect("the request");
    assert!(head.contains("authorization: Bearer very-secret-word"), "{head}");
    assert!(!ran.stdout.contains("very-secret-word") && !ran.stderr.contains("very-secret-word"));
    let secret = home.job().join("mlflow.secret");
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &fs::metadata(&secret).expect("metadata").permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
    for name in ["job.json", "history.jsonl", "master.log", "result.json"] {
        let text = fs::read_to_string(home.job().join(name)).expect("a file");
        assert!(!text.contains("very-secret-word"), "{name}");
    }
}
