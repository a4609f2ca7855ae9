//! Lifecycle of a master in a container of a cluster.
//!
//! The working directory of the container is the job's directory on this node. Data that must outlive the
//! node is in HDFS. If a master dies, its successor recovers from the journal.

mod setting;
mod tokens;

use super::{
    api::serve,
    ashore::Ashore,
    diary::{Segments, Unreadable, is_replaced, take_over},
    inbox::inbox,
    mlflow,
    past::{Past, Reading},
    shell::Master,
};
use crate::backend::yarn::{YarnBackend, YarnSetup};
use setting::Setting;
use std::{
    fs::{self, File},
    net::{IpAddr, SocketAddr},
    process::ExitCode,
    time::Duration,
};
use tokens::Tokens;
use tokio::{
    net::{TcpListener, lookup_host},
    signal::unix::{SignalKind, signal},
    sync::oneshot,
    time::{Instant, sleep, timeout},
};
use ydl_core::Outcome;
use ydl_net::server;
use ydl_os::{
    descriptors::Descriptors,
    process,
    report::{Exit, Report},
};
use ydl_proto::{
    files::{Submitted, Whereabouts},
    messages::JobSnapshot,
};
use ydl_storage::{
    data,
    hdfs::{Hdfs, HdfsError, Kind, Ways},
};

/// Timeout of name lookups and small requests.
const ASK_MAX: Duration = Duration::from_secs(30);
/// Time limit for an unavailable file system at the start.
const HDFS_MAX: Duration = Duration::from_secs(300);
const PAUSE: Duration = Duration::from_millis(500);
/// Interval of checks for a later master. Agents wait for one no longer than the heartbeat timeout.
const REPLACED_LOOK: Duration = Duration::from_secs(15);

/// Reason why a master ends before its job.
enum End {
    /// No other master could succeed: the job failed.
    Hopeless(Report),
    /// Another master takes over.
    Left(Report),
}

impl From<Report> for End {
    fn from(report: Report) -> End {
        End::Left(report)
    }
}

/// Runs the master of the job in this container.
pub fn run() -> ExitCode {
    // Each agent keeps a connection open.
    Descriptors::raise();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ran = match &runtime {
        Ok(runtime) => runtime.block_on(live()),
        Err(error) => Err(Report::trouble(format!("cannot start the master: {error}"))),
    };
    if let Ok(runtime) = runtime {
        // Do not wait for file system calls in progress.
        runtime.shutdown_background();
    }
    match ran {
        Ok(outcome) => {
            tracing::info!("the job {outcome}");
            ExitCode::SUCCESS
        }
        Err(report) => {
            tracing::error!("{}", report.what);
            report.exit.into()
        }
    }
}

async fn live() -> Result<Outcome, Report> {
    let mut setting = match Setting::find() {
        Ok(setting) => setting,
        Err(report) => {
            setting::give_up_from_here(&report.what).await;
            return Err(report);
        }
    };
    let mut terminations = signal(SignalKind::terminate())
        .map_err(|e| Report::trouble(format!("cannot listen to signals: {e}")))?;
    let mut tokens = setting.tokens.take();
    let led = tokio::select! {
        led = lead_with(&setting, &mut tokens) => led,
        // The application was killed, the node shuts down, or the container was preempted. The job may continue
        // with another master, so this one does not end it. The journal is durable.
        _ = terminations.recv() => {
            let what = "this container is being ended".to_owned();
            return Err(Report::new(Exit::Interrupted, what));
        }
    };
    match led {
        Ok(outcome) => {
            if let Some(tokens) = tokens {
                tokens.cancel().await;
            }
            Ok(outcome)
        }
        Err(End::Left(report)) => Err(report),
        Err(End::Hopeless(report)) => {
            setting.give_up(&report.what).await;
            Err(report)
        }
    }
}

/// Runs the job while keeping its tokens fresh.
async fn lead_with(setting: &Setting, tokens: &mut Option<Tokens>) -> Result<Outcome, End> {
    let Some(tokens) = tokens else {
        return lead(setting).await;
    };
    // Before any file system access: the tokens of an earlier master may have expired.
    let due = tokens.begin().await?;
    tokio::select! {
        led = lead(setting) => led,
        never = tokens.keep_fresh(due) => match never {},
    }
}

