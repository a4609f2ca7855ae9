//! Everything that a job on a cluster needs.

use super::{
    checklist::{Checklist, millis},
    test_job::{self, TestJob},
};
use crate::{
    cli::{self, Cluster},
    client::{
        cluster::{ClusterClient, configuration, missing_configuration},
        preflight::{self, ClusterInfo, Findings},
        stage::StagingDir,
    },
};
use std::time::Duration;
use tokio::{
    task::spawn_blocking,
    time::{Instant, timeout},
};
use yarn_native::{
    config::{Config, ConfigWarningKind, Environment, Origin},
    security::{AuthMethod, Kerberos},
};
use ydl_core::{JobSpec, Span, spec::Memory};
use ydl_os::report::{Exit, Report};
use ydl_storage::hdfs::{Hdfs, short_name};

const CONFIGURATION: &str = "configuration";
const TICKET: &str = "ticket";
const MANAGER: &str = "ResourceManager";
const NODES: &str = "nodes";
const QUEUE: &str = "queue";
const LABEL: &str = "label";
const NAMENODE: &str = "NameNode";
const STAGING: &str = "staging";
const JOB: &str = "job";

/// The most that one check may take, the job apart.
const CHECK_MAX: Duration = Duration::from_secs(60);
/// Maximum time for an HDFS check.
const HDFS_MAX: Duration = Duration::from_secs(30);
/// A ticket that ends sooner will soon be missed.
const LIFE_MIN: Duration = Duration::from_secs(60 * 60);

/// Every check, in the order in which one needs another.
pub async fn examine(
    args: &cli::DoctorArgs,
    wait: Span,
    checklist: &mut Checklist,
) -> Result<(), Report> {
    let cluster = settings(checklist)?;
    let user = ticket(cluster.as_ref(), checklist).await?;
    let has = manager(cluster.as_ref(), user, checklist).await?;
    let test_job = TestJob {
        cluster: Cluster::Yarn,
        queue: args.queue.clone(),
        label: args.label.clone(),
        staging: args.staging.clone(),
        wait,
    };
    nodes(has.as_ref(), checklist)?;
    queue(has.as_ref(), &test_job, checklist)?;
    namenode(cluster.as_ref(), &test_job, checklist).await?;
    staging(cluster.as_ref(), &test_job, checklist).await?;
    if !args.no_job && checklist.can_run(JOB, &[NODES, QUEUE, LABEL, STAGING])? {
        test_job::examine(&test_job, checklist).await?;
    }
    Ok(())
}

/// Whatever hangs is given up, and said to hang.
async fn within<T>(
    what: &str,
    asked: impl Future<Output = Result<T, Report>>,
) -> Result<T, Report> {
    timeout(CHECK_MAX, asked).await.unwrap_or_else(|_| {
        let what = format!("{what} did not end in {}", Span(millis(CHECK_MAX)));
        Err(Report::new(Exit::Unreachable, what))
    })
}

/// The configuration, and the way to the cluster that it describes.
fn settings(checklist: &mut Checklist) -> Result<Option<ClusterClient>, Report> {
    let found = configuration().and_then(|config| match config {
        Some(config) => {
            described(&config).and_then(|found| Ok((ClusterClient::with(config)?, found)))
        }
        None => Err(missing_configuration().hint(
            "set `HADOOP_CONF_DIR` to the directory with `core-site.xml` and `yarn-site.xml`, \
             or look at this machine with `--cluster local`",
        )),
    });
    match found {
        Err(why) => checklist.fail(CONFIGURATION, why).map(|()| None),
        Ok((cluster, (found, None))) => {
            checklist.ok(CONFIGURATION, found)?;
            Ok(Some(cluster))
        }
        Ok((cluster, (found, Some(odd)))) => {
            checklist.warn(CONFIGURATION, format!("{found}; {odd}"))?;
            Ok(Some(cluster))
        }
    }
}

