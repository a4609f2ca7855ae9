//! TensorBoard as a sidecar, and port forwarding, on this machine.

use serde_json::Value;
use std::fs;
use ydl_testkit::{
    dashboards::{PortForward, http_request, program},
    finish,
    local::Home,
};

/// Returns a job of two workers that write TensorBoard events and wait for the file `go`.
fn job(home: &Home, more: &str) -> String {
    for name in ["scalars.py", "events.py"] {
        fs::copy(program(name), home.path().join(name)).expect("a part of the program");
    }
    let environment = ydl_testkit::dashboards::dashboard_environment().display();
    let go = home.path().join("go");
    format!(
        "name: shown\nframework: pytorch\nenvironment: {environment}\nfiles: [scalars.py, events.py]\n{more}\n\
         roles: {{worker: {{instances: 2, memory: 256 MiB, run: python scalars.py {}}}}}\n",
        go.display()
    )
}

#[test]
fn tensorboard_shows_a_job_as_a_sidecar() {
    let home = Home::new();
    let yaml = job(&home, "tensorboard: {memory: 512 MiB}");
    let submit = home.start(&yaml);
    home.wait_for_job();
    let id = home.wait_for("its TensorBoard", |home| {
        let ran = home.run(&["status"]);
        let line = ran.stdout.lines().find(|line| line.starts_with("ports "))?;
        let word = line.split_whitespace().nth(3)?;
        assert!(line.ends_with("tensorboard:0"), "{line}");
        Some(word.to_owned())
    });
    let opened = PortForward::start(home.ydl(), &[&id]);
    let tags = home.wait_for("the scalars of its training", |_| {
        let tags = opened.read("/data/plugin/scalars/tags").ok()?;
        tags.contains("loss").then_some(tags)
    });
    let tags: Value = serde_json::from_str(&tags).expect("JSON");
    assert!(tags["train"]["loss"].is_object(), "{tags}");
    let page = opened.read("/").expect("a page");
    assert!(page.len() > 1000 && page.contains("TensorBoard"), "{} bytes", page.len());
    home.write("go", "");
    let ran = finish(submit);
    assert_eq!(ran.code, 0, "{ran:#?}");
    // The sidecar has no rank.
    for rank in 0..2 {
        assert!(ran.stdout.contains(&format!("world 2 rank {rank}")), "{ran:#?}");
    }
    let note = format!("tensorboard:0 is available with `ydl port-forward {id} tensorboard:0`");
    assert!(ran.stderr.contains(&note), "{ran:#?}");
    drop(opened);
    home.wait_until_empty();
}

#[test]
fn a_job_without_tensorboard_in_its_environment_succeeds_with_a_message() {
    let home = Home::new();
    let go = home.path().join("go");
    let id = home.detach(&format!(
        "name: blind\ntensorboard: runs\n\
         roles: {{worker: {{memory: 64 MiB, shell: 'until [ -e {} ]; do sleep 0.1; done'}}}}\n",
        go.display()
    ));
    home.wait_for("the end of its TensorBoard", |home| {
        let ran = home.run(&["status", &id]);
        ran.stdout.contains("the job continues without it").then_some(())
    });
    let logs = home.run(&["logs", &id, "tensorboard"]);
    let sentence = "`tensorboard` is not installed in the job's environment";
    assert!(logs.stdout.contains(sentence), "{logs:#?}");
    home.write("go", "");
    let ended = home.wait_for("its end", |home| {
        let ran = home.run(&["status", "--json", &id]);
        let status: Value = serde_json::from_str(&ran.stdout).ok()?;
        let state = status["state"].as_str()?.to_owned();
        ["succeeded", "failed"].contains(&&*state).then_some(state)
    });
    assert_eq!(ended, "succeeded");
}

/// Server: a `GET` returns as many bytes as its path says, a `POST` the length of its body.
const WEB: &str = r#"
import http.server, os
class Web(http.server.BaseHTTPRequestHandler):
    def say(self, body):
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        self.say(b"x" * int(self.path[1:]))
    def do_POST(self):
        came = self.rfile.read(int(self.headers["content-length"]))
        self.say(str(len(came)).encode())
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["YDL_PORT_WEB"])), Web).serve_forever()
"#;

#[test]
fn port_forward_reaches_every_port_of_every_task() {
    let home = Home::new();
    home.write("web.py", WEB);
    let id = home.detach(
        "name: web\nfiles: [web.py]\n\
         roles:\n  web: {instances: 2, memory: 128 MiB, ports: [web, raw], run: python3 web.py}\n  \
         plain: {memory: 64 MiB, run: sleep 600}\n",
    );
    let refused = home.run(&["port-forward", &id]);
    assert_eq!(refused.code, 2, "{refused:#?}");
    assert!(
        refused.stderr.contains("several tasks of the job have ports")
            || refused.stderr.contains("no task"),
        "{refused:#?}"
    );
    let refused = home.run(&["port-forward", &id, "worker:0"]);
    assert!(refused.stderr.contains("the job has no task `worker:0`"), "{refused:#?}");
    assert!(refused.stderr.contains("select one of those with ports: `web:0`"), "{refused:#?}");

    let opened = PortForward::start(home.ydl(), &[&id, "web:1"]);
    // The first connection waits for the program.
    assert_eq!(opened.read("/5").expect("a response"), "xxxxx");
    let (long, body) = (5_000_000, "y".repeat(3_000_000));
    assert_eq!(opened.read(&format!("/{long}")).expect("the whole body").len(), long);
    let (status, came) = http_request(&opened.address, "POST", "/", &body).expect("a response");
    assert_eq!((status, came.as_str()), (200, "3000000"));
    // Idle connections do not block others.
    let idle: Vec<_> = (0..20).map(|_| std::net::TcpStream::connect(&opened.address)).collect();
    assert_eq!(opened.read("/5").expect("a response"), "xxxxx");
    drop(idle);

    for (args, sentence) in [
        (&["web:0", "--name", "nothing"][..], "`web:0` has no port `nothing`"),
        (&["plain:0"], "`plain:0` has no ports"),
        (&["web:7"], "the job has no task `web:7`"),
    ] {
        let refused = home.run(&[&["port-forward", &id], args].concat());
        assert_eq!(refused.code, 2, "{refused:#?}");
        assert!(refused.stderr.contains(sentence), "{refused:#?}");
    }
    // A port that does not serve HTTP is printed as an address, not as a URL.
    let raw = PortForward::start(home.ydl(), &[&id, "web:0", "--name", "raw"]);
    assert_eq!(raw.line, raw.address);
    drop(raw);
    let killed = home.run(&["kill", &id]);
    assert_eq!(killed.code, 0, "{killed:#?}");
    // `ydl port-forward` exits with the job.
    let mut opened = opened;
    home.wait_for("the end of `ydl port-forward`", |_| opened.child.try_wait().expect("a child"));
    drop(opened);
    home.wait_until_empty();
}