/// Runs the job to its end.
async fn lead(setting: &Setting) -> Result<Outcome, End> {
    let hdfs = connected(setting).await?;
    let (past, diary) = taken_over(setting, &hdfs).await?;
    let listener = listen(setting.host.as_deref()).await?;
    let address = announced(setting.host.as_deref(), &listener)?;

    let tls = setting.identity.server();
    let tls = tls.map_err(|e| End::Hopeless(Report::trouble(e.to_string())))?;
    let held = past.containers();
    let yarn = yarn_setting(setting, &hdfs, &address, held).await?;
    let this = process::Identity::this().ok_or_else(|| Report::trouble("cannot read `/proc`"))?;
    let whereabouts =
        Whereabouts { address, attempt: setting.attempt, pid: this.pid, pid_started: this.started };
    // Agents of this master know its address, so nothing waits for this.
    let (away, place) = (hdfs.clone(), setting.place.clone());
    tokio::spawn(async move {
        if let Err(error) = Ashore::announce(&away, &place, &whereabouts).await {
            tracing::error!("only new agents find this master for now: {error}");
            Ashore::announce_later(away, place, whereabouts).await;
        }
    });
    let tracking = tokio::spawn(track(setting.submitted.clone(), setting.tracking_secret.clone()));
    let (backend, live) = YarnBackend::register(yarn).await?;

    let (place, attempt) = (setting.place.clone(), setting.attempt);
    let ashore = Ashore::begin(hdfs.clone(), place, attempt, &setting.dir);
    let mut master = Master::new(past, setting.dir.clone(), backend, diary);
    master.renew_with(setting.agent_credentials.clone());
    if setting.attempt > 1 {
        master.recover(live);
    }
    let (letters, mut inbox) = inbox();
    let tracking = tracking.await.ok().flatten();
    let tracking = tracking.map(|tracker| {
        master.tell_programs(tracker.variables());
        tracker.follow(letters.clone())
    });
    let (over, ended) = oneshot::channel::<()>();
    let secret = setting.secret.clone();
    let mut serving = tokio::spawn(serve(listener, tls, secret, letters, async {
        // Sent or dropped, it has the same meaning.
        let _ = ended.await;
    }));
    let outcome = tokio::select! {
        outcome = master.attend(&mut inbox) => {
            outcome.map_err(|fenced| Report::trouble(fenced.why))?
        }
        () = replaced(&hdfs, setting) => {
            return Err(Report::trouble("another master has taken over").into());
        }
        // Another master, perhaps on another node, may be reachable.
        ended = &mut serving => {
            let why = ended.map_or_else(|error| error.to_string(), |()| "they closed".to_owned());
            return Err(Report::trouble(format!("the master's doors are broken: {why}")).into());
        }
    };
    // Clients look for the result as soon as the ResourceManager reports the end.
    master.leave_result();
    if outcome != Outcome::Succeeded {
        let (submitted, home) = (&setting.submitted, &setting.staged.home);
        let ways = Ways::new(setting.config.clone(), setting.hdfs_identity.clone());
        let deadline = Instant::now() + ASK_MAX;
        data::tidy(&submitted.spec, &submitted.id, Some(home), Some(&ways), deadline).await;
    }
    if let Some(tracking) = tracking {
        let last = fs::read(setting.dir.result_file()).ok();
        let last = last.and_then(|bytes| serde_json::from_slice::<JobSnapshot>(&bytes).ok());
        let logs = match &last {
            Some(last) => {
                let deadline = Instant::now() + ASK_MAX;
                mlflow::afar(&hdfs, &setting.place, last, deadline).await
            }
            None => mlflow::Logs::new(),
        };
        tracking.end(&outcome, last.as_ref(), logs, &setting.dir, ASK_MAX).await;
    }
    ashore.end(&setting.dir).await;
    master.give_back(&outcome).await;
    drop(over);
    if let Err(error) = serving.await {
        tracing::error!("the master's doors were broken: {error}");
    }
    Ok(outcome)
}

/// Starts the job's run in MLflow, if it has one.
async fn track(submitted: Submitted, secret: Option<Vec<u8>>) -> Option<mlflow::Tracker> {
    mlflow::Tracker::begin(&submitted, secret.as_deref()).await
}

