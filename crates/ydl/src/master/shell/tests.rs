//! Event loop with a slow or failing journal: no effect may precede the durability of its cause.

use super::*;
use crate::master::{inbox::inbox, past::Reading};
use std::{
    cell::RefCell,
    collections::{BTreeMap, VecDeque},
    rc::Rc,
};
use tokio::sync::oneshot::Receiver;
use ydl_core::{
    ContainerExit, Endpoint, Framework, Grant, JobSpec, JobSpecBuilder, NodeName, Order,
    ProgramExit,
    spec::{
        Backoff, Command, Completion, Environment, Gang, PortRange, Resources, Restart,
        RestartScope, RoleSpec,
    },
    time::Span,
};
use ydl_proto::messages::SyncReply;

/// Recorded calls and upcoming events.
#[derive(Debug, Default)]
struct World {
    done: Vec<String>,
    happens: VecDeque<Event>,
    kept: Vec<Record>,
    /// Number of flushes that succeed; later ones block.
    flushes: usize,
    /// The master dies at the last flush, after it is durable.
    dies: bool,
    /// Containers, and whether they were launched.
    live: BTreeMap<ContainerId, bool>,
    granted: u32,
}

type Shared = Rc<RefCell<World>>;

#[derive(Debug)]
struct Paper(Shared);

impl Backend for Paper {
    fn set_asks(&mut self, asks: Asks) {
        let mut world = self.0.borrow_mut();
        let count: u32 = asks.asks.iter().map(|ask| ask.count).sum();
        world.done.push(format!("want {count}"));
        let mut grants = Vec::new();
        for ask in asks.asks {
            for _ in 0..ask.count {
                let container = ContainerId::from(format!("c{}", world.granted));
                world.live.insert(container.clone(), false);
                grants.push(Grant {
                    container,
                    role: ask.role.clone(),
                    node: NodeName::from("paper"),
                    resources: ask.resources.clone(),
                });
                world.granted += 1;
            }
        }
        if !grants.is_empty() {
            world.happens.push_back(Event::Granted { grants });
        }
    }

    fn launch(&mut self, container: ContainerId, _: Launch) {
        let mut world = self.0.borrow_mut();
        world.done.push(format!("launch {container}"));
        world.live.insert(container.clone(), true);
        world.happens.push_back(Event::Launched { container });
    }

    fn release(&mut self, container: ContainerId) {
        let mut world = self.0.borrow_mut();
        world.done.push(format!("release {container}"));
        world.live.remove(&container);
        let containers = vec![(container, ContainerExit::Released)];
        world.happens.push_back(Event::Ended { containers });
    }

    async fn next(&mut self) -> Result<Event, Fenced> {
        std::future::poll_fn(|_| match self.0.borrow_mut().happens.pop_front() {
            Some(event) => std::task::Poll::Ready(Ok(event)),
            None => std::task::Poll::Pending,
        })
        .await
    }

    async fn close(&mut self, _: &Outcome) {}
}

#[derive(Debug)]
struct Slow {
    world: Shared,
    batch: Vec<Record>,
}

impl Diary for Slow {
    fn note(&mut self, record: &Record) {
        self.batch.push(record.clone());
    }

    fn waiting_bytes(&self) -> usize {
        0
    }

    async fn flush(&mut self) -> Result<(), Fenced> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let (flushes, dies) = {
            let world = self.world.borrow();
            (world.flushes, world.dies)
        };
        match flushes {
            0 if dies => {
                // As if the master died just after the last byte was durable.
                self.world.borrow_mut().kept.append(&mut self.batch);
                let why = "it is dead".to_owned();
                Err(Fenced { why })
            }
            0 => std::future::pending().await,
            _ => {
                let mut world = self.world.borrow_mut();
                world.flushes -= 1;
                world.kept.append(&mut self.batch);
                Ok(())
            }
        }
    }
}

pub(in crate::master) fn spec() -> JobSpec {
    let backoff = Backoff { initial: Span::seconds(1), max: Span::minutes(1) };
    let role = RoleSpec {
        name: RoleName::from("worker"),
        instances: 1,
        processes: 1,
        elastic: None,
        resources: Resources { memory_mib: 1, vcores: 1, ..Resources::default() },
        command: Command::Program(vec!["true".to_owned()]),
        environment: None,
        env: Default::default(),
        restart: Restart { scope: RestartScope::Job, limit: 0, backoff, window: None },
        completion: Completion::All,
        tolerate: 0,
        memory_growth: None,
        ports: Vec::new(),
        placement: Default::default(),
        depends_on: Vec::new(),
    };
    let draft = JobSpecBuilder {
        name: "paper".to_owned(),
        framework: Framework::None,
        environment: Environment::System,
        files: Vec::new(),
        roles: vec![role],
        inputs: Vec::new(),
        cluster_flags: false,
        disk_mib: None,
        outputs: Vec::new(),
        env: Default::default(),
        gang: Gang {
            together: true,
            hold: Span::minutes(5),
            retries: 0,
            backoff,
            settle: Span::seconds(2),
            reform: Default::default(),
        },
        timeouts: Default::default(),
        node_exclusion: Default::default(),
        ports: PortRange::default(),
        cluster_options: Default::default(),
    };
    JobSpec::new(draft).expect("the draft above is valid")
}

