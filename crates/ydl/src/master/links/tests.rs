//! Rendezvous with members that change before the first journaled record.

mod reminders;

use super::*;
use crate::master::{
    diary::Record,
    outbox::{Effect, Outbox},
    past::{entry, happen},
    shell::tests::spec,
    store::Shelf,
};
use ydl_core::{
    ContainerExit, Endpoint, Event, Grant, JobSpec, JobSpecBuilder, NodeName, ProgramExit,
    RoleName, Span, Time,
    spec::{Completion, Range, ResizePolicy},
};
use ydl_rendezvous::ConnId;

/// State of a master, and its journal.
struct Scene {
    job: Job,
    shelf: Shelf,
    links: Links,
    now: u64,
    diary: Vec<Entry>,
}

#[derive(Clone)]
enum Entry {
    Happened(u64, Event),
    Linked(u32, LinkRecord),
}

impl Scene {
    fn new() -> Scene {
        Scene::of(1, Range { min: 1, max: 2 })
    }

    /// Creates a job with that many workers in a range, and a sidecar.
    fn of(instances: u32, range: Range) -> Scene {
        let mut draft = JobSpecBuilder::from(spec());
        draft.framework = Framework::Horovod;
        draft.gang.reform = ResizePolicy::Notify;
        // A round starts with all members or not at all.
        draft.gang.settle = Span::hours(1);
        let mut board = draft.roles[0].clone();
        board.name = RoleName::from("board");
        board.completion = Completion::Sidecar;
        draft.roles[0].instances = instances;
        draft.roles[0].elastic = Some(range);
        draft.roles.push(board);
        Scene::begun(JobSpec::new(draft).expect("this is valid"))
    }

    fn begun(spec: JobSpec) -> Scene {
        Scene {
            job: Job::new(spec, Time(0)).0,
            shelf: Shelf::default(),
            links: Links::default(),
            now: 0,
            diary: Vec::new(),
        }
    }

    fn happen(&mut self, event: Event) -> Vec<Passed> {
        self.now += 10_000;
        let noted = entry(&self.job, &self.links, Time(self.now), event);
        let Record::Happened(_, event) = noted else {
            panic!("{noted:?}");
        };
        self.diary.push(Entry::Happened(self.now, event.clone()));
        self.take(self.now, event)
    }

    fn take(&mut self, now: u64, event: Event) -> Vec<Passed> {
        let mut out = Outbox::default();
        let (job, shelf, links) = (&mut self.job, &mut self.shelf, &mut self.links);
        happen(job, shelf, links, Time(now), event, &mut out);
        let passed = out.take().into_iter().filter_map(|effect| match effect {
            Effect::Pass(passed) => Some(passed),
            _ => None,
        });
        passed.collect()
    }

    /// Starts a container up to readiness.
    fn up(&mut self, name: &str) {
        self.up_as(name, "worker");
    }

    fn up_as(&mut self, name: &str, role: &str) {
        let container = ContainerId::from(name);
        let grant = Grant {
            container: container.clone(),
            role: RoleName::from(role),
            node: NodeName::from("paper"),
            resources: self.job.spec().roles[0].resources.clone(),
        };
        self.happen(Event::Granted { grants: vec![grant] });
        self.happen(Event::Launched { container: container.clone() });
        let order = self.job.order(&container);
        let ydl_core::Order::Wait { round, .. } = order else {
            panic!("{order:?}");
        };
        self.happen(Event::Ready {
            container,
            round,
            endpoint: Endpoint { host: "127.0.0.1".to_owned(), ports: Default::default() },
        });
    }

    /// Sends frames of a container's agent and returns the resulting frames.
    fn say(&mut self, name: &str, ups: Vec<ClientFrame>) -> Vec<Passed> {
        let container = ContainerId::from(name);
        let run = self.job.run_in(&container).expect("it runs");
        let at = Connection { round: run.round, number: 1 };
        let heard = self.links.hear(&self.job, &container, at, ups);
        let (keep, passed) = heard.expect("it is heard");
        let round = self.links.round();
        let linked = keep.into_iter().map(|kept| Entry::Linked(round, kept));
        self.diary.extend(linked);
        passed
    }

