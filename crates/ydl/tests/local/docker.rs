//! Jobs in images on this machine: with a real docker engine if one is installed, and the errors without one.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};
use testbed::{Docker, ErrorKind};
use ydl_testkit::{
    CommandOutput,
    local::{Home, kill},
};

const IMAGE: &str = "ydl-test/small:1";

/// Returns a `ydl` command whose `PATH` contains only this `docker` script.
fn with_docker(home: &Home, script: Option<&str>) -> Command {
    let bin = home.path().join("bin");
    fs::create_dir_all(&bin).expect("a directory");
    if let Some(script) = script {
        let docker = bin.join("docker");
        fs::write(&docker, format!("#!/bin/sh\n{script}\n")).expect("a file");
        fs::set_permissions(&docker, fs::Permissions::from_mode(0o755)).expect("a program");
    }
    let mut command = home.ydl();
    command.env("PATH", &bin);
    command
}

fn run_with_docker(home: &Home, script: Option<&str>, args: &[&str]) -> (i32, String) {
    home.write(
        "job.yaml",
        "name: t\nenvironment: {docker: team/image:1}\nroles: {w: {run: 'true'}}\n",
    );
    let mut ydl = with_docker(home, script);
    let ran = CommandOutput::from(ydl.args(args).output().expect("ydl can be started"));
    (ran.code, ran.stderr)
}

#[test]
fn a_missing_docker_engine_is_reported_before_the_start() {
    let home = Home::new();
    let submit = ["submit", "job.yaml"];
    let absent = "error: the job runs in the image `team/image:1`, and there is no `docker` command on this machine\n\n\
                  hint: install docker, or submit the job to a cluster that runs images\n";
    assert_eq!(run_with_docker(&home, None, &submit), (2, absent.to_owned()));
    assert_eq!(
        run_with_docker(&home, None, &["submit", "--dry-run", "job.yaml"]),
        (2, absent.to_owned())
    );
    let unreachable = "echo 'Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?' \
                >&2; exit 1";
    let expected = "error: the job runs in the image `team/image:1`, and no docker engine answers: Cannot connect to the \
                    Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?\n\nhint: start it, \
                    e.g. with `systemctl start docker`; check it with `docker version`\n";
    assert_eq!(run_with_docker(&home, Some(unreachable), &submit), (122, expected.to_owned()));
    assert!(!home.path().join("state").exists());
}

#[test]
fn unavailable_and_incompatible_images_are_rejected_at_submit() {
    let home = Home::new();
    let submit = ["submit", "job.yaml"];
    let unknown = "case $1 in version) echo 28;; image) exit 1;; *) echo 'Error response from daemon: pull access denied for \
                   team/image' >&2; exit 1;; esac";
    let (code, err) = run_with_docker(&home, Some(unknown), &submit);
    let expected = "fetching the image `team/image:1`\nerror: the image `team/image:1` is not on this machine and cannot be \
                    fetched: pull access denied for team/image\n\nhint: check its name and tag; some registries want a \
                    `docker login` first\n";
    assert_eq!((code, err.as_str()), (2, expected));
    let musl = "case $1 in version) echo 28;; image) ;; *) echo 'exec /run/ydl: no such file or directory' >&2; exit 1;; esac";
    let (code, err) = run_with_docker(&home, Some(musl), &submit);
    let expected = "error: `ydl` cannot run in the image `team/image:1`: exec /run/ydl: no such file or directory\n\nhint: the \
                    image has no GNU C library, as those of Alpine Linux have none: use one based on Debian, Ubuntu or the \
                    like\n";
    assert_eq!((code, err.as_str()), (2, expected));
    let old = "case $1 in version) echo 28;; image) ;; *) echo \"/run/ydl: /lib/libc.so.6: version \\`GLIBC_2.34' not found \
               (required by /run/ydl)\" >&2; exit 1;; esac";
    let (code, err) = run_with_docker(&home, Some(old), &submit);
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("use a newer image"), "{err}");
}