struct Scene {
    folder: tempfile::TempDir,
    world: Shared,
    letters: mpsc::Sender<Letter>,
    inbox: mpsc::Receiver<Letter>,
    master: Master<Paper, Slow>,
}

impl Scene {
    fn new(flushes: usize, past: impl FnOnce(std::fs::File) -> Past, world: World) -> Scene {
        let folder = tempfile::tempdir().unwrap();
        let world = Rc::new(RefCell::new(World { flushes, ..world }));
        let (letters, inbox) = inbox();
        let diary = Slow { world: world.clone(), batch: Vec::new() };
        let dir = JobDir::at(folder.path());
        let events = std::fs::File::create(dir.events_file()).unwrap();
        let master = Master::new(past(events), dir, Paper(world.clone()), diary);
        Scene { folder, world, letters, inbox, master }
    }

    fn fresh(flushes: usize) -> Scene {
        let past = |events| Past::none(spec(), Some(events));
        Scene::new(flushes, past, World::default())
    }

    /// Recovers a new master after this one has died.
    fn heir(&self) -> Scene {
        let world = World {
            granted: self.world.borrow().granted,
            kept: self.world.borrow().kept.clone(),
            live: self.world.borrow().live.clone(),
            ..World::default()
        };
        let records = world.kept.clone();
        let past = |events| {
            let mut reading = Reading::new(spec(), Some(events));
            records.into_iter().for_each(|record| reading.take(record));
            reading.end()
        };
        let live = world.live.keys().cloned().collect();
        let mut heir = Scene::new(usize::MAX, past, world);
        heir.master.recover(live);
        heir
    }

    /// Runs the master until it blocks.
    async fn run(&mut self) -> Option<Result<Outcome, Fenced>> {
        let mut attending = std::pin::pin!(self.master.attend(&mut self.inbox));
        // The master waits for this test only, so a few polls suffice.
        for _ in 0..50 {
            tokio::select! {
                biased;
                ended = &mut attending => return Some(ended),
                () = tokio::task::yield_now() => {}
            }
        }
        None
    }

    async fn say(
        &self,
        container: &ContainerId,
        report: Option<AgentReport>,
        seen: u64,
    ) -> (Receiver<Answer>, Kept) {
        let sync = Sync {
            reports: report.into_iter().collect(),
            order: seen,
            tokens: 0,
            last_request: 0,
            usage: None,
        };
        let (answer, answered) = oneshot::channel();
        let kept = Kept::default();
        let letter = Letter {
            question: Question::Sync(container.clone(), sync),
            answer,
            kept: kept.clone(),
        };
        self.letters.send(letter).await.unwrap();
        (answered, kept)
    }

    fn done(&self) -> String {
        self.world.borrow_mut().done.drain(..).collect::<Vec<_>>().join(", ")
    }

    fn facts(&self) -> String {
        let dir = JobDir::at(self.folder.path());
        std::fs::read_to_string(dir.events_file()).unwrap()
    }

    fn grant_flushes(&self, flushes: usize) {
        self.world.borrow_mut().flushes = flushes;
    }
}

fn ready(round: u32) -> Option<AgentReport> {
    let endpoint = Endpoint { host: "127.0.0.1".to_owned(), ports: Default::default() };
    Some(AgentReport::Ready { round, endpoint })
}

fn exited(round: u32) -> Option<AgentReport> {
    let exit = ProgramExit { code: Some(0), ..ProgramExit::default() };
    Some(AgentReport::Exited { round, exit })
}

fn first() -> ContainerId {
    ContainerId::from("c0")
}

fn order(answer: &mut Receiver<Answer>) -> Option<Order> {
    match answer.try_recv().ok()? {
        Answer::Order(SyncReply { order, .. }) => Some(order),
        Answer::Reply(_) | Answer::Wishes(_) => None,
    }
}

