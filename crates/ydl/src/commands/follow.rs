//! Following a job until it is over, or until the person has had enough.

use super::{
    reach::{Reach, signal_master},
    sink::{Gone, Sink},
    tails::Tails,
};
use crate::{
    jobs::{EVENTS_BYTES_MAX, Ended, Known, Standing},
    mirror::Mirror,
    os::reason,
    report::{Exit, Report},
    talk::{Facts, Viewed},
    wire::client::CallError,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{BufRead, BufReader, Read},
    sync::Arc,
    time::Duration,
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc,
    task::{JoinHandle, JoinSet},
    time::{Instant, MissedTickBehavior, interval, sleep, timeout},
};
use ydl_core::{Fact, TaskId, fact::What, view::Phase};

/// How long a question may wait for news.
const WAIT: Duration = Duration::from_secs(20);
/// How often the job is looked at though nothing has happened: what its tasks use changes all the time.
const LOOK: Duration = Duration::from_secs(1);
/// How long a master that runs may be out of reach, and how long one that ends may take to be gone.
const PATIENCE: Duration = Duration::from_secs(60);
/// The same on a cluster, which may need long to see that a node is lost and to start a master elsewhere.
const FAR_PATIENCE: Duration = Duration::from_secs(30 * 60);
/// After so long a person is told why nothing comes.
const SILENCE: Duration = Duration::from_secs(3);
/// The pause before a question is asked again.
const AGAIN: Duration = Duration::from_millis(20);

/// The same for a master that may have to be started on another node first.
const FAR_AGAIN: Duration = Duration::from_millis(200);

/// How following ended.
#[derive(Debug)]
pub enum Left {
    /// The job is over.
    Over(Box<Viewed>),
    /// The job's master died.
    Lost,
    /// The job is over, and the cluster's words are all there is.
    Ended(Ended),
    /// The person left; the job is being stopped.
    Interrupted,
    /// Nobody reads what is printed.
    Gone,
}

/// Whether the signals that end a program stop the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnInterrupt {
    /// The first asks the job to stop, the second leaves.
    StopJob,
    /// The first leaves.
    Leave,
}

#[derive(Debug)]
enum News {
    Facts(Facts),
    View(Box<Viewed>),
    Ended(Standing),
    NoAnswer(CallError),
    OutOfReach(CallError),
}

/// Somebody who follows a job.
#[derive(Debug)]
pub struct Follower {
    pub job: Arc<Known>,
    pub reach: Arc<Reach>,
    pub sink: Sink,
    pub tails: Tails,
    pub on_interrupt: OnInterrupt,
    /// The most memory each task was seen to use, in MiB.
    pub peaks: BTreeMap<TaskId, u64>,
    /// Nobody reads stdout; the job is followed all the same.
    pub deaf: bool,
    /// The number of the next fact to come.
    pub next: u64,
    pub signals: Signals,
    /// Where the job is on a cluster.
    pub mirror: Option<Afar>,
}

/// Copies of what a job on a cluster prints, on their way.
#[derive(Debug)]
pub struct Afar {
    pub mirror: Arc<Mirror>,
    coming: JoinSet<(TaskId, u32)>,
    known: BTreeSet<(TaskId, u32)>,
}

impl Afar {
    pub fn new(mirror: Arc<Mirror>) -> Afar {
        Afar {
            mirror,
            coming: JoinSet::new(),
            known: BTreeSet::new(),
        }
    }

    /// Has the wanted streams of an attempt copied, unless they are already.
    fn follow(&mut self, task: &TaskId, attempt: u32, tails: &Tails, reach: &Arc<Reach>) {
        let streams = tails.streams(task, attempt);
        if streams.is_empty() || !self.known.insert((task.clone(), attempt)) {
            return;
        }
        let (mirror, reach) = (self.mirror.clone(), reach.clone());
        let client = move || reach.client();
        let copying = mirror.follow_attempt(task.clone(), attempt, streams, client);
        self.coming.spawn(copying);
    }

    /// The next attempt of which everything has come.
    async fn came(&mut self) -> (TaskId, u32) {
        loop {
            match self.coming.join_next().await {
                Some(Ok(attempt)) => return attempt,
                Some(Err(_)) => {}
                None => std::future::pending().await,
            }
        }
    }

