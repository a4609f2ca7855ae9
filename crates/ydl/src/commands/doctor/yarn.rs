//! Checks of a cluster.

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

/// Maximum time for one check, except for the test job.
const CHECK_MAX: Duration = Duration::from_secs(60);
/// Maximum time for an HDFS check.
const HDFS_MAX: Duration = Duration::from_secs(30);
/// Remaining lifetime of a ticket below which `doctor` warns.
const LIFETIME_MIN: Duration = Duration::from_secs(60 * 60);

/// Runs every check of the cluster, in the order in which they depend on each other.
pub(crate) async fn run_checks(
    args: &cli::DoctorArgs,
    wait: Span,
    checklist: &mut Checklist,
) -> Result<(), Report> {
    let cluster = configured_cluster(checklist)?;
    let user = ticket(cluster.as_ref(), checklist).await?;
    let info = manager(cluster.as_ref(), user, checklist).await?;
    let test_job = TestJob {
        cluster: Cluster::Yarn,
        queue: args.queue.clone(),
        label: args.label.clone(),
        staging: args.staging.clone(),
        wait,
    };
    nodes(info.as_ref(), checklist)?;
    queue(info.as_ref(), &test_job, checklist)?;
    namenode(cluster.as_ref(), &test_job, checklist).await?;
    staging(cluster.as_ref(), &test_job, checklist).await?;
    if !args.no_job && checklist.can_run(JOB, &[NODES, QUEUE, LABEL, STAGING])? {
        test_job::run_check(&test_job, checklist).await?;
    }
    Ok(())
}

/// Fails a check that takes longer than [`CHECK_MAX`].
async fn within<T>(
    what: &str,
    check: impl Future<Output = Result<T, Report>>,
) -> Result<T, Report> {
    timeout(CHECK_MAX, check).await.unwrap_or_else(|_| {
        let what = format!("{what} did not end in {}", Span(millis(CHECK_MAX)));
        Err(Report::new(Exit::Unreachable, what))
    })
}

/// Checks the configuration. Returns a client for the cluster that it describes.
fn configured_cluster(checklist: &mut Checklist) -> Result<Option<ClusterClient>, Report> {
    let result = configuration().and_then(|config| match config {
        Some(config) => {
            describe(&config).and_then(|summary| Ok((ClusterClient::with(config)?, summary)))
        }
        None => Err(missing_configuration().hint(
            "set `HADOOP_CONF_DIR` to the directory with `core-site.xml` and `yarn-site.xml`, \
             or check this machine with `--cluster local`",
        )),
    });
    match result {
        Err(why) => checklist.fail(CONFIGURATION, why).map(|()| None),
        Ok((cluster, (summary, None))) => {
            checklist.ok(CONFIGURATION, summary)?;
            Ok(Some(cluster))
        }
        Ok((cluster, (summary, Some(warning)))) => {
            checklist.warn(CONFIGURATION, format!("{summary}; {warning}"))?;
            Ok(Some(cluster))
        }
    }
}

/// Summarizes the configuration. The second string is a warning about it.
fn describe(config: &Config) -> Result<(String, Option<String>), Report> {
    let invalid = |error: yarn_native::config::ConfigError| {
        let what = format!("invalid Hadoop configuration: {error}");
        Report::bad_input(what).hint("correct the key in the file that is named")
    };
    let directories = Config::directories(&Environment::of_process());
    let directories: Vec<_> =
        directories.iter().map(|dir| format!("`{}`", dir.display())).collect();
    let name = |path: &std::path::PathBuf| {
        let name = path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    };
    let files: Vec<_> = config.files().iter().map(name).collect();
    let managers = config.resource_managers().map_err(invalid)?;
    let managers: Vec<_> = managers.iter().map(|m| format!("`{}`", m.client)).collect();
    let system = config.default_fs().map_err(invalid)?;
    if !system.starts_with("hdfs://") && !system.starts_with("viewfs://") {
        let origin = config.origin("fs.defaultFS");
        let origin = origin.map_or_else(|| "not set".to_owned(), ToString::to_string);
        let what = format!("`fs.defaultFS` is `{system}` ({origin}), and jobs need HDFS");
        let hint = "set it in `core-site.xml`, as in `hdfs://namenode:8020`, \
                    or point `HADOOP_CONF_DIR` at the cluster's own configuration";
        return Err(Report::bad_input(what).hint(hint));
    }
    let summary = format!(
        "{} ({}): ResourceManager {}, file system `{system}`",
        directories.join(", "),
        files.join(", "),
        managers.join(", ")
    );
    Ok((summary, configuration_warning(config, &files)))
}

