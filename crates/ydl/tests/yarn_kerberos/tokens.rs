//! Jobs that run longer than their tokens, which live for a minute and a half at most.

use std::{
    collections::{BTreeSet, HashMap},
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};
use testbed::{Cluster, File, Hdfs, Lease, Options, Protection};
use yarn_native::credentials::{Credentials, TokenIdentifier};
use ydl_testkit::{
    CommandOutput,
    yarn::{Workspace, digits, shared, version, wait_for},
};

/// Maximum lifetime of a token.
const LIFETIME: Duration = Duration::from_secs(90);
/// Lifetime without renewal.
const RENEW_INTERVAL: Duration = Duration::from_secs(30);
const EXPIRED_MESSAGE: &str =
    "the job's tokens have reached the end of their life; a `keytab:` in the job file";

/// One node, and two file systems.
fn cluster() -> Lease {
    let options = Options {
        kerberos: Some(Protection::Authentication),
        hdfs: Hdfs::Two,
        users: vec!["alice".into()],
        ..Options::new(version())
    };
    let lifetimes = [("renew-interval", RENEW_INTERVAL), ("max-lifetime", LIFETIME)];
    shared(lifetimes.into_iter().fold(options, |options, (key, lifetime)| {
        let key = format!("dfs.namenode.delegation.token.{key}");
        options.set(File::Hdfs, &key, &lifetime.as_millis().to_string())
    }))
}

/// Returns the second file system, with a directory that all users can write.
fn other_system(cluster: &Cluster) -> String {
    let other = format!("hdfs://{}", cluster.namenodes()[1].rpc);
    let open = "fs.permissions.umask-mode=000";
    let made = cluster.fs(&["-D", open, "-mkdir", "-p", &format!("{other}/data")]);
    made.expect("a directory");
    other
}

/// Job of the user alice that waits for the file `go`, and writes an output to a file system without a token yet.
struct Job<'a> {
    workspace: Workspace<'a>,
    id: String,
    other: String,
    submitted: Instant,
}

impl<'a> Job<'a> {
    fn submit(cluster: &'a Cluster, other: &str, more: &str) -> Job<'a> {
        let workspace = Workspace::of(cluster, "alice");
        let shared = workspace.path().display().to_string();
        let script = format!(
            "S={shared}/$YDL_INDEX; echo $HADOOP_TOKEN_FILE_LOCATION > $S.new; mv $S.new $S.file; \
             until [ -e {shared}/go ]; do sleep 0.2; done; mkdir out; echo done-$YDL_INDEX | tee out/text"
        );
        let id = workspace.detach(&format!(
            "{more}\nfile_systems: [\"{other}\"]\n\
             outputs: {{out/: \"{other}/data/{{job}}/{{index}}\"}}\n\
             roles: {{worker: {{memory: 64 MiB, shell: '{script}'}}}}\n"
        ));
        workspace.destroy_ticket();
        Job {
            workspace,
            id,
            other: other.to_owned(),
            // After the submission, so its tokens are older.
            submitted: Instant::now(),
        }
    }

    fn go(&self) {
        fs::write(self.workspace.path().join("go"), "").expect("a file");
    }

    /// Waits for a task's program. Returns the path of its token file.
    fn token_file(&self, index: u32) -> PathBuf {
        let output = self.workspace.path().join(format!("{index}.file"));
        wait_for(&format!("worker:{index} of {}", self.id), || {
            let path = fs::read_to_string(&output).ok()?;
            Some(PathBuf::from(path.trim()))
        })
    }

    fn masters(&self) -> Vec<u32> {
        let mut all = digits::processes(&self.id);
        all.retain(|(_, args)| args.starts_with("./ydl master"));
        all.into_iter().map(|(pid, _)| pid).collect()
    }

    /// Kills the master.
    fn kill_master(&self) -> u32 {
        let masters = self.masters();
        let [master] = masters[..] else {
            panic!("{} has the masters {masters:?}", self.id);
        };
        let mut kill = Command::new("kill");
        let killed = kill.args(["-9", &master.to_string()]).status();
        assert!(killed.expect("kill").success());
        master
    }

    /// Waits for the end of the job. Returns its status as seen by a workspace with a ticket.
    fn wait_for_end(&self, workspace: &Workspace) -> CommandOutput {
        wait_for(&format!("the end of {}", self.id), || {
            let ran = workspace.run(&["status", &self.id]);
            let state = ran.stdout.lines().find(|line| line.starts_with("state "))?;
            let states = ["succeeded", "failed", "killed"];
            states.into_iter().any(|end| state.contains(end)).then_some(ran)
        })
    }

    /// Returns the files of the job's containers on its node.
    fn files(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let all = self.workspace.cluster.directory();
        for path in ["nm1/local/usercache/alice", "nm1/containers", "logs"] {
            walk(&all.join(path), &mut found);
        }
        found
    }
}

fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => walk(&entry.path(), found),
            // Larger files are the binary and archives.
            Ok(kind) if kind.is_file() => {
                let small = |metadata: fs::Metadata| metadata.len() < 8 << 20;
                found.extend(entry.metadata().is_ok_and(small).then(|| entry.path()));
            }
            _ => {}
        }
    }
}