    /// The job is over: whatever is still on its way is fetched whole. What cannot be had is told in sentences.
    async fn finish(&mut self, tails: &Tails) -> Vec<String> {
        // Two who write to one copy would write everything twice.
        self.coming.shutdown().await;
        self.mirror.bring_logs(&tails.wanted(), None).await
    }
}

/// What a job waits for before it runs, said now and then where no table shows it.
#[derive(Debug, Default)]
struct Gathering {
    said: Option<(Instant, String)>,
}

impl Gathering {
    fn tell(&mut self, viewed: &Viewed, sink: &mut Sink) {
        let view = &viewed.view;
        if sink.is_live() || view.phase != Phase::Gathering {
            return;
        }
        let (when, what) = self
            .said
            .get_or_insert_with(|| (Instant::now(), String::new()));
        if when.elapsed() > SILENCE && *what != view.why {
            let (mut all, mut missing) = (0, 0);
            for role in &view.roles {
                all += role.instances;
                missing += role.waiting;
            }
            let have = all.saturating_sub(missing);
            sink.note(&format!(
                "{have} of {all} containers allocated; {}",
                view.why
            ));
            self.said = Some((Instant::now(), view.why.clone()));
        }
    }
}

/// The signals by which a person ends a program. From the moment this exists they no longer end this one.
#[derive(Debug)]
pub struct Signals {
    interrupts: Signal,
    terminations: Signal,
}

impl Signals {
    pub fn listen() -> Result<Signals, Report> {
        Ok(Signals {
            interrupts: listen(SignalKind::interrupt())?,
            terminations: listen(SignalKind::terminate())?,
        })
    }

    /// The name of the next one.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupts.recv() => "Ctrl-C",
            _ = self.terminations.recv() => "SIGTERM",
        }
    }
}

