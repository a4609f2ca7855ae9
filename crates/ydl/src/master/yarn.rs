//! A master in a container of a cluster, from its credentials to its end.
//!
//! The container's working directory is the job's directory on this node; what must outlive the node is in HDFS. A master
//! that dies is followed by another one, which goes on from the diary.

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

/// The longest that a name may be looked up, or a server be asked something small.
const ASK_MAX: Duration = Duration::from_secs(30);
/// How long a file system that is away is waited for at the beginning.
const HDFS_MAX: Duration = Duration::from_secs(300);
const PAUSE: Duration = Duration::from_millis(500);
/// How often a master looks whether another has taken over. Agents wait for it no longer than for `silence`.
const REPLACED_LOOK: Duration = Duration::from_secs(15);

/// Why a master ends before its job does.
enum End {
    /// No other master could do better: the job has failed.
    Hopeless(Report),
    /// Another master goes on, or has taken over.
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
        // What still hangs in the file system is not waited for.
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
        // The application was killed, this node goes down, or this container is wanted for another job. Whatever
        // comes next, it is not this master's to end the job: what it did is written down.
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

/// Leads the job with tokens that are good, for as long as it takes.
async fn lead_with(setting: &Setting, tokens: &mut Option<Tokens>) -> Result<Outcome, End> {
    let Some(tokens) = tokens else {
        return lead(setting).await;
    };
    // Before anything is asked of a file system: an earlier master's may have ended.
    let due = tokens.begin().await?;
    tokio::select! {
        led = lead(setting) => led,
        never = tokens.keep_fresh(due) => match never {},
    }
}

/// Leads the job from here to its end.
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
    // Agents that this master starts know where it is; it waits for nobody else to learn it.
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
        // Dropped or sent, it means the same.
        let _ = ended.await;
    }));
    let outcome = tokio::select! {
        outcome = master.attend(&mut inbox) => {
            outcome.map_err(|fenced| Report::trouble(fenced.why))?
        }
        () = replaced(&hdfs, setting) => {
            return Err(Report::trouble("another master has taken over").into());
        }
        // Another master, on another node perhaps, can be reached.
        ended = &mut serving => {
            let why = ended.map_or_else(|error| error.to_string(), |()| "they closed".to_owned());
            return Err(Report::trouble(format!("the master's doors are broken: {why}")).into());
        }
    };
    // Whoever hears of the end from the ResourceManager looks for the result next.
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

/// The job's run in MLflow, if it wants one.
async fn track(submitted: Submitted, secret: Option<Vec<u8>>) -> Option<mlflow::Tracker> {
    mlflow::Tracker::begin(&submitted, secret.as_deref()).await
}

/// Ends when there is a later master. The ResourceManager tells, and so does the journal with the next entry; but where
/// the one cannot be reached and there is nothing to write, agents would be kept from their new master for ever.
async fn replaced(hdfs: &Hdfs, setting: &Setting) {
    loop {
        sleep(REPLACED_LOOK).await;
        let deadline = Instant::now() + ASK_MAX;
        // What cannot be seen now is seen later.
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

/// A file system that is away, or says what nobody understands, may do better for the next one.
fn ended_by(error: HdfsError) -> End {
    match error.may_pass() || error.kind == Kind::Other {
        true => End::Left(error.into()),
        false => End::Hopeless(error.into()),
    }
}

/// The diary of this master, and what those before it have come to.
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

/// A socket at the address that others know this node by.
async fn listen(host: Option<&str>) -> Result<TcpListener, Report> {
    let any = SocketAddr::from(([0, 0, 0, 0], 0));
    let mut found = Vec::new();
    if let Some(host) = host
        && let Ok(Ok(addresses)) = timeout(ASK_MAX, lookup_host((host, 0))).await
    {
        // A node often knows its own name as an address that leads nowhere else.
        let is_literal = host.parse::<IpAddr>().is_ok();
        found.extend(addresses.filter(|it| is_literal || !it.ip().is_loopback()));
    }
    // A name that leads to another machine, or nowhere, is still how others may reach this one.
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