/// Imports an image with a shell, a few tools and their libraries, because the tests use no registry.
fn import(docker: &Docker, dir: &Path) {
    let tools = ["/bin/sh", "/bin/cat", "/bin/sleep", "/bin/id", "/bin/mkdir", "/bin/tail"];
    let mut files: Vec<String> = tools.map(str::to_owned).to_vec();
    let ydl = ydl_testkit::ydl();
    for program in tools.iter().map(Path::new).chain([ydl.as_path()]) {
        let libraries = Command::new("ldd").arg(program).output().expect("ldd");
        let libraries = String::from_utf8_lossy(&libraries.stdout).into_owned();
        let paths = libraries.split_whitespace().filter(|word| word.starts_with('/'));
        files.extend(paths.map(str::to_owned));
    }
    files.sort();
    files.dedup();
    let root = dir.join("root");
    for file in &files {
        let to = root.join(file.trim_start_matches('/'));
        fs::create_dir_all(to.parent().expect("a parent")).expect("a directory");
        fs::copy(file, &to).expect("a copy");
    }
    fs::create_dir_all(root.join("tmp")).expect("a directory");
    fs::write(root.join("mark"), "of the image\n").expect("a file");
    let archive = dir.join("image.tar");
    let packed =
        Command::new("tar").arg("-C").arg(&root).arg("-cf").arg(&archive).arg(".").status();
    assert!(packed.expect("tar").success());
    let change = "ENV PATH=/bin COLOUR=blue PYTHONPATH=/opt/python";
    let archive = archive.to_str().expect("a path");
    docker.run(&["import", "--change", change, archive, IMAGE]).expect("an image");
}

/// Lists the containers of jobs, in any state.
fn containers(docker: &Docker) -> String {
    let args = ["ps", "--all", "--filter", "label=ydl.job", "--format", "{{.Names}} {{.Status}}"];
    docker.run(&args).expect("a list")
}

fn wait_for_none(home: &Home, docker: &Docker) {
    home.wait_for("the end of every container", |_| {
        containers(docker).trim().is_empty().then_some(())
    });
}

fn ydl(home: &Home, docker: &Docker) -> Command {
    let mut command = home.ydl();
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", docker.folder().display())).envs(docker.variables());
    command
}

fn submit(home: &Home, docker: &Docker, yaml: &str) -> CommandOutput {
    home.write("job.yaml", yaml);
    let ran = ydl(home, docker).args(["submit", "job.yaml"]).output();
    CommandOutput::from(ran.expect("ydl can be started"))
}

/// All cases share one engine, because starting it takes longest.
#[test]
fn programs_run_in_their_image_and_leave_no_container() {
    let dir = tempfile::tempdir().expect("a directory");
    let docker = match Docker::start(dir.path(), &mut |line| eprintln!("{line}")) {
        Ok(docker) => docker,
        // Skipped if no engine is installed. An engine that does not start is a failure.
        Err(failure) if failure.kind == ErrorKind::Missing => {
            eprintln!("no container is run here: {failure}");
            return;
        }
        Err(failure) => panic!("{failure}"),
    };
    import(&docker, dir.path());
    runs_in_its_image(&docker);
    roles_have_their_own(&docker);
    ends_as_anywhere(&docker);
    leaves_nothing_when_killed(&docker);
}

fn runs_in_its_image(docker: &Docker) {
    let home = Home::new();
    fs::create_dir(home.path().join("shared")).expect("a directory");
    home.write("shared/word", "from the host\n");
    home.write("own.txt", "a file of the job\n");
    let shared = home.path().join("shared");
    let script = "cat /mark /mnt/word own.txt; echo $COLOUR $GREETING $YDL_INDEX $HOME; id -u; \
                  echo x > /mnt/new || echo closed; mkdir model; echo done > model/result; echo $PYTHONPATH";
    let yaml = format!(
        "name: t\nenvironment: {{docker: '{IMAGE}', mounts: ['{}:/mnt:ro']}}\nfiles: [own.txt]\nenv: {{GREETING: 'a b'}}\n\
         outputs: {{model/: out}}\nroles: {{w: {{shell: \"{script}\"}}}}\n",
        shared.display()
    );
    let ran = submit(&home, docker, &yaml);
    assert_eq!(ran.code, 0, "{ran:#?}");
    let uid = rustix::process::getuid().as_raw().to_string();
    for line in
        ["of the image", "from the host", "a file of the job", "blue a b 0 /", "closed", &uid]
    {
        assert!(ran.stdout.lines().any(|it| it.ends_with(line)), "{line}: {ran:#?}");
    }
    let path = ran.stdout.lines().find(|line| line.ends_with(":/opt/python"));
    assert!(path.is_some_and(|path| path.contains("/work:")), "{ran:#?}");
    let result = fs::read_to_string(home.path().join("out/result")).expect("an output");
    assert_eq!(result, "done\n");
    assert!(!shared.join("new").exists());
    home.wait_until_empty();
    wait_for_none(&home, docker);
}

