//! Jobs that outlive their tokens, on a cluster where these live for a minute and a half at most.

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

/// The longest life of a token.
const LIFE: Duration = Duration::from_secs(90);
/// And without renewal.
const UNRENEWED: Duration = Duration::from_secs(30);
const ENDED: &str =
    "the job's tokens have reached the end of their life; a `keytab:` in the job file";

/// One node, and two file systems.
fn cluster() -> Lease {
    let options = Options {
        kerberos: Some(Protection::Authentication),
        hdfs: Hdfs::Two,
        users: vec!["alice".into()],
        ..Options::new(version())
    };
    let lives = [("renew-interval", UNRENEWED), ("max-lifetime", LIFE)];
    shared(lives.into_iter().fold(options, |options, (key, life)| {
        let key = format!("dfs.namenode.delegation.token.{key}");
        options.set(File::Hdfs, &key, &life.as_millis().to_string())
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
             until [ -e {shared}/go ]; do sleep 0.2; done; mkdir out; echo done-$YDL_INDEX | tee out/said"
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
            // Its tokens are older than that, however long it took.
            submitted: Instant::now(),
        }
    }

    fn go(&self) {
        fs::write(self.workspace.path().join("go"), "").expect("a file");
    }

    /// Where the program of that task was told to look for tokens, once it runs.
    fn token_file(&self, index: u32) -> PathBuf {
        let said = self.workspace.path().join(format!("{index}.file"));
        wait_for(&format!("worker:{index} of {}", self.id), || {
            let path = fs::read_to_string(&said).ok()?;
            Some(PathBuf::from(path.trim()))
        })
    }

    fn masters(&self) -> Vec<u32> {
        let mut all = digits::processes(&self.id);
        all.retain(|(_, words)| words.starts_with("./ydl master"));
        all.into_iter().map(|(pid, _)| pid).collect()
    }

    /// Kills the master.
    fn behead(&self) -> u32 {
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
    fn over(&self, workspace: &Workspace) -> CommandOutput {
        wait_for(&format!("the end of {}", self.id), || {
            let ran = workspace.run(&["status", &self.id]);
            let state = ran.stdout.lines().find(|line| line.starts_with("state "))?;
            let over = ["succeeded", "failed", "killed"];
            over.into_iter().any(|end| state.contains(end)).then_some(ran)
        })
    }

    /// All that containers of this job have on its node.
    fn files(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let all = self.workspace.cluster.directory();
        for place in ["nm1/local/usercache/alice", "nm1/containers", "logs"] {
            walk(&all.join(place), &mut found);
        }
        found
    }
}

fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => walk(&entry.path(), found),
            // Larger ones are the binary and what it was unpacked from.
            Ok(kind) if kind.is_file() => {
                let small = |about: fs::Metadata| about.len() < 8 << 20;
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
            // Two NameNodes may have issued theirs in the same moment.
            TokenIdentifier::Delegation { issued_ms, .. } => Some((alias.to_owned(), issued_ms)),
            _ => None,
        })
        .collect()
}

/// Secrets of a job, by how they begin: what each is called, and all of it.
type Secrets = HashMap<[u8; 8], (String, Vec<u8>)>;

/// The name of a secret that is in there. All are looked for in one pass: logs are long.
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

/// The secrets of a job, found where they should be.
fn secrets(job: &Job, keytab: &Path) -> Secrets {
    let mut secrets = Secrets::new();
    let mut add = |name: String, secret: &[u8]| {
        let start = secret[..8].try_into().expect("eight bytes");
        secrets.insert(start, (name, secret.to_owned()));
    };
    // All keytabs begin alike; keys are at their end.
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
                // The beginning says only what kind of key it is.
                add("the job's key".to_owned(), &key.as_bytes()[40..64]);
            }
        }
    }
    assert!(secrets.len() > 8, "{}", secrets.len());
    secrets
}