/// Describes the source of the configuration, its contents and its oddities.
fn described(config: &Config) -> Result<(String, Option<String>), Report> {
    let unusable = |error: yarn_native::config::ConfigError| {
        let what = format!("the Hadoop configuration cannot be used: {error}");
        Report::bad_input(what).hint("set the key right in the file that is named")
    };
    let directories = Config::directories(&Environment::of_process());
    let directories: Vec<_> =
        directories.iter().map(|dir| format!("`{}`", dir.display())).collect();
    let name = |path: &std::path::PathBuf| {
        let name = path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    };
    let files: Vec<_> = config.files().iter().map(name).collect();
    let managers = config.resource_managers().map_err(unusable)?;
    let managers: Vec<_> = managers.iter().map(|m| format!("`{}`", m.client)).collect();
    let system = config.default_fs().map_err(unusable)?;
    if !system.starts_with("hdfs://") && !system.starts_with("viewfs://") {
        let origin = config.origin("fs.defaultFS");
        let origin = origin.map_or_else(|| "not set".to_owned(), ToString::to_string);
        let what = format!("`fs.defaultFS` is `{system}` ({origin}), and jobs need HDFS");
        let hint = "set it in `core-site.xml`, as in `hdfs://namenode:8020`; is this the cluster's own directory?";
        return Err(Report::bad_input(what).hint(hint));
    }
    let found = format!(
        "{} ({}): ResourceManager {}, file system `{system}`",
        directories.join(", "),
        files.join(", "),
        managers.join(", ")
    );
    Ok((found, odd(config, &files)))
}

fn odd(config: &Config, files: &[String]) -> Option<String> {
    if !files.iter().any(|name| name == "yarn-site.xml") {
        return Some("without `yarn-site.xml` the ResourceManager's address is a guess".to_owned());
    }
    let key = "yarn.resourcemanager.address";
    let alone = config.resource_managers().is_ok_and(|all| all.len() == 1);
    let unset = |key| matches!(config.origin(key), None | Some(Origin::Default));
    if alone && unset(key) && unset("yarn.resourcemanager.hostname") {
        return Some(format!(
            "neither `{key}` nor `yarn.resourcemanager.hostname` is set: the address is a guess"
        ));
    }
    // Former names of keys are everywhere, and do no harm.
    let mut notes = config.warnings().iter();
    let note = notes.find(|note| !matches!(note.kind, ConfigWarningKind::Deprecated { .. }))?;
    Some(note.to_string())
}

/// Returns whether this user can prove who it is, and whose jobs these are.
async fn ticket(
    cluster: Option<&ClusterClient>,
    checklist: &mut Checklist,
) -> Result<String, Report> {
    let nobody = String::new();
    if !checklist.can_run(TICKET, &[CONFIGURATION])? {
        return Ok(nobody);
    }
    let Some(cluster) = cluster else {
        return Ok(nobody);
    };
    let user = cluster.user.clone();
    let AuthMethod::Kerberos(kerberos) = &cluster.identity.auth else {
        let found = format!("not needed: simple authentication as `{user}`");
        checklist.ok(TICKET, found)?;
        return Ok(user);
    };
    let held = within("looking for a Kerberos ticket", held(kerberos.clone())).await;
    let (principal, life) = match held {
        Err(why) => return checklist.fail(TICKET, why).map(|()| nobody),
        Ok(held) => held,
    };
    let (user, acting) = match cluster.config.proxy_user() {
        Some(user) => {
            let acting = format!(", for `{user}` (`HADOOP_PROXY_USER`)");
            (user, acting)
        }
        None => (short_name(&principal), String::new()),
    };
    let found = format!("`{principal}`{acting}, {} left", Span(millis(life)));
    match life < LIFE_MIN {
        true => checklist.warn(TICKET, format!("{found}: renew it with `kinit` soon"))?,
        false => checklist.ok(TICKET, found)?,
    }
    Ok(user)
}