impl Follower {
    /// Follows to the end.
    pub async fn run(&mut self) -> Result<Left, Report> {
        let (tell, mut news) = mpsc::channel(16);
        tokio::spawn(watch_facts(
            self.job.clone(),
            self.reach.clone(),
            tell.clone(),
        ));
        // A cluster gives containers when it has some; whoever waits wants to know how many it has.
        if self.sink.is_live() || self.job.far.is_some() {
            tokio::spawn(watch_views(self.reach.clone(), tell.clone()));
        }
        drop(tell);
        let mut asked = None;
        let mut gathering = Gathering::default();
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let by = tokio::select! {
                told = news.recv() => match told {
                    Some(News::Facts(facts)) => {
                        self.next = facts.next;
                        for fact in &facts.facts {
                            if self.on_fact(fact).is_err() && self.leaves() {
                                return Ok(Left::Gone);
                            }
                        }
                        continue;
                    }
                    Some(News::View(view)) => {
                        gathering.tell(&view, &mut self.sink);
                        self.deaf |= self.sink.viewed(view).is_err();
                        continue;
                    }
                    Some(News::Ended(standing)) => {
                        if let Some(afar) = &mut self.mirror {
                            for failure in afar.finish(&self.tails).await {
                                self.sink.note(&format!("note: {failure}"));
                            }
                        }
                        return self.on_end(standing);
                    }
                    Some(News::NoAnswer(error)) => {
                        self.sink.note(&format!("waiting for the job's master: {error}"));
                        continue;
                    }
                    Some(News::OutOfReach(error)) => return Err(out_of_reach(&self.job, &error)),
                    None => return self.on_end(self.job.standing()),
                },
                (task, attempt) = came(&mut self.mirror) => {
                    self.tails.end(&task, attempt);
                    if self.drain().is_err() && self.leaves() {
                        return Ok(Left::Gone);
                    }
                    continue;
                }
                () = self.tails.wait() => {
                    if self.drain().is_err() && self.leaves() {
                        return Ok(Left::Gone);
                    }
                    continue;
                }
                _ = look.tick() => {
                    self.tails.all_changed();
                    self.deaf |= self.sink.redraw().is_err();
                    continue;
                }
                by = self.signals.next() => by,
            };
            if asked.is_some() || self.on_interrupt == OnInterrupt::Leave {
                if let Some(asking) = asked {
                    // `timeout` signals twice in one moment: the job must hear of it all the same.
                    let _ = timeout(SILENCE, asking).await;
                }
                self.sink.close();
                return Ok(Left::Interrupted);
            }
            asked = Some(self.stop_job(by));
        }
    }

    fn stop_job(&mut self, by: &'static str) -> JoinHandle<()> {
        self.sink.note(&format!(
            "{by}: the job is asked to stop; waiting for it ({by} again leaves at once)"
        ));
        let (job, reach) = (self.job.clone(), self.reach.clone());
        let mirror = self.mirror.as_ref().map(|afar| afar.mirror.clone());
        tokio::spawn(async move {
            let Err(_) = reach.kill(by, false).await else {
                return;
            };
            // A master that cannot be reached is reported by those who watch it.
            match (mirror, job.standing()) {
                (Some(mirror), Standing::Live(_) | Standing::Starting) => {
                    let _ = mirror.kill(by).await;
                }
                (None, Standing::Live(place)) => {
                    let _ = signal_master(&place, false);
                }
                _ => {}
            }
        })
    }

    /// Nobody reads: is there another reason to stay?
    fn leaves(&mut self) -> bool {
        self.deaf = true;
        self.on_interrupt == OnInterrupt::Leave
    }

    fn on_fact(&mut self, fact: &Fact) -> Result<(), Gone> {
        if let (What::AttemptStarted { task, attempt, .. }, Some(_)) = (&fact.what, &self.mirror) {
            // What is not there cannot be watched. Without it, all are looked at once a second.
            let _ = fs::create_dir_all(self.job.dir.attempt_logs(task, *attempt));
        }
        match &fact.what {
            What::AttemptStarted { task, attempt, .. } => {
                self.tails.add_newer(task, *attempt);
                if let Some(afar) = &mut self.mirror {
                    afar.follow(task, *attempt, &self.tails, &self.reach);
                }
                let role = self.job.submitted.spec.role(&task.role);
                if role.is_some_and(|role| role.is_beside() && !role.ports.is_empty()) {
                    let note =
                        format!("{task} is reached with `ydl open {} {task}`", self.job.id());
                    self.sink.note(&note);
                }
            }
            What::AttemptEnded {
                task,
                attempt,
                peak_memory_mib,
                ..
            } => {
                let peak = self.peaks.entry(task.clone()).or_default();
                *peak = (*peak).max(*peak_memory_mib);
                // Its output comes before the news of its end. One that could not be started was never announced.
                self.tails.add_newer(task, *attempt);
                match &mut self.mirror {
                    // Its last lines are on their way.
                    Some(afar) => afar.follow(task, *attempt, &self.tails, &self.reach),
                    None => self.tails.end(task, *attempt),
                }
                self.drain()?;
            }
            _ => {}
        }
        if self.deaf {
            Ok(())
        } else {
            self.sink.fact(fact)
        }
    }

    fn drain(&mut self) -> Result<(), Gone> {
        let (deaf, sink) = (self.deaf, &mut self.sink);
        let mut take = |id: &_, lines: &[u8]| if deaf { Ok(()) } else { sink.output(id, lines) };
        // What does not fit into one turn is marked as changed and comes with the next.
        self.tails.drain(&mut take)?;
        if deaf { Ok(()) } else { self.sink.flush() }
    }

    /// Prints what is left to print.
    fn on_end(&mut self, standing: Standing) -> Result<Left, Report> {
        // The master may have gone before it could tell the last ones.
        for fact in written_facts(&self.job, self.next) {
            if self.on_fact(&fact).is_err() && self.leaves() {
                return Ok(Left::Gone);
            }
        }
        self.tails.scan_newer();
        if !self.deaf {
            let sink = &mut self.sink;
            let finished = self
                .tails
                .finish(&mut |id, lines| sink.output(id, lines))
                .and_then(|()| self.sink.flush());
            if finished.is_err() && self.leaves() {
                return Ok(Left::Gone);
            }
        }
        self.sink.close();
        if let Some(trouble) = self.sink.trouble() {
            return Err(trouble);
        }
        match standing {
            Standing::Over(last) => Ok(Left::Over(last)),
            Standing::Ended(ended) => Ok(Left::Ended(ended)),
            Standing::Lost | Standing::Starting | Standing::Live(_) => Ok(Left::Lost),
        }
    }
}

