//! Kills the master at twenty moments in the life of jobs. YARN drops containers that were allocated but not reported
//! by their node; those are requested again, and everything else stays.

use super::{SMALL, assert_undisturbed, containers_of, shared_cluster};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};
use testbed::Cluster;
use ydl_testkit::yarn::{
    ClusterJob, Program, WAIT_SCRIPT, WAIT_TIMEOUT,
    processes::{agents, is_alive, signal},
    wait_for,
};

/// Allows enough failed masters for these tests.
const MANY_ATTEMPTS: &str = "master: {attempts: 100}";
/// Poll interval of the moment to kill at.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Kills the job's master as soon as a condition holds.
fn kill_when(job: &ClusterJob, attempt: u32, moment: &str, condition: impl Fn() -> bool) {
    job.master(attempt);
    let deadline = Instant::now() + WAIT_TIMEOUT;
    while !condition() {
        let description = job.describe();
        assert!(Instant::now() < deadline, "{moment}, master {attempt}: {description}");
        std::thread::park_timeout(POLL_INTERVAL);
    }
    job.kill_master(attempt);
    println!("{}: master {attempt} was killed: {moment}", job.id);
}

/// Returns the running programs.
fn running(job: &ClusterJob) -> Vec<Program> {
    let mut all = job.programs(0);
    all.retain(|it| is_alive(it.pid));
    all
}

/// Returns the number of the application attempt that got a container.
fn allocating_attempt(container: &str) -> u32 {
    let parts: Vec<_> = container.rsplit('_').collect();
    parts[1].parse().expect("a number")
}

fn endings(job: &ClusterJob) -> Vec<Value> {
    let history = job.history().into_iter();
    let ended = history.filter_map(|(_, what)| what.get("attempt-ended").cloned());
    ended.collect()
}

/// Returns the number of programs that were lost with a container that YARN dropped. Some of these had none yet.
fn lost(job: &ClusterJob, ran: &[Program]) -> usize {
    let endings = endings(job);
    let lost = endings.iter().filter(|it| it["ending"] == "lost");
    lost.filter(|it| ran.iter().any(|ran| it["container"] == *ran.container)).count()
}

#[test]
fn masters_are_replaced_during_startup_and_takeover() {
    let cluster = &*shared_cluster();
    let job = ClusterJob::submit(cluster, 2, WAIT_SCRIPT, SMALL, MANY_ATTEMPTS);
    let digits = job.id_suffix();
    kill_when(&job, 1, "its process runs", || true);
    let journal = job.place.journal(2, 0);
    let journal = journal.rsplit('/').next().expect("a name");
    kill_when(&job, 2, "its journal exists", || {
        job.names_in(job.place.dir()).iter().any(|it| it == journal)
    });
    kill_when(&job, 3, "it has registered", || job.is_registered(3));
    kill_when(&job, 4, "a container is allocated", || {
        job.allocated_containers().iter().any(|it| allocating_attempt(it) == 4)
            || !agents(&digits).is_empty()
    });
    kill_when(&job, 5, "an agent runs", || !agents(&digits).is_empty());
    kill_when(&job, 6, "two agents run", || agents(&digits).len() == 2);
    kill_when(&job, 7, "a program runs", || !running(&job).is_empty());
    // The nodes have reported the containers, so YARN keeps them.
    let two = || running(&job).len() == 2 && job.starts().len() >= 2;
    kill_when(&job, 8, "all programs run and are recorded", two);
    job.wait_led_by(9);
    // A container started just before the eighth kill may be dropped once more.
    wait_for(&format!("two programs of {}", job.describe()), || {
        let known = job.containers();
        let containers = containers_of(&running(&job));
        (containers.len() == 2 && containers == known).then_some(())
    });
    let before = job.programs(0);
    let (recovered, given) = (running(&job), job.allocated_containers());
    job.wait_reported_running(recovered.iter().map(|it| &it.container));
    kill_when(&job, 9, "it leads", || true);
    kill_when(&job, 10, "its address is published", || job.is_announced(10));
    job.wait_led_by(11);
    assert_eq!(running(&job), recovered, "{}", job.describe());
    assert_eq!((job.programs(0), job.allocated_containers()), (before, given.clone()));
    job.release();
    job.assert_succeeded();

    let ran = job.programs(0);
    let history = job.stored_history();
    assert!(ran.len() <= 2 + lost(&job, &ran), "{ran:?}\n{history:#?}");
    // No master was allocated more containers than were missing at its start.
    let last = containers_of(&recovered);
    for attempt in 1..=11 {
        let earlier = last.iter().filter(|it| allocating_attempt(it) < attempt).count();
        let new = given.iter().filter(|it| allocating_attempt(it) == attempt).count();
        assert!(new + earlier <= 2, "master {attempt}: {given:?}, {last:?}");
    }
}