#[tokio::test]
async fn nothing_is_done_before_what_led_to_it_is_written_down() {
    let mut scene = Scene::fresh(0);
    assert_eq!(scene.run().await, None);
    assert_eq!((scene.done(), scene.facts()), (String::new(), String::new()));

    scene.grant_flushes(1);
    scene.run().await;
    assert_eq!(scene.done(), "want 1");
    assert!(scene.facts().contains("job-started"), "{}", scene.facts());

    scene.grant_flushes(1);
    scene.run().await;
    assert_eq!(scene.done(), "launch c0, want 0");
}

#[tokio::test]
async fn an_agent_is_not_told_that_it_was_heard_before_it_is_written_down() {
    let mut scene = Scene::fresh(usize::MAX);
    scene.run().await;
    scene.grant_flushes(0);
    let (mut answer, kept) = scene.say(&first(), ready(1), 0).await;
    scene.run().await;
    assert!(!kept.is_set());
    assert_eq!(order(&mut answer), None);

    scene.grant_flushes(usize::MAX);
    scene.run().await;
    assert!(kept.is_set());
    assert!(matches!(order(&mut answer), Some(Order::Run(_))));
}

#[tokio::test]
async fn what_is_taken_in_together_is_written_down_together() {
    let mut scene = Scene::fresh(usize::MAX);
    scene.run().await;
    scene.say(&first(), ready(1), 0).await;
    let started = AgentReport::Started { round: 1 };
    scene.say(&first(), Some(started), 0).await;
    scene.say(&first(), exited(1), 0).await;
    scene.grant_flushes(1);
    scene.run().await;
    assert_eq!(scene.world.borrow().flushes, 0);
    let kept = scene.world.borrow().kept.len();
    scene.grant_flushes(1);
    scene.run().await;
    assert_eq!(scene.world.borrow().kept.len(), kept, "nothing was left over");
}

/// Agent that follows its orders and repeats reports until they are acknowledged.
#[derive(Debug)]
struct Puppet {
    container: ContainerId,
    seen: u64,
    report: Option<AgentReport>,
    asked: Option<(Receiver<Answer>, Kept)>,
}

impl Puppet {
    fn on_order(&mut self, synced: SyncReply) {
        self.seen = synced.number;
        self.report = match synced.order {
            Order::Wait { round, .. } => ready(round),
            Order::Run(run) => exited(run.round),
            Order::Stop { .. } => Some(AgentReport::OutputsUploaded { error: None }),
        };
    }

    /// Handles a response, if there is one, and polls again.
    async fn turn(&mut self, scene: &Scene) {
        if let Some((answer, kept)) = &mut self.asked {
            if kept.is_set() {
                self.report = None;
            }
            match answer.try_recv() {
                Ok(Answer::Order(synced)) => self.on_order(synced),
                Ok(Answer::Reply(_) | Answer::Wishes(_))
                | Err(oneshot::error::TryRecvError::Closed) => {}
                Err(oneshot::error::TryRecvError::Empty) => return,
            }
        }
        let asked = scene.say(&self.container, self.report.clone(), self.seen);
        self.asked = Some(asked.await);
    }
}

/// Runs a whole job. The master dies after that many flushes and another recovers.
async fn with_a_death_after(flushes: usize) -> (bool, String) {
    let mut scene = Scene::fresh(flushes);
    scene.world.borrow_mut().dies = true;
    let mut puppets: Vec<Puppet> = Vec::new();
    let mut died = false;
    for _ in 0..40 {
        match scene.run().await {
            Some(Ok(outcome)) => {
                assert_eq!(outcome, Outcome::Succeeded);
                return (died, scene.facts());
            }
            Some(Err(_)) => {
                died = true;
                let before = scene.facts();
                scene = scene.heir();
                let after = scene.facts();
                assert!(after.starts_with(&before), "{after} is not {before} and more");
            }
            None => {}
        }
        let launched = scene.world.borrow().live.clone();
        puppets.retain(|puppet| launched.get(&puppet.container) == Some(&true));
        for (container, launched) in launched {
            if launched && !puppets.iter().any(|puppet| puppet.container == container) {
                puppets.push(Puppet { container, seen: 0, report: None, asked: None });
            }
        }
        for puppet in &mut puppets {
            puppet.turn(&scene).await;
        }
    }
    panic!("the job did not end: {}", scene.facts());
}

#[tokio::test]
async fn a_master_that_dies_at_any_flush_is_followed_by_one_that_ends_the_job() {
    for flushes in 0.. {
        let (died, facts) = with_a_death_after(flushes).await;
        assert!(facts.contains("job-finished"), "{flushes}: {facts}");
        if !died {
            assert!(flushes > 3, "{flushes}");
            return;
        }
    }
}