/// The facts in the job's directory from that number on. A line that was torn by the master's death is left out.
pub fn written_facts(job: &Known, from: u64) -> impl Iterator<Item = Fact> + use<> {
    let file = File::open(job.dir.events_file()).ok();
    let lines = file.map(|file| BufReader::new(file.take(EVENTS_BYTES_MAX)).split(b'\n'));
    let lines = lines.into_iter().flatten().map_while(Result::ok);
    lines
        .skip(usize::try_from(from).unwrap_or(usize::MAX))
        .filter_map(|line| serde_json::from_slice(&line).ok())
}

fn listen(kind: SignalKind) -> Result<Signal, Report> {
    signal(kind)
        .map_err(|error| Report::trouble(format!("cannot listen to signals: {}", reason(&error))))
}

fn out_of_reach(job: &Known, error: &CallError) -> Report {
    let what = format!("the master of `{}` is out of reach: {error}", job.id());
    Report::new(Exit::Unreachable, what).hint(format!(
        "the job may go on; `ydl status {}` tells",
        job.id()
    ))
}

/// The next attempt on a cluster of which everything has come.
async fn came(afar: &mut Option<Afar>) -> (TaskId, u32) {
    match afar {
        Some(afar) => afar.came().await,
        None => std::future::pending().await,
    }
}

/// Tells the facts, and at last how the job ended.
async fn watch_facts(job: Arc<Known>, reach: Arc<Reach>, tell: mpsc::Sender<News>) {
    let mut after = 0;
    let mut heard = Instant::now();
    let mut said = false;
    loop {
        let asked = Instant::now();
        let error = match reach.facts(after, WAIT).await {
            Ok(Some(facts)) => {
                (after, heard, said) = (facts.next, Instant::now(), false);
                if tell.send(News::Facts(facts)).await.is_err() {
                    return;
                }
                continue;
            }
            // Nothing new for the whole wait.
            Ok(None) if asked.elapsed() > WAIT / 2 => {
                heard = Instant::now();
                continue;
            }
            Ok(None) => None,
            Err(error) => Some(error),
        };
        // The master is ending, or gone, or cannot answer; or it has moved.
        if let Some(far) = &job.far {
            far.nudge();
        }
        if let Standing::Live(place) = job.standing() {
            reach.point(&place.address);
        }
        let patience = match job.far {
            Some(_) => FAR_PATIENCE,
            None => PATIENCE,
        };
        let last = match (job.standing(), error) {
            (Standing::Live(_) | Standing::Starting, Some(error)) if heard.elapsed() > patience => {
                Some(News::OutOfReach(error))
            }
            (Standing::Live(_) | Standing::Starting, Some(error))
                if heard.elapsed() > SILENCE && !said =>
            {
                said = true;
                if tell.send(News::NoAnswer(error)).await.is_err() {
                    return;
                }
                None
            }
            (Standing::Live(_) | Standing::Starting, _) => None,
            (standing, _) => Some(News::Ended(standing)),
        };
        if let Some(last) = last {
            // Nobody may be listening any more.
            let _ = tell.send(last).await;
            return;
        }
        sleep(if job.far.is_some() { FAR_AGAIN } else { AGAIN }).await;
    }
}

/// Tells how the job looks, whenever that changes and once a second.
async fn watch_views(reach: Arc<Reach>, tell: mpsc::Sender<News>) {
    let mut seen = 0;
    loop {
        match reach.view(seen, LOOK).await {
            Ok(Some(view)) => {
                seen = view.number;
                if tell.send(News::View(Box::new(view))).await.is_err() {
                    return;
                }
            }
            // Nothing has happened, but what the tasks use has changed.
            Ok(None) => seen = 0,
            Err(_) => {
                if tell.is_closed() {
                    return;
                }
                sleep(LOOK).await;
            }
        }
    }
}
