//! `kill -9` of the master at twenty moments of jobs' is_alive, each told by a fact. What YARN drops with a master, a
//! container that was given and not reported by its node yet, is asked for again; everything else stays.

use super::{SMALL, all_as_before, containers_of, shared_cluster};
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

/// Masters may die as often as they like.
const PATIENT: &str = "master: {attempts: 100}";
/// So often a moment is looked for.
const LOOK: Duration = Duration::from_millis(10);

/// Kills the job's master as soon as something is so.
fn kill_when(job: &ClusterJob, attempt: u32, moment: &str, is_so: impl Fn() -> bool) {
    job.master(attempt);
    let end = Instant::now() + WAIT_TIMEOUT;
    while !is_so() {
        let words = job.describe();
        assert!(Instant::now() < end, "{moment}, master {attempt}: {words}");
        std::thread::park_timeout(LOOK);
    }
    job.kill_master(attempt);
    println!("{}: master {attempt} was killed: {moment}", job.id);
}

/// The programs that run now.
fn living(job: &ClusterJob) -> Vec<Program> {
    let mut all = job.programs(0);
    all.retain(|it| is_alive(it.pid));
    all
}

/// Returns the number of the application attempt that got a container.
fn giver(container: &str) -> u32 {
    let words: Vec<_> = container.rsplit('_').collect();
    words[1].parse().expect("a number")
}

fn endings(job: &ClusterJob) -> Vec<Value> {
    let facts = job.history().into_iter();
    let ended = facts.filter_map(|(_, what)| what.get("attempt-ended").cloned());
    ended.collect()
}

/// Returns the number of programs that were lost with a container that YARN dropped. Some of these had none yet.
fn lost(job: &ClusterJob, ran: &[Program]) -> usize {
    let endings = endings(job);
    let lost = endings.iter().filter(|it| it["ending"] == "lost");
    lost.filter(|it| ran.iter().any(|ran| it["container"] == *ran.container)).count()
}

#[test]
fn a_master_may_die_while_a_job_comes_up_and_while_another_master_takes_over() {
    let cluster = &*shared_cluster();
    let job = ClusterJob::submit(cluster, 2, WAIT_SCRIPT, SMALL, PATIENT);
    let digits = job.id_suffix();
    kill_when(&job, 1, "its process is there", || true);
    let diary = job.place.journal(2, 0);
    let diary = diary.rsplit('/').next().expect("a name");
    kill_when(&job, 2, "its diary is begun", || {
        job.names_in(job.place.dir()).iter().any(|it| it == diary)
    });
    kill_when(&job, 3, "it has registered", || job.is_registered(3));
    kill_when(&job, 4, "a container was given", || {
        job.allocated_containers().iter().any(|it| giver(it) == 4) || !agents(&digits).is_empty()
    });
    kill_when(&job, 5, "an agent is there", || !agents(&digits).is_empty());
    kill_when(&job, 6, "two agents are there", || agents(&digits).len() == 2);
    kill_when(&job, 7, "a program runs", || !living(&job).is_empty());
    // Its node has told of it, so that it is kept.
    let two = || living(&job).len() == 2 && job.starts().len() >= 2;
    kill_when(&job, 8, "all programs run and that is known", two);
    job.wait_led_by(9);
    // What was started in the last moment before the eighth death is dropped at most once more.
    wait_for(&format!("two programs of {}", job.describe()), || {
        let known = job.containers();
        let there = containers_of(&living(&job));
        (there.len() == 2 && there == known).then_some(())
    });
    let before = job.programs(0);
    let (kept, given) = (living(&job), job.allocated_containers());
    job.wait_reported_running(kept.iter().map(|it| &it.container));
    kill_when(&job, 9, "it leads", || true);
    kill_when(&job, 10, "it has said where it is", || job.is_announced(10));
    job.wait_led_by(11);
    assert_eq!(living(&job), kept, "{}", job.describe());
    assert_eq!((job.programs(0), job.allocated_containers()), (before, given.clone()));
    job.release();
    job.assert_succeeded();

    let ran = job.programs(0);
    let facts = job.stored_history();
    assert!(ran.len() <= 2 + lost(&job, &ran), "{ran:?}\n{facts:#?}");
    // No master was given more than was missing when it began.
    let last = containers_of(&kept);
    for attempt in 1..=11 {
        let earlier = last.iter().filter(|it| giver(it) < attempt).count();
        let new = given.iter().filter(|it| giver(it) == attempt).count();
        assert!(new + earlier <= 2, "master {attempt}: {given:?}, {last:?}");
    }
}

