//! Speed of the core. `cargo bench -p ydl-core` prints two tables and how they were measured.

#[path = "../tests/simulation/mod.rs"]
mod simulation;

use simulation::{builder::builder, world::World};
use std::{
    collections::BTreeMap,
    hint::black_box,
    time::{Duration, Instant},
};
use ydl_core::{
    Action, ContainerId, Endpoint, Event, Framework, Grant, Job, NodeName, ProgramExit, RoleName,
    Span, Time,
    job::Mutant,
    spec::{Backoff, Resources, RestartScope},
};

const SIZES: [u32; 4] = [10, 100, 1_000, 10_000];
/// Each figure is the best of `RUNS` runs, or of as many as fit into `TIME_BUDGET`.
const RUNS: usize = 20;
const TIME_BUDGET: Duration = Duration::from_secs(2);

fn main() {
    schedules("fault", World::new);
    schedules("serving", World::serving);
    whole_jobs(true);
    whole_jobs(false);
    restarts();
}

fn schedules(kind: &str, schedule: fn(u64, Mutant, bool) -> World) {
    let began = Instant::now();
    let (mut schedules, mut events) = (0u64, 0);
    while began.elapsed() < 2 * TIME_BUDGET {
        let mut world = schedule(schedules, Mutant::None, false);
        world.live();
        schedules += 1;
        events += world.happened;
    }
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "simulation: seeds 0 to {schedules} of the {kind} simulation, one thread, all checks enabled"
    );
    println!("  {:.0} schedules/s", schedules as f64 / seconds);
    println!("  {:.0} events/s\n", events as f64 / seconds);
}

/// The best time of several runs, each with fresh input.
fn best<T>(prepare: impl Fn() -> T, run: impl Fn(T)) -> Duration {
    let began = Instant::now();
    let mut best = Duration::MAX;
    for _ in 0..RUNS {
        let input = prepare();
        let start = Instant::now();
        run(input);
        best = best.min(start.elapsed());
        if began.elapsed() > TIME_BUDGET {
            break;
        }
    }
    best
}

fn whole_jobs(together: bool) {
    let kind = if together { "that start together" } else { "that start independently" };
    println!("the core: one job of n tasks {kind}, from its first grant to its end;");
    println!(
        "  per task: granted, launched, ready, started, heartbeat missed, heartbeat resumed, exited, uploaded;"
    );
    println!("  after each event the next deadline, the asks and the changed orders are read");
    println!("  {:>8} {:>10} {:>12} {:>10}", "tasks", "events", "events/s", "ns/event");
    for tasks in SIZES {
        let events = job_events(tasks);
        let took = best(
            || (job(tasks, together), events.clone()),
            |(mut job, events)| {
                for (at, event) in events.into_iter().enumerate() {
                    handle(&mut job, at as u64, event);
                }
                assert!(job.is_finished());
            },
        );
        line(tasks, events.len(), took);
    }
    println!();
}

/// One program fails and all tasks restart.
fn restarts() {
    println!("the core: one of n running tasks fails and the whole job restarts");
    println!("  {:>8} {:>10} {:>12} {:>10}", "tasks", "tasks", "tasks/s", "ns/task");
    for tasks in SIZES {
        let took = best(
            || {
                let mut job = job(tasks, true);
                for (at, event) in
                    job_events(tasks).into_iter().take(6 * tasks as usize).enumerate()
                {
                    handle(&mut job, at as u64, event);
                }
                job
            },
            |mut job| {
                let exit = ProgramExit { code: Some(1), ..ProgramExit::default() };
                let container = ContainerId::from("c0");
                let failed = Event::Exited { container, round: 1, exit };
                handle(&mut job, 6 * u64::from(tasks), failed);
            },
        );
        line(tasks, tasks as usize, took);
    }
}

fn line(tasks: u32, count: usize, took: Duration) {
    let per = took.as_nanos() as f64 / count as f64;
    println!("  {tasks:>8} {count:>10} {:>12.0} {per:>10.0}", 1e9 / per);
}

fn handle(job: &mut Job, now: u64, event: Event) {
    for action in job.handle(Time(now), event) {
        if let Action::OrderChanged(container) = &action {
            black_box(job.order(container));
        }
        black_box(action);
    }
    black_box((job.next_wakeup(), job.asks()));
}

fn job(tasks: u32, together: bool) -> Job {
    let mut builder = builder(Framework::None, &[("worker", tasks)]);
    builder.roles[0].restart.scope = RestartScope::Job;
    builder.roles[0].restart.limit = 3;
    builder.gang.together = together;
    builder.gang.hold = Span::hours(1);
    builder.gang.backoff = Backoff { initial: Span(0), max: Span(0) };
    Job::new(builder.build().expect("the job is valid"), Time(0)).0
}

/// Returns all events of a job that succeeds, kind by kind, as in a large job that starts at once.
fn job_events(tasks: u32) -> Vec<Event> {
    let ids: Vec<_> = (0..tasks).map(|at| ContainerId::from(format!("c{at}"))).collect();
    let mut events = Vec::new();
    let mut each = |event: &dyn Fn(usize, ContainerId) -> Event| {
        events.extend(ids.iter().cloned().enumerate().map(|(at, id)| event(at, id)));
    };
    each(&|at, container| {
        let grant = Grant {
            container,
            role: RoleName::from("worker"),
            node: NodeName::from(format!("n{}", at % 100)),
            resources: Resources { memory_mib: 1024, vcores: 1, ..Resources::default() },
        };
        Event::Granted { grants: vec![grant] }
    });
    each(&|_, container| Event::Launched { container });
    each(&|at, container| Event::Ready {
        container,
        round: 1,
        endpoint: Endpoint {
            host: format!("10.0.{}.{}", at / 250, at % 250),
            ports: BTreeMap::from([("main".to_string(), 20_000)]),
        },
    });
    each(&|_, container| Event::Started { container, round: 1 });
    each(&|_, container| Event::HeartbeatMissed { container });
    each(&|_, container| Event::HeartbeatResumed { container });
    each(&|_, container| Event::Exited {
        container,
        round: 1,
        exit: ProgramExit { code: Some(0), ..ProgramExit::default() },
    });
    each(&|_, container| Event::AgentStopped { container, upload_error: None });
    events
}