fn issued(file: &Path) -> BTreeSet<(String, i64)> {
    let credentials = Credentials::read(file).expect("tokens");
    let tokens = credentials.tokens();
    tokens
        .filter_map(|(alias, token)| match TokenIdentifier::decode(token).ok()? {
            // With the alias, because two NameNodes may issue tokens at the same time.
            TokenIdentifier::Delegation { issued_ms, .. } => Some((alias.to_owned(), issued_ms)),
            _ => None,
        })
        .collect()
}

/// Secrets of a job by their first bytes: name and value.
type Secrets = HashMap<[u8; 8], (String, Vec<u8>)>;

/// Returns the name of a secret that the data contains. Searches for all in one pass, because logs are long.
fn find<'a>(all: &[u8], secrets: &'a Secrets) -> Option<&'a str> {
    for (at, window) in all.windows(8).enumerate() {
        let Ok(start) = <&[u8; 8]>::try_from(window) else {
            continue;
        };
        if let Some((name, secret)) = secrets.get(start)
            && all[at..].starts_with(secret)
        {
            return Some(name);
        }
    }
    None
}

/// Collects the secrets of a job from its private files.
fn secrets(job: &Job, keytab: &Path) -> Secrets {
    let mut secrets = Secrets::new();
    let mut add = |name: String, secret: &[u8]| {
        let start = secret[..8].try_into().expect("eight bytes");
        secrets.insert(start, (name, secret.to_owned()));
    };
    // The start of all keytabs is equal; keys are at the end.
    let keys = fs::read(keytab).expect("a keytab");
    add("the keytab".to_owned(), &keys[keys.len() - 24..]);
    for file in job.files() {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        if name.ends_with(".token") {
            let text = fs::read_to_string(&file).expect("a token");
            let (_, mac) = text.trim().rsplit_once('.').expect("a token's form");
            add(file.display().to_string(), mac.as_bytes());
        }
        if name == "container_tokens" || name == "program.credentials" {
            let credentials = Credentials::read(&file).expect("credentials");
            for (alias, token) in credentials.tokens() {
                add(format!("the token for {alias}"), token.password.expose());
            }
            if let Some(secret) = credentials.secret("ydl.secret") {
                add("the job's secret".to_owned(), secret.expose());
            }
            if let Some(pem) = credentials.secret("ydl.identity") {
                let pem = String::from_utf8_lossy(pem.expose()).into_owned();
                let key = pem.split("PRIVATE KEY-----\n").nth(1).expect("a key");
                // The start contains only the kind of the key.
                add("the job's key".to_owned(), &key.as_bytes()[40..64]);
            }
        }
    }
    assert!(secrets.len() > 8, "{}", secrets.len());
    secrets
}