#[test]
fn a_master_may_die_while_a_task_starts_again_and_while_a_role_grows() {
    let cluster = &*shared_cluster();
    let role = "memory: 128 MiB, restart: {limit: 2, backoff: {initial: 4s, max: 4s}}";
    let job = ClusterJob::submit(cluster, 2, WAIT_SCRIPT, role, PATIENT);
    let first = job.programs(2);
    job.wait_starts(2);
    job.wait_reported_running(first.iter().map(|it| &it.container));
    let (dies, stays) = (&first[0], &first[1]);
    signal("-9", &[dies.pid]);
    kill_when(&job, 1, "a program has just died", || !is_alive(dies.pid));
    kill_when(&job, 2, "the task waits before it starts again", || !endings(&job).is_empty());
    let digits = job.id_suffix();
    kill_when(&job, 3, "the new container's agent is there", || {
        let agents = agents(&digits);
        agents.iter().any(|it| *it != dies.container && *it != stays.container)
    });
    kill_when(&job, 4, "the task runs again", || {
        living(&job).iter().any(|it| it.index == 0 && it.attempt > 1)
    });
    job.wait_led_by(5);
    job.scale(3);
    kill_when(&job, 5, "it was told to have three", || true);
    kill_when(&job, 6, "the third runs", || living(&job).iter().any(|it| it.index == 2));
    job.wait_led_by(7);
    wait_for(&format!("three programs of {}", job.describe()), || {
        let known = job.containers();
        let there = containers_of(&living(&job));
        (there.len() == 3 && there == known).then_some(())
    });
    job.release();
    job.assert_succeeded();

    let ran = job.programs(0);
    let ours: Vec<_> = ran.iter().filter(|it| it.index == 1).collect();
    assert_eq!(ours, [stays], "the other one is not disturbed");
    let lost = lost(&job, &ran);
    assert_eq!(ran.len(), 4 + lost, "{ran:?}\n{:#?}", job.stored_history());
    let killed = endings(&job).into_iter();
    let killed: Vec<_> =
        killed.filter(|it| it["ending"] == json!({"signalled": {"signal": 9}})).collect();
    assert_eq!(killed.len(), 1, "its end is told once: {killed:#?}");
    assert_eq!(job.count("role-scaled"), 1, "{:#?}", job.stored_history());
    // The third and the fifth died with an ask, and the second if the task had waited long enough by then; each master
    // asked for one at most, and for what was lost.
    let given = job.allocated_containers();
    let unused: BTreeSet<_> = given.difference(&containers_of(&ran)).cloned().collect();
    assert!(unused.len() <= 3, "{unused:?} of {given:?}");
    for attempt in 2..=7 {
        let new = given.iter().filter(|it| giver(it) == attempt).count();
        assert!(new <= 1 + lost, "master {attempt}: {given:?}");
    }
}

/// A ResourceManager that does not respond until this is dropped.
struct PausedResourceManager<'a>(&'a Cluster);

impl<'a> PausedResourceManager<'a> {
    fn new(cluster: &'a Cluster) -> PausedResourceManager<'a> {
        cluster.pause("rm").expect("it can be stopped");
        PausedResourceManager(cluster)
    }
}

impl Drop for PausedResourceManager<'_> {
    fn drop(&mut self) {
        self.0.resume("rm").expect("it can be resumed");
    }
}

#[test]
fn a_master_may_die_while_outputs_are_saved_and_while_the_job_ends() {
    let cluster = &*shared_cluster();
    let script = format!(
        "mkdir out; truncate -s 32M out/model; {WAIT_SCRIPT}; echo $YDL_INDEX >> $SHARED/ends"
    );
    let more = format!("{PATIENT}\noutputs: {{out/: \"./saved-while-masters-die/{{index}}\"}}");
    let job = ClusterJob::submit(cluster, 2, &script, SMALL, &more);
    let before = job.programs(2);
    job.wait_starts(2);
    job.wait_reported_running(before.iter().map(|it| &it.container));
    let saved = format!("{}/saved-while-masters-die", job.home);
    job.release_task(0);
    kill_when(&job, 1, "a program has come to its end", || !job.lines("ends").is_empty());
    kill_when(&job, 2, "outputs are being saved", || !job.names_in(&saved).is_empty());
    kill_when(&job, 3, "one task's outputs are saved", || {
        job.names_in(&format!("{saved}/0")) == ["model"]
    });
    job.wait_led_by(4);
    wait_for(&format!("the end of a task of {}", job.describe()), || {
        (!endings(&job).is_empty()).then_some(())
    });
    {
        let _deaf = PausedResourceManager::new(job.cluster);
        job.release_task(1);
        kill_when(&job, 4, "the result is kept and the cluster not told", || {
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
    assert_eq!(job.names_in(&saved), ["0", "1"], "nothing half-written is left");
    let endings = endings(&job);
    let succeeded = |it: &&Value| it["ending"] == "succeeded";
    assert_eq!(endings.iter().filter(succeeded).count(), 2, "{endings:#?}");
    assert_eq!(endings.len(), 2, "{endings:#?}");
}

#[test]
fn masters_may_die_one_after_the_other_while_programs_run() {
    let cluster = &*shared_cluster();
    let job = ClusterJob::submit(cluster, 2, WAIT_SCRIPT, SMALL, PATIENT);
    let before = job.programs(2);
    job.wait_starts(2);
    job.wait_reported_running(before.iter().map(|it| &it.container));
    kill_when(&job, 1, "all programs run", || job.is_registered(1));
    job.wait_led_by(2);
    all_as_before(&job, &before);
    kill_when(&job, 2, "it leads", || true);
    kill_when(&job, 3, "its process is there", || true);
    kill_when(&job, 4, "it has registered", || job.is_registered(4));
    job.wait_led_by(5);
    all_as_before(&job, &before);
    job.release();
    job.assert_succeeded();
    assert_eq!(job.programs(0), before, "{:#?}", job.stored_history());
}