    fn attach(&mut self, name: &str) {
        self.say(name, vec![ClientFrame::Attach(Vec::new())]);
    }

    fn put(&mut self, name: &str, rank: u32) -> usize {
        let call = ConnId::Inbound(1);
        let said = format!("PUT /global/rank_{rank} HTTP/1.1\r\nContent-Length: 1\r\n\r\nx");
        let ups = vec![ClientFrame::Open(call), ClientFrame::Data(call, 0, said.into_bytes())];
        let passed = self.say(name, ups);
        answers(&passed)
    }

    /// Asks for a worker's rank in the next world; returns how many workers get theirs.
    fn ask(&mut self, name: &str, index: u32) -> usize {
        let call = ConnId::Inbound(100);
        let said = format!("GET /rank_and_size/worker-{index}:0 HTTP/1.1\r\n\r\n");
        let ups = vec![ClientFrame::Open(call), ClientFrame::Data(call, 0, said.into_bytes())];
        answers(&self.say(name, ups))
    }

    /// Recovers a new master from the journal.
    fn heir(&self) -> Scene {
        let mut heir = Scene::begun(self.job.spec().clone());
        for entry in self.diary.clone() {
            match entry {
                Entry::Happened(now, event) => {
                    heir.take(now, event);
                }
                Entry::Linked(round, kept) => heir.links.replay(round, kept),
            }
        }
        heir.diary = self.diary.clone();
        heir.now = self.now;
        heir
    }
}

fn answers(passed: &[Passed]) -> usize {
    let answer = |passed: &&Passed| matches!(passed.down, ServerFrame::Data(..));
    passed.iter().filter(answer).count()
}

#[test]
fn those_who_are_left_meet_again_however_it_became_known_that_one_has_gone() {
    let container = || ContainerId::from("c2");
    let quieted = vec![
        Event::HeartbeatMissed { container: container() },
        Event::Ticked,
        Event::Ticked,
        Event::Ticked,
        Event::Ticked,
        Event::Ticked,
        Event::Ticked,
    ];
    let warned = vec![Event::PreemptionWarned { container: container() }];
    let recovered = vec![Event::MasterRecovered {
        live: vec![ContainerId::from("c0"), ContainerId::from("c1")],
    }];
    for events in [quieted, warned, recovered] {
        let mut old = Scene::of(3, Range { min: 2, max: 3 });
        for name in ["c0", "c1", "c2"] {
            old.up(name);
        }
        for name in ["c0", "c1", "c2"] {
            old.attach(name);
            let index = name[1..].parse().expect("a number");
            assert_eq!(old.put(name, index), 1);
        }
        for event in events {
            old.happen(event);
        }
        let mut new = old.heir();
        for master in [&mut old, &mut new] {
            master.attach("c0");
            master.attach("c1");
            assert_eq!(master.ask("c0", 0), 0, "it waits for the other");
            assert_eq!(master.ask("c1", 1), 2, "a world of two begins");
        }
    }
}

#[test]
fn one_that_is_done_is_not_waited_for_by_those_who_meet_again() {
    let mut old = Scene::of(3, Range { min: 3, max: 3 });
    for name in ["c0", "c1", "c2"] {
        old.up(name);
    }
    let exit = ProgramExit { code: Some(0), ..ProgramExit::default() };
    old.happen(Event::Exited { container: ContainerId::from("c0"), round: 1, exit });
    // They see that it has gone, and no task was lost.
    let mut new = old.heir();
    new.attach("c1");
    new.attach("c2");
    assert_eq!(new.ask("c1", 1), 0, "it waits for the other");
    assert_eq!(new.ask("c2", 2), 2, "a world of two begins");
    // Or another is lost as well.
    old.happen(Event::Ended {
        containers: vec![(ContainerId::from("c1"), ContainerExit::Preempted)],
    });
    let mut new = old.heir();
    for master in [&mut old, &mut new] {
        master.attach("c2");
        assert_eq!(master.ask("c2", 2), 1, "a world of one begins");
    }
}