#[test]
fn masters_are_replaced_during_a_task_restart_and_scaling() {
    let cluster = &*shared_cluster();
    let role = "memory: 128 MiB, restart: {limit: 2, backoff: {initial: 4s, max: 4s}}";
    let job = ClusterJob::submit(cluster, 2, WAIT_SCRIPT, role, MANY_ATTEMPTS);
    let first = job.programs(2);
    job.wait_starts(2);
    job.wait_reported_running(first.iter().map(|it| &it.container));
    let (killed_program, other) = (&first[0], &first[1]);
    signal("-9", &[killed_program.pid]);
    kill_when(&job, 1, "a program is killed", || !is_alive(killed_program.pid));
    kill_when(&job, 2, "the task waits for its restart", || !endings(&job).is_empty());
    let digits = job.id_suffix();
    kill_when(&job, 3, "the new container's agent runs", || {
        let agents = agents(&digits);
        agents.iter().any(|it| *it != killed_program.container && *it != other.container)
    });
    kill_when(&job, 4, "the task runs again", || {
        running(&job).iter().any(|it| it.index == 0 && it.attempt > 1)
    });
    job.wait_led_by(5);
    job.scale(3);
    kill_when(&job, 5, "the role is scaled to three", || true);
    kill_when(&job, 6, "the third runs", || running(&job).iter().any(|it| it.index == 2));
    job.wait_led_by(7);
    wait_for(&format!("three programs of {}", job.describe()), || {
        let known = job.containers();
        let containers = containers_of(&running(&job));
        (containers.len() == 3 && containers == known).then_some(())
    });
    job.release();
    job.assert_succeeded();

    let ran = job.programs(0);
    let of_other: Vec<_> = ran.iter().filter(|it| it.index == 1).collect();
    assert_eq!(of_other, [other], "the other program was disturbed");
    let lost = lost(&job, &ran);
    assert_eq!(ran.len(), 4 + lost, "{ran:?}\n{:#?}", job.stored_history());
    let killed = endings(&job).into_iter();
    let killed: Vec<_> =
        killed.filter(|it| it["ending"] == json!({"signalled": {"signal": 9}})).collect();
    assert_eq!(killed.len(), 1, "the end is recorded once: {killed:#?}");
    assert_eq!(job.count("role-scaled"), 1, "{:#?}", job.stored_history());
    // The third and fifth masters were killed with an ask, perhaps the second, too. Each master requested one container
    // at most, and replacements of lost ones.
    let given = job.allocated_containers();
    let unused: BTreeSet<_> = given.difference(&containers_of(&ran)).cloned().collect();
    assert!(unused.len() <= 3, "{unused:?} of {given:?}");
    for attempt in 2..=7 {
        let new = given.iter().filter(|it| allocating_attempt(it) == attempt).count();
        assert!(new <= 1 + lost, "master {attempt}: {given:?}");
    }
}

/// A ResourceManager that does not respond until this is dropped.
struct PausedResourceManager<'a>(&'a Cluster);

impl<'a> PausedResourceManager<'a> {
    fn new(cluster: &'a Cluster) -> PausedResourceManager<'a> {
        cluster.pause("rm").expect("paused");
        PausedResourceManager(cluster)
    }
}

impl Drop for PausedResourceManager<'_> {
    fn drop(&mut self) {
        self.0.resume("rm").expect("resumed");
    }
}

#[test]
fn masters_are_replaced_during_output_uploads_and_the_end_of_the_job() {
    let cluster = &*shared_cluster();
    let script = format!(
        "mkdir out; truncate -s 32M out/model; {WAIT_SCRIPT}; echo $YDL_INDEX >> $SHARED/ends"
    );
    let more =
        format!("{MANY_ATTEMPTS}\noutputs: {{out/: \"./saved-while-masters-fail/{{index}}\"}}");
    let job = ClusterJob::submit(cluster, 2, &script, SMALL, &more);
    let before = job.programs(2);
    job.wait_starts(2);
    job.wait_reported_running(before.iter().map(|it| &it.container));
    let saved = format!("{}/saved-while-masters-fail", job.home);
    job.release_task(0);
    kill_when(&job, 1, "a program has ended", || !job.lines("ends").is_empty());
    kill_when(&job, 2, "outputs are being saved", || !job.names_in(&saved).is_empty());
    kill_when(&job, 3, "one task's outputs are saved", || {
        job.names_in(&format!("{saved}/0")) == ["model"]
    });
    job.wait_led_by(4);
    wait_for(&format!("the end of a task of {}", job.describe()), || {
        (!endings(&job).is_empty()).then_some(())
    });
    {
        let _paused = PausedResourceManager::new(job.cluster);
        job.release_task(1);
        kill_when(&job, 4, "the result is stored but not reported", || {
            job.read(&job.place.result()).is_some()
        });
    }
    job.assert_succeeded();
    assert_eq!(job.programs(0), before, "{:#?}", job.stored_history());
    assert_eq!(job.allocated_containers(), containers_of(&before));
    assert_eq!(job.lines("ends").len(), 2);
    assert_eq!(job.master_attempts().len(), 5);
    for index in 0..2 {
        assert_eq!(job.names_in(&format!("{saved}/{index}")), ["model"]);
    }
    assert_eq!(job.names_in(&saved), ["0", "1"], "a partial output is left");
    let endings = endings(&job);
    let succeeded = |it: &&Value| it["ending"] == "succeeded";
    assert_eq!(endings.iter().filter(succeeded).count(), 2, "{endings:#?}");
    assert_eq!(endings.len(), 2, "{endings:#?}");
}

#[test]
fn consecutive_masters_are_replaced_while_programs_run() {
    let cluster = &*shared_cluster();
    let job = ClusterJob::submit(cluster, 2, WAIT_SCRIPT, SMALL, MANY_ATTEMPTS);
    let before = job.programs(2);
    job.wait_starts(2);
    job.wait_reported_running(before.iter().map(|it| &it.container));
    kill_when(&job, 1, "all programs run", || job.is_registered(1));
    job.wait_led_by(2);
    assert_undisturbed(&job, &before);
    kill_when(&job, 2, "it leads", || true);
    kill_when(&job, 3, "its process runs", || true);
    kill_when(&job, 4, "it has registered", || job.is_registered(4));
    job.wait_led_by(5);
    assert_undisturbed(&job, &before);
    job.release();
    job.assert_succeeded();
    assert_eq!(job.programs(0), before, "{:#?}", job.stored_history());
}