async fn held(kerberos: Kerberos) -> Result<(String, Duration), Report> {
    let looked = spawn_blocking(move || kerberos.ticket()).await;
    let looked = looked.map_err(|_| Report::internal("the Kerberos library failed"))?;
    let ticket = looked.map_err(|error| {
        let hint = error.hint();
        let report = Report::bad_input(error.to_string());
        match hint {
            Some(hint) => report.hint(hint),
            None => report,
        }
    })?;
    Ok((ticket.principal, ticket.lifetime))
}

/// Queries the ResourceManager for its cluster.
async fn manager(
    cluster: Option<&ClusterClient>,
    user: String,
    checklist: &mut Checklist,
) -> Result<Option<ClusterInfo>, Report> {
    if !checklist.can_run(MANAGER, &[CONFIGURATION, TICKET])? {
        return Ok(None);
    }
    let Some(cluster) = cluster else {
        return Ok(None);
    };
    let began = Instant::now();
    let deadline = cluster.deadline();
    let asked = async {
        tokio::try_join!(
            preflight::gather(&cluster.rm, &cluster.config, &user, deadline),
            cluster.rm.new_application(deadline),
        )
    };
    match within("asking the ResourceManager", cluster.call(asked)).await {
        Err(why) => checklist.fail(MANAGER, why).map(|()| None),
        Ok((mut has, new)) => {
            has.largest = Some((&new.capability_max).into());
            checklist.ok(MANAGER, format!("answered in {}", Span(millis(began.elapsed()))))?;
            Ok(Some(has))
        }
    }
}

fn nodes(has: Option<&ClusterInfo>, checklist: &mut Checklist) -> Result<(), Report> {
    if !checklist.can_run(NODES, &[MANAGER])? {
        return Ok(());
    }
    let Some(has) = has else {
        return Ok(());
    };
    let all = has.nodes.len();
    let running: Vec<_> = has.nodes.iter().filter(|node| node.running).collect();
    if running.is_empty() {
        let what = match all {
            0 => "the cluster has no nodes".to_owned(),
            1 => "the cluster's only node is not running".to_owned(),
            n => format!("none of the cluster's {n} nodes is running"),
        };
        let why = Report::new(Exit::Unreachable, what);
        return checklist.fail(
            NODES,
            why.hint("`ydl nodes --all` shows each; an administrator starts NodeManagers"),
        );
    }
    let memory = running.iter().map(|node| node.free.memory_mib).sum();
    let vcores: u64 = running.iter().map(|node| node.free.vcores).sum();
    let found = format!("{} running, {} and {vcores} vcores free", running.len(), Memory(memory));
    match all - running.len() {
        0 => checklist.ok(NODES, found),
        1 => checklist.warn(NODES, format!("{found}; 1 is not running: `ydl nodes --all`")),
        n => checklist.warn(NODES, format!("{found}; {n} are not running: `ydl nodes --all`")),
    }
}

/// Returns whether this user's jobs are taken there.
fn queue(
    has: Option<&ClusterInfo>,
    test_job: &TestJob,
    checklist: &mut Checklist,
) -> Result<(), Report> {
    let name = test_job.queue.as_deref().unwrap_or("default");
    // Where its files lie is another check's matter.
    let unstaged = TestJob { staging: None, ..test_job.clone() };
    if checklist.can_run(QUEUE, &[MANAGER, NODES])?
        && let Some(has) = has
    {
        let unlabelled = TestJob { label: None, ..unstaged.clone() };
        match findings(&unlabelled, has) {
            Err(why) => checklist.fail(QUEUE, why)?,
            Ok(notes) if notes.is_empty() => {
                let found = format!("`{name}` accepts jobs of `{}`", has.user);
                checklist.ok(QUEUE, found)?;
            }
            Ok(notes) => checklist.warn(QUEUE, notes.join("; "))?,
        }
    }
    let Some(label) = &test_job.label else {
        return Ok(());
    };
    if checklist.can_run(LABEL, &[MANAGER, NODES, QUEUE])?
        && let Some(has) = has
    {
        match findings(&unstaged, has) {
            Err(why) => checklist.fail(LABEL, why)?,
            Ok(_) => {
                let nodes = has.nodes.iter().filter(|node| node.running);
                let found = match nodes.filter(|node| node.label == *label).count() {
                    1 => "1 running node has".to_owned(),
                    n => format!("{n} running nodes have"),
                };
                let found = format!("queue `{name}` may use `{label}`, which {found}");
                checklist.ok(LABEL, found)?;
            }
        }
    }
    Ok(())
}