#[test]
fn what_stands_beside_the_job_neither_ends_its_round_nor_speaks_in_it() {
    let mut scene = Scene::of(1, Range { min: 1, max: 2 });
    scene.up("c0");
    scene.attach("c0");
    scene.up_as("b0", "board");
    let refused = |scene: &mut Scene, name: &str| {
        let container = ContainerId::from(name);
        let run = scene.job.run_in(&container).expect("it runs");
        let at = Connection { round: run.round, number: 1 };
        let ups = vec![ClientFrame::Attach(Vec::new())];
        let heard = scene.links.hear(&scene.job, &container, at, ups);
        heard.map(drop).expect_err("it is not heard").status
    };
    assert_eq!(refused(&mut scene, "b0"), 410);
    scene.happen(Event::ScaleRequested { role: RoleName::from("worker"), instances: 2 });
    scene.happen(Event::Ended {
        containers: vec![(ContainerId::from("b0"), ContainerExit::Preempted)],
    });
    scene.up_as("b1", "board");
    assert_eq!(refused(&mut scene, "b1"), 410);
    assert_eq!(scene.links.round(), 1);
    assert_eq!(scene.put("c0", 0), 1, "its links are as they were");
}

#[test]
fn a_new_master_begins_a_round_with_those_with_whom_the_old_one_began_it() {
    let mut old = Scene::new();
    old.up("c0");
    old.attach("c0");
    // The second joins while the first is loading and has sent nothing that is journaled.
    old.happen(Event::ScaleRequested { role: RoleName::from("worker"), instances: 2 });
    old.up("c1");
    old.happen(Event::Ticked);
    let mut new = old.heir();
    for master in [&mut old, &mut new] {
        master.attach("c0");
        master.attach("c1");
        assert_eq!(master.put("c0", 0), 1, "the world of now is of one");
        assert_eq!(master.put("c1", 1), 0, "the newcomer waits for the next");
    }
    // And its successor.
    let mut third = new.heir();
    third.attach("c1");
    assert_eq!(third.put("c1", 1), 0, "it waits still");
}

#[test]
fn a_newcomer_whose_peers_change_before_it_has_joined_does_not_fail_the_job() {
    let mut old = Scene::new();
    old.up("c0");
    old.happen(Event::ScaleRequested { role: RoleName::from("worker"), instances: 2 });
    old.up("c1");
    old.happen(Event::Ticked);
    let run = old.job.run_in(&ContainerId::from("c1")).expect("it runs");
    old.happen(Event::Ended {
        containers: vec![(ContainerId::from("c0"), ContainerExit::Preempted)],
    });
    for lied in [false, true] {
        let mut master = old.heir();
        // The agent's claim does not matter.
        let exit = ProgramExit { code: Some(1), outdated: lied, ..ProgramExit::default() };
        master.happen(Event::Exited { container: ContainerId::from("c1"), round: run.round, exit });
        assert_eq!(master.job.outcome(), None);
        let Some(Entry::Happened(_, Event::Exited { exit, .. })) = master.diary.last() else {
            panic!("it is written down");
        };
        assert!(exit.outdated, "what the rendezvous knew is written down");
    }
}

#[test]
fn a_new_master_believes_what_is_written_of_an_exit_and_not_what_its_own_rendezvous_makes_of_it() {
    let mut scene = Scene::new();
    scene.up("c0");
    let exit = ProgramExit { code: Some(1), outdated: true, ..ProgramExit::default() };
    let exited = Event::Exited { container: ContainerId::from("c0"), round: 1, exit };
    let mut heir = scene.heir();
    heir.take(heir.now, exited.clone());
    assert_eq!(heir.job.outcome(), None, "it was in vain and not a failure");
    // On a live event the agent's claim is ignored.
    scene.happen(exited);
    assert!(scene.job.outcome().is_some(), "one failure is too many here");
}