fn configuration_warning(config: &Config, files: &[String]) -> Option<String> {
    if !files.iter().any(|name| name == "yarn-site.xml") {
        return Some("no `yarn-site.xml`: the ResourceManager's address is the default".to_owned());
    }
    let key = "yarn.resourcemanager.address";
    let is_single = config.resource_managers().is_ok_and(|all| all.len() == 1);
    let is_unset = |key| matches!(config.origin(key), None | Some(Origin::Default));
    if is_single && is_unset(key) && is_unset("yarn.resourcemanager.hostname") {
        return Some(format!(
            "neither `{key}` nor `yarn.resourcemanager.hostname` is set: the address is the default"
        ));
    }
    // Deprecated names of keys are common and harmless.
    let mut notes = config.warnings().iter();
    let note = notes.find(|note| !matches!(note.kind, ConfigWarningKind::Deprecated { .. }))?;
    Some(note.to_string())
}

/// Checks that this user can authenticate. Returns the user that jobs run as, empty if unknown.
async fn ticket(
    cluster: Option<&ClusterClient>,
    checklist: &mut Checklist,
) -> Result<String, Report> {
    if !checklist.can_run(TICKET, &[CONFIGURATION])? {
        return Ok(String::new());
    }
    let Some(cluster) = cluster else {
        return Ok(String::new());
    };
    let user = cluster.user.clone();
    let AuthMethod::Kerberos(kerberos) = &cluster.identity.auth else {
        let message = format!("not needed: simple authentication as `{user}`");
        checklist.ok(TICKET, message)?;
        return Ok(user);
    };
    let ticket = within("reading the Kerberos ticket", kerberos_ticket(kerberos.clone())).await;
    let (principal, lifetime) = match ticket {
        Err(why) => return checklist.fail(TICKET, why).map(|()| String::new()),
        Ok(ticket) => ticket,
    };
    let (user, proxied) = match cluster.config.proxy_user() {
        Some(user) => {
            let proxied = format!(", for `{user}` (`HADOOP_PROXY_USER`)");
            (user, proxied)
        }
        None => (short_name(&principal), String::new()),
    };
    let message = format!("`{principal}`{proxied}, {} left", Span(millis(lifetime)));
    match lifetime < LIFETIME_MIN {
        true => checklist.warn(TICKET, format!("{message}: renew it with `kinit` soon"))?,
        false => checklist.ok(TICKET, message)?,
    }
    Ok(user)
}

/// Returns the principal of the user's ticket and its remaining lifetime.
async fn kerberos_ticket(kerberos: Kerberos) -> Result<(String, Duration), Report> {
    let ticket = spawn_blocking(move || kerberos.ticket()).await;
    let ticket = ticket.map_err(|_| Report::internal("the Kerberos library failed"))?;
    let ticket = ticket.map_err(|error| {
        let hint = error.hint();
        let report = Report::bad_input(error.to_string());
        match hint {
            Some(hint) => report.hint(hint),
            None => report,
        }
    })?;
    Ok((ticket.principal, ticket.lifetime))
}

/// Checks that the ResourceManager responds. Returns its view of the cluster.
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
    let query = async {
        tokio::try_join!(
            preflight::gather(&cluster.rm, &cluster.config, &user, deadline),
            cluster.rm.new_application(deadline),
        )
    };
    match within("querying the ResourceManager", cluster.call(query)).await {
        Err(why) => checklist.fail(MANAGER, why).map(|()| None),
        Ok((mut info, new)) => {
            info.largest = Some((&new.capability_max).into());
            checklist.ok(MANAGER, format!("responded in {}", Span(millis(began.elapsed()))))?;
            Ok(Some(info))
        }
    }
}

fn nodes(info: Option<&ClusterInfo>, checklist: &mut Checklist) -> Result<(), Report> {
    if !checklist.can_run(NODES, &[MANAGER])? {
        return Ok(());
    }
    let Some(info) = info else {
        return Ok(());
    };
    let all = info.nodes.len();
    let running: Vec<_> = info.nodes.iter().filter(|node| node.running).collect();
    if running.is_empty() {
        let what = match all {
            0 => "the cluster has no nodes".to_owned(),
            1 => "the cluster's only node is not running".to_owned(),
            n => format!("none of the cluster's {n} nodes is running"),
        };
        let why = Report::new(Exit::Unreachable, what);
        return checklist.fail(
            NODES,
            why.hint("list them with `ydl nodes --all`, and ask an administrator to start the NodeManagers"),
        );
    }
    let memory = running.iter().map(|node| node.free.memory_mib).sum();
    let vcores: u64 = running.iter().map(|node| node.free.vcores).sum();
    let message = format!("{} running, {} and {vcores} vcores free", running.len(), Memory(memory));
    match all - running.len() {
        0 => checklist.ok(NODES, message),
        1 => checklist.warn(NODES, format!("{message}; 1 is not running: `ydl nodes --all`")),
        n => checklist.warn(NODES, format!("{message}; {n} are not running: `ydl nodes --all`")),
    }
}