/// Returns the findings of `submit`'s preflight check for the test job.
fn findings(test_job: &TestJob, has: &ClusterInfo) -> Result<Vec<String>, Report> {
    let spec: JobSpec = test_job.spec()?;
    let Findings { refusals, notes } = preflight::check(&spec, has);
    match refusals.into_iter().next() {
        Some(first) => {
            // The flags of this command are called otherwise than the keys of a job file.
            let hint = first.hint.replace("`queue`", "`--queue`");
            let hint = hint.replace("`node_label`", "`--label`");
            Err(Report::bad_input(first.what).hint(hint))
        }
        None => Ok(notes),
    }
}

async fn namenode(
    cluster: Option<&ClusterClient>,
    test_job: &TestJob,
    checklist: &mut Checklist,
) -> Result<(), Report> {
    if !checklist.can_run(NAMENODE, &[CONFIGURATION, TICKET])? {
        return Ok(());
    }
    let Some(cluster) = cluster else {
        return Ok(());
    };
    let staging = test_job.staging.as_deref();
    // What is in no HDFS is refused by the check of the staging directory.
    let elsewhere = staging.filter(|it| it.starts_with("hdfs://") || it.starts_with("viewfs://"));
    let began = Instant::now();
    let deadline = began + HDFS_MAX;
    let asked = async {
        let ClusterClient { config, identity, .. } = cluster;
        let hdfs = Hdfs::connect(config, elsewhere, identity, deadline).await?;
        // The directory's existence is visible to every user.
        hdfs.stat("/", deadline).await?;
        let answered = Span(millis(began.elapsed()));
        let mut homeless = None;
        if staging.is_none() {
            let home = hdfs.home(deadline).await?;
            // Permission denied on listing is no failure: the next check tries to write.
            if let Ok(None) = hdfs.stat(&home, deadline).await {
                homeless = Some(home);
            }
        }
        let found = format!("`{}` answered in {answered}", hdfs.root());
        Ok::<_, Report>((found, homeless))
    };
    match within("asking the NameNode", asked).await {
        Err(why) => checklist.fail(NAMENODE, why),
        Ok((found, None)) => checklist.ok(NAMENODE, found),
        Ok((found, Some(home))) => {
            checklist.warn(NAMENODE, format!("{found}; there is no home `{home}` yet"))
        }
    }
}

async fn staging(
    cluster: Option<&ClusterClient>,
    test_job: &TestJob,
    checklist: &mut Checklist,
) -> Result<(), Report> {
    if !checklist.can_run(STAGING, &[NAMENODE])? {
        return Ok(());
    }
    let Some(cluster) = cluster else {
        return Ok(());
    };
    let deadline = Instant::now() + HDFS_MAX;
    let tried = async {
        let ClusterClient { config, identity, .. } = cluster;
        // As `submit` understands it, which refuses what is no place in HDFS.
        let unqueued = TestJob { queue: None, label: None, ..test_job.clone() };
        unqueued.spec()?;
        let place =
            StagingDir::find(config, identity, test_job.staging.as_deref(), deadline).await?;
        place.check_write(deadline).await?;
        Ok::<_, Report>(place.layout.root().to_owned())
    };
    let tried = within("writing to the staging directory", tried).await;
    checklist.record(STAGING, tried.map(|root| format!("`{root}` can be written and read")))
}