#[test]
fn a_connection_that_an_agent_has_given_up_does_not_come_back() {
    let mut scene = Scene::new();
    scene.up("c0");
    let container = ContainerId::from("c0");
    let round = scene.job.run_in(&container).expect("it runs").round;
    let hear = |scene: &mut Scene, number: u64, ups: Vec<ClientFrame>| {
        let at = Connection { round, number };
        scene.links.hear(&scene.job, &container, at, ups)
    };
    let attach = || vec![ClientFrame::Attach(Vec::new())];
    let (first, rest) = ("GET /global/rank_0", " HTTP/1.1\r\n\r\n");
    let call = ConnId::Inbound(1);
    assert!(hear(&mut scene, 5, attach()).is_ok());
    assert!(hear(&mut scene, 6, attach()).is_ok());
    let ups = vec![ClientFrame::Open(call), ClientFrame::Data(call, 0, first.into())];
    assert!(hear(&mut scene, 6, ups).is_ok());
    // A late frame of the earlier connection does not know the link.
    let refused = hear(&mut scene, 5, attach()).expect_err("it is late");
    assert_eq!(refused.status, 409);
    let ups = vec![ClientFrame::Data(call, first.len() as u64, rest.into())];
    let (_, passed) = hear(&mut scene, 6, ups).expect("it is known still");
    let answered = |passed: &Passed| matches!(passed.down, ServerFrame::Data(..));
    assert!(passed.iter().any(answered), "{passed:?}");
    assert!(hear(&mut scene, 7, attach()).is_ok());
}

/// Returns sequence number and frames of a response with frames.
fn told(answer: &mut oneshot::Receiver<Answer>) -> Option<(u64, Vec<ServerFrame>)> {
    let Ok(Answer::Reply(reply)) = answer.try_recv() else {
        return None;
    };
    let (number, frames) = reply.body.split_first_chunk()?;
    let frames = ydl_rendezvous::link::codec::decode_all(frames).expect("frames");
    Some((u64::from_be_bytes(*number), frames))
}

#[test]
fn what_an_agent_is_to_be_told_comes_with_the_first_answer_it_is_given_and_is_never_lost() {
    let mut scene = Scene::new();
    scene.up("c0");
    scene.attach("c0");
    let container = ContainerId::from("c0");
    let run = scene.job.run_in(&container).expect("it runs");
    let (task, at) = (run.task, Connection { round: run.round, number: 1 });
    let listen = |scene: &mut Scene| {
        let (answer, answered) = oneshot::channel();
        let listening = scene.links.listen(&scene.job, &container, at, answer);
        assert!(listening.is_ok());
        answered
    };
    let say = |scene: &mut Scene, call: u64| {
        let said = b"GET /global/rank_0 HTTP/1.1\r\n\r\n".to_vec();
        let call = ConnId::Inbound(call);
        let passed =
            scene.say("c0", vec![ClientFrame::Open(call), ClientFrame::Data(call, 0, said)]);
        passed.iter().for_each(|one| scene.links.deliver(one));
    };
    // They come with the response to its own frames, even while it waits.
    let mut listening = listen(&mut scene);
    say(&mut scene, 1);
    let (answer, mut answered) = oneshot::channel();
    scene.links.answer(&task, 1, answer);
    scene.links.tell();
    let (number, frames) = told(&mut answered).expect("an answer with frames");
    assert_eq!((number, frames.len()), (1, 2));
    assert!(told(&mut listening).is_none());
    // A response without frames confirms its own; the rest comes with the waiting request.
    let (answer, mut answered) = oneshot::channel();
    scene.links.answer(&task, 1, answer);
    assert!(matches!(answered.try_recv(), Ok(Answer::Reply(reply)) if reply.body.is_empty()));
    say(&mut scene, 2);
    scene.links.tell();
    let (number, frames) = told(&mut listening).expect("an answer with frames");
    assert_eq!((number, frames.len()), (2, 2));
    // A request that was just cancelled leaves the frames to the next one.
    let mut listening = listen(&mut scene);
    listening.close();
    say(&mut scene, 3);
    scene.links.tell();
    assert!(told(&mut listening).is_none());
    let mut listening = listen(&mut scene);
    let (number, frames) = told(&mut listening).expect("an answer with frames");
    assert_eq!((number, frames.len()), (3, 2));
}