/// Checks that the queue and the node label accept this user's jobs.
fn queue(
    info: Option<&ClusterInfo>,
    test_job: &TestJob,
    checklist: &mut Checklist,
) -> Result<(), Report> {
    let name = test_job.queue.as_deref().unwrap_or("default");
    // The staging directory has a check of its own.
    let unstaged = TestJob { staging: None, ..test_job.clone() };
    if checklist.can_run(QUEUE, &[MANAGER, NODES])?
        && let Some(info) = info
    {
        let unlabelled = TestJob { label: None, ..unstaged.clone() };
        match findings(&unlabelled, info) {
            Err(why) => checklist.fail(QUEUE, why)?,
            Ok(notes) if notes.is_empty() => {
                let message = format!("`{name}` accepts jobs of `{}`", info.user);
                checklist.ok(QUEUE, message)?;
            }
            Ok(notes) => checklist.warn(QUEUE, notes.join("; "))?,
        }
    }
    let Some(label) = &test_job.label else {
        return Ok(());
    };
    if checklist.can_run(LABEL, &[MANAGER, NODES, QUEUE])?
        && let Some(info) = info
    {
        match findings(&unstaged, info) {
            Err(why) => checklist.fail(LABEL, why)?,
            Ok(_) => {
                let nodes = info.nodes.iter().filter(|node| node.running);
                let count = match nodes.filter(|node| node.label == *label).count() {
                    1 => "1 running node".to_owned(),
                    n => format!("{n} running nodes"),
                };
                let message = format!("queue `{name}` may use `{label}`: {count}");
                checklist.ok(LABEL, message)?;
            }
        }
    }
    Ok(())
}

/// Returns the findings of `submit`'s preflight check for the test job.
fn findings(test_job: &TestJob, info: &ClusterInfo) -> Result<Vec<String>, Report> {
    let spec: JobSpec = test_job.spec()?;
    let Findings { refusals, notes } = preflight::check(&spec, info);
    match refusals.into_iter().next() {
        Some(first) => {
            // The hints name job-file keys; this command has flags.
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
    // The staging check rejects other file systems.
    let url = staging.filter(|url| url.starts_with("hdfs://") || url.starts_with("viewfs://"));
    let began = Instant::now();
    let deadline = began + HDFS_MAX;
    let query = async {
        let ClusterClient { config, identity, .. } = cluster;
        let hdfs = Hdfs::connect(config, url, identity, deadline).await?;
        // The directory's existence is visible to every user.
        hdfs.stat("/", deadline).await?;
        let response_time = Span(millis(began.elapsed()));
        let mut missing_home = None;
        if staging.is_none() {
            let home = hdfs.home(deadline).await?;
            // Permission denied on listing is no failure: the next check tries to write.
            if let Ok(None) = hdfs.stat(&home, deadline).await {
                missing_home = Some(home);
            }
        }
        let message = format!("`{}` responded in {response_time}", hdfs.root());
        Ok::<_, Report>((message, missing_home))
    };
    match within("querying the NameNode", query).await {
        Err(why) => checklist.fail(NAMENODE, why),
        Ok((message, None)) => checklist.ok(NAMENODE, message),
        Ok((message, Some(home))) => checklist
            .warn(NAMENODE, format!("{message}; home directory `{home}` does not exist yet")),
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
    let write = async {
        let ClusterClient { config, identity, .. } = cluster;
        // Building the spec validates the staging directory as `submit` does.
        let unqueued = TestJob { queue: None, label: None, ..test_job.clone() };
        unqueued.spec()?;
        let staging =
            StagingDir::find(config, identity, test_job.staging.as_deref(), deadline).await?;
        staging.check_write(deadline).await?;
        Ok::<_, Report>(staging.layout.root().to_owned())
    };
    let result = within("writing to the staging directory", write).await;
    checklist.record(STAGING, result.map(|root| format!("`{root}` is readable and writable")))
}