fn roles_have_their_own(docker: &Docker) {
    let home = Home::new();
    let yaml = format!(
        "name: t\nroles:\n  in: {{shell: 'cat /mark', environment: 'docker://{IMAGE}'}}\n  \
         out: {{shell: 'cat /mark || echo no mark'}}\n"
    );
    let ran = submit(&home, docker, &yaml);
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert!(ran.stdout.contains("of the image"), "{ran:#?}");
    assert!(ran.stdout.contains("no mark"), "{ran:#?}");
}

fn ends_as_anywhere(docker: &Docker) {
    let home = Home::new();
    let failing = format!(
        "name: t\nenvironment: {{docker: '{IMAGE}'}}\nroles: {{w: {{shell: 'echo why >&2; exit 7'}}}}\n"
    );
    let ran = submit(&home, docker, &failing);
    assert_eq!(ran.code, 7, "{ran:#?}");
    assert!(ran.stderr.contains("why"), "{ran:#?}");

    let home = Home::new();
    let absent = format!(
        "name: t\nenvironment: {{docker: '{IMAGE}'}}\nroles: {{w: {{run: [no-such-program]}}}}\n"
    );
    let ran = submit(&home, docker, &absent);
    let looked = "program `no-such-program` not found in `PATH` (`/bin`";
    assert!(ran.stderr.contains(looked), "{ran:#?}");

    let home = Home::new();
    let script = "trap 'echo asked to stop; exit 0' TERM; echo here; while :; do sleep 0.1; done";
    home.write(
        "job.yaml",
        &format!(
            "name: t\nenvironment: {{docker: '{IMAGE}'}}\nroles: {{w: {{shell: \"{script}\"}}}}\n"
        ),
    );
    let ran = ydl(&home, docker).args(["submit", "--detach", "job.yaml"]).output();
    let id = CommandOutput::from(ran.expect("ydl")).stdout.trim().to_owned();
    let log = |home: &Home| home.job().join("logs/w/0/1/stdout.0");
    home.wait_for_text(log, "here");
    let ended = ydl(&home, docker).args(["kill", &id]).output();
    let ended = CommandOutput::from(ended.expect("ydl"));
    assert_eq!(ended.code, 0, "{ended:#?}");
    home.wait_for_text(log, "asked to stop");
    home.wait_until_empty();
    wait_for_none(&home, docker);
}

/// Kills the docker command, then the agent, then the agent together with its master.
fn leaves_nothing_when_killed(docker: &Docker) {
    let home = Home::new();
    let yaml = format!(
        "name: t\nenvironment: {{docker: '{IMAGE}'}}\nrestart: {{limit: 2, backoff: {{initial: 1ms}}}}\n\
         roles: {{w: {{shell: 'echo here $YDL_ATTEMPT; sleep 600'}}}}\n"
    );
    home.write("job.yaml", &yaml);
    let begun = ydl(&home, docker).args(["submit", "--detach", "job.yaml"]).output();
    assert!(begun.expect("ydl").status.success());
    let attempt = |home: &Home, number: u32| {
        let log = move |home: &Home| home.job().join(format!("logs/w/0/{number}/stdout.0"));
        home.wait_for_text(log, &format!("here {number}"));
    };
    attempt(&home, 1);
    for command in home.find("docker run") {
        kill(command.pid, 9);
    }
    attempt(&home, 2);
    for agent in home.find("ydl agent") {
        kill(agent.pid, 9);
    }
    attempt(&home, 3);
    // The engine removes ended containers with a delay.
    home.wait_for("the end of the containers before", |_| {
        (containers(docker).lines().count() == 1).then_some(())
    });
    let both = ["ydl master", "ydl agent"].map(|part| home.find(part));
    for process in both.iter().flatten() {
        kill(process.pid, 9);
    }
    wait_for_none(&home, docker);
    home.wait_until_empty();
}