/// No process, script or log shows one of these, and files that hold one are their owner's alone.
fn keeps_them(job: &Job, secrets: &Secrets) {
    let processes = digits::processes(&job.id);
    assert!(processes.len() >= 3, "{processes:?}");
    for (pid, words) in processes {
        for what in ["environ", "cmdline"] {
            // It may have ended meanwhile.
            let text = fs::read(format!("/proc/{pid}/{what}")).unwrap_or_default();
            assert_eq!(find(&text, secrets), None, "is in {what} of {words}");
        }
    }
    let mut held = 0;
    for file in job.files() {
        // Files of a container that ends go while we look.
        let (Ok(about), Ok(bytes)) = (fs::metadata(&file), fs::read(&file)) else {
            continue;
        };
        let Some(secret) = find(&bytes, secrets) else {
            continue;
        };
        let (place, mode) = (file.display(), about.permissions().mode());
        assert!(!is_log(&file), "{secret} is in {place}");
        assert_eq!(mode & 0o077, 0, "{secret} is in {place}");
        held += 1;
    }
    assert!(held >= 5, "{held} files hold secrets");
}

fn is_log(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let ends = [".log", ".out", ".err", ".sh"];
    ends.into_iter().any(|end| name.ends_with(end))
}

/// Of a job that is over, no log has kept a secret.
fn keeps_none(job: &Job, secrets: &Secrets) {
    for file in job.files().into_iter().filter(|file| is_log(file)) {
        let bytes = fs::read(&file).unwrap_or_default();
        assert_eq!(find(&bytes, secrets), None, "is in {}", file.display());
    }
}

#[test]
fn a_job_with_a_keytab_outlives_its_tokens_and_one_without_says_why_it_did_not() {
    let cluster = &*cluster();
    let other = other_system(cluster);
    let keytab = cluster.kerberos().expect("a realm").keytab("alice");
    let keytab_key =
        format!("keytab: {{principal: alice@TESTBED.LOCAL, path: {}}}", keytab.display());
    let long = Job::submit(cluster, &other, &keytab_key);
    let cut_off = Job::submit(cluster, &other, "");
    let beheaded = Job::submit(cluster, &other, "");
    let first = issued(&long.token_file(0));
    for job in [&cut_off, &beheaded] {
        job.token_file(0);
    }
    let secrets = secrets(&long, &keytab);
    keeps_them(&long, &secrets);

    // What is waited for is time itself: that the last tokens of all three have ended.
    let ends = beheaded.submitted + LIFE + Duration::from_secs(10);
    wait_for("the end of the first tokens", || (Instant::now() > ends).then_some(()));
    let now = issued(&long.token_file(0));
    assert!(now.is_disjoint(&first), "{now:?} after {first:?}");
    assert_eq!(issued(&cut_off.token_file(0)).len(), 2);

    // Masters that begin with nothing but the first tokens, and perhaps a keytab.
    let master = long.behead();
    beheaded.behead();
    wait_for("another master", || {
        let masters = long.masters();
        masters.iter().any(|pid| *pid != master).then_some(())
    });
    let alice = Workspace::of(cluster, "alice");
    // An agent that is started now gets the tokens of now.
    wait_for("another worker", || {
        let ran = alice.run(&["scale", &long.id, "worker=2"]);
        (ran.code == 0).then_some(())
    });
    let second = issued(&long.token_file(1));
    assert!(second.is_disjoint(&first), "{second:?} after {first:?}");

    let failed = beheaded.over(&alice);
    assert!(failed.stdout.contains(ENDED), "{failed:?}");
    long.go();
    cut_off.go();
    let failed = cut_off.over(&alice);
    assert!(failed.stdout.contains(ENDED), "{failed:?}");
    let ended = long.over(&alice);
    assert!(ended.stdout.contains("succeeded"), "{ended:?}");
    for index in 0..2 {
        let output = format!("{}/data/{}/{index}/said", long.other, long.id);
        let said = cluster.fs(&["-cat", &output]).expect("an output");
        assert_eq!(said.trim(), format!("done-{index}"));
        let logs = alice.run(&["logs", &long.id, &format!("worker:{index}"), "--stdout"]);
        assert!(logs.stdout.contains(&format!("done-{index}")), "{logs:?}");
    }
    keeps_none(&long, &secrets);
}