/// Asserts that no process, script or log shows a secret, and that files with secrets are private.
fn assert_secrets_private(job: &Job, secrets: &Secrets) {
    let processes = digits::processes(&job.id);
    assert!(processes.len() >= 3, "{processes:?}");
    for (pid, args) in processes {
        for what in ["environ", "cmdline"] {
            // The process may have exited.
            let text = fs::read(format!("/proc/{pid}/{what}")).unwrap_or_default();
            assert_eq!(find(&text, secrets), None, "is in {what} of {args}");
        }
    }
    let mut holding = 0;
    for file in job.files() {
        // Files of an ending container may disappear.
        let (Ok(metadata), Ok(bytes)) = (fs::metadata(&file), fs::read(&file)) else {
            continue;
        };
        let Some(secret) = find(&bytes, secrets) else {
            continue;
        };
        let (path, mode) = (file.display(), metadata.permissions().mode());
        assert!(!is_log(&file), "{secret} is in {path}");
        assert_eq!(mode & 0o077, 0, "{secret} is in {path}");
        holding += 1;
    }
    assert!(holding >= 5, "only {holding} files have secrets");
}

fn is_log(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let suffixes = [".log", ".out", ".err", ".sh"];
    suffixes.into_iter().any(|end| name.ends_with(end))
}

/// Asserts that no log of an ended job contains a secret.
fn assert_no_secret_in_logs(job: &Job, secrets: &Secrets) {
    for file in job.files().into_iter().filter(|file| is_log(file)) {
        let bytes = fs::read(&file).unwrap_or_default();
        assert_eq!(find(&bytes, secrets), None, "is in {}", file.display());
    }
}

#[test]
fn a_job_with_a_keytab_runs_longer_than_its_tokens_and_one_without_fails_with_the_reason() {
    let cluster = &*cluster();
    let other = other_system(cluster);
    let keytab = cluster.kerberos().expect("a realm").keytab("alice");
    let keytab_key =
        format!("keytab: {{principal: alice@TESTBED.LOCAL, path: {}}}", keytab.display());
    let renewing = Job::submit(cluster, &other, &keytab_key);
    let undisturbed = Job::submit(cluster, &other, "");
    let without_keytab = Job::submit(cluster, &other, "");
    let first = issued(&renewing.token_file(0));
    for job in [&undisturbed, &without_keytab] {
        job.token_file(0);
    }
    let secrets = secrets(&renewing, &keytab);
    assert_secrets_private(&renewing, &secrets);

    // Waits for a fixed time, after which the first tokens of all three jobs have expired.
    let expired_at = without_keytab.submitted + LIFETIME + Duration::from_secs(10);
    wait_for("the end of the first tokens", || (Instant::now() > expired_at).then_some(()));
    let now = issued(&renewing.token_file(0));
    assert!(now.is_disjoint(&first), "{now:?} after {first:?}");
    assert_eq!(issued(&undisturbed.token_file(0)).len(), 2);

    // The new masters start with the first tokens, and one with a keytab.
    let master = renewing.kill_master();
    without_keytab.kill_master();
    wait_for("another master", || {
        let masters = renewing.masters();
        masters.iter().any(|pid| *pid != master).then_some(())
    });
    let alice = Workspace::of(cluster, "alice");
    // A new agent gets the current tokens.
    wait_for("another worker", || {
        let ran = alice.run(&["scale", &renewing.id, "worker=2"]);
        (ran.code == 0).then_some(())
    });
    let second = issued(&renewing.token_file(1));
    assert!(second.is_disjoint(&first), "{second:?} after {first:?}");

    let failed = without_keytab.wait_for_end(&alice);
    assert!(failed.stdout.contains(EXPIRED_MESSAGE), "{failed:?}");
    renewing.go();
    undisturbed.go();
    let failed = undisturbed.wait_for_end(&alice);
    assert!(failed.stdout.contains(EXPIRED_MESSAGE), "{failed:?}");
    let ended = renewing.wait_for_end(&alice);
    assert!(ended.stdout.contains("succeeded"), "{ended:?}");
    for index in 0..2 {
        let output = format!("{}/data/{}/{index}/text", renewing.other, renewing.id);
        let text = cluster.fs(&["-cat", &output]).expect("an output");
        assert_eq!(text.trim(), format!("done-{index}"));
        let logs = alice.run(&["logs", &renewing.id, &format!("worker:{index}"), "--stdout"]);
        assert!(logs.stdout.contains(&format!("done-{index}")), "{logs:?}");
    }
    assert_no_secret_in_logs(&renewing, &secrets);
}