/// Returns when there is a later master. The ResourceManager and the next journal entry also detect it. But if
/// the ResourceManager is unreachable and there is nothing to write, agents would never move to their new
/// master.
async fn replaced(hdfs: &Hdfs, setting: &Setting) {
    loop {
        sleep(REPLACED_LOOK).await;
        let deadline = Instant::now() + ASK_MAX;
        // An error is retried at the next check.
        if let Ok(true) = is_replaced(hdfs, &setting.place, setting.attempt, deadline).await {
            return;
        }
    }
}

async fn connected(setting: &Setting) -> Result<Hdfs, End> {
    let connect = Hdfs::connect(
        &setting.config,
        Some(setting.place.dir()),
        &setting.hdfs_identity,
        Instant::now() + ASK_MAX,
    );
    connect.await.map_err(|error| End::Hopeless(error.into()))
}

/// Decides whether another master may succeed: it may if the file system is unavailable or returned an unknown
/// error.
fn ended_by(error: HdfsError) -> End {
    match error.may_pass() || error.kind == Kind::Other {
        true => End::Left(error.into()),
        false => End::Hopeless(error.into()),
    }
}

/// Starts this master's journal and recovers the state of earlier masters.
async fn taken_over(setting: &Setting, hdfs: &Hdfs) -> Result<(Past, Segments), End> {
    let path = setting.dir.events_file();
    let events = File::create(&path)
        .map_err(|e| Report::trouble(format!("cannot create `{}`: {e}", path.display())))?;
    let mut reading = Reading::new(setting.submitted.spec.clone(), Some(events));
    let taken = take_over(hdfs, &setting.place, setting.attempt, &mut reading).await;
    let diary = taken.map_err(|unreadable| match unreadable {
        Unreadable::Replaced => End::Left(Report::trouble(unreadable.to_string())),
        Unreadable::Hdfs(error) => ended_by(error),
        Unreadable::Journal(_) | Unreadable::Entries(_) => {
            End::Hopeless(Report::trouble(unreadable.to_string()))
        }
    })?;
    Ok((reading.end(), diary))
}

/// Listens on the address by which other machines know this node.
async fn listen(host: Option<&str>) -> Result<TcpListener, Report> {
    let any = SocketAddr::from(([0, 0, 0, 0], 0));
    let mut found = Vec::new();
    if let Some(host) = host
        && let Ok(Ok(addresses)) = timeout(ASK_MAX, lookup_host((host, 0))).await
    {
        // A node often resolves its own name to a loopback address.
        let is_literal = host.parse::<IpAddr>().is_ok();
        found.extend(addresses.filter(|it| is_literal || !it.ip().is_loopback()));
    }
    // Others may still reach this node by a name that it does not resolve to itself.
    found.push(any);
    let mut last = String::new();
    for address in found {
        match server::listen(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = format!("cannot listen on {address}: {error}"),
        }
    }
    Err(Report::trouble(last))
}

fn announced(host: Option<&str>, listener: &TcpListener) -> Result<String, Report> {
    let local = listener.local_addr().map_err(|e| Report::trouble(e.to_string()))?;
    Ok(match host {
        Some(host) => format!("{host}:{}", local.port()),
        None => local.to_string(),
    })
}

async fn yarn_setting(
    setting: &Setting,
    hdfs: &Hdfs,
    address: &str,
    held: Vec<ydl_core::ContainerId>,
) -> Result<YarnSetup, End> {
    let end = Instant::now() + HDFS_MAX;
    let own = loop {
        match setting.own_files(hdfs, Instant::now() + ASK_MAX).await {
            Ok(own) => break own,
            Err(error) if error.may_pass() && Instant::now() < end => {
                tracing::warn!("waiting for the job's files: {error}");
                sleep(PAUSE).await;
            }
            Err(error) => return Err(ended_by(error)),
        }
    };
    Ok(YarnSetup {
        config: setting.config.clone(),
        token: setting.token.clone(),
        identity: setting.rm_identity.clone(),
        spec: setting.submitted.spec.clone(),
        staged: setting.staged.clone(),
        own,
        secret: setting.secret.clone(),
        agent_credentials: setting.agent_credentials.clone(),
        address: address.to_owned(),
        tracking_url: String::new(),
        held,
    })
}
