//! Rendezvous with members that change before the first journaled record.

mod reminders;

use super::*;
use crate::master::{
    event_loop::tests::job_spec,
    journal::JournalRecord,
    kv_service::KvService,
    outbox::{Effect, Outbox},
    recovered::{apply_event, journal_record},
};
use ydl_core::{
    ContainerExit, Endpoint, Event, Grant, JobSpec, JobSpecBuilder, NodeName, ProgramExit,
    RoleName, Span, Time,
    spec::{Completion, Range, ResizePolicy},
};
use ydl_rendezvous::ConnId;

/// State of a master, and its journal.
struct LinksHarness {
    job: Job,
    kv: KvService,
    links: RendezvousLinks,
    now: u64,
    journal: Vec<JournalEntry>,
}

#[derive(Clone)]
enum JournalEntry {
    Event(u64, Event),
    Link(u32, LinkRecord),
}

impl LinksHarness {
    fn new() -> LinksHarness {
        LinksHarness::of(1, Range { min: 1, max: 2 })
    }

    /// Creates a job with that many workers in a range, and a sidecar.
    fn of(instances: u32, range: Range) -> LinksHarness {
        let mut draft = JobSpecBuilder::from(job_spec(1));
        draft.framework = Framework::Horovod;
        draft.gang.resize = ResizePolicy::Notify;
        // A round starts with all members or not at all.
        draft.gang.settle = Span::hours(1);
        let mut board = draft.roles[0].clone();
        board.name = RoleName::from("board");
        board.completion = Completion::Sidecar;
        draft.roles[0].instances = instances;
        draft.roles[0].elastic = Some(range);
        draft.roles.push(board);
        LinksHarness::with_spec(draft.build().expect("this is valid"))
    }

    fn with_spec(spec: JobSpec) -> LinksHarness {
        LinksHarness {
            job: Job::new(spec, Time(0)).0,
            kv: KvService::default(),
            links: RendezvousLinks::default(),
            now: 0,
            journal: Vec::new(),
        }
    }

    fn apply(&mut self, event: Event) -> Vec<OutgoingFrame> {
        self.now += 10_000;
        let record = journal_record(&self.job, &self.links, Time(self.now), event);
        let JournalRecord::Event(_, event) = record else {
            panic!("{record:?}");
        };
        self.journal.push(JournalEntry::Event(self.now, event.clone()));
        self.take(self.now, event)
    }

    fn take(&mut self, now: u64, event: Event) -> Vec<OutgoingFrame> {
        let mut out = Outbox::default();
        let (job, kv, links) = (&mut self.job, &mut self.kv, &mut self.links);
        apply_event(job, kv, links, Time(now), event, &mut out);
        let frames_out = out.take().into_iter().filter_map(|effect| match effect {
            Effect::Send(frames_out) => Some(frames_out),
            _ => None,
        });
        frames_out.collect()
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
        self.apply(Event::Granted { grants: vec![grant] });
        self.apply(Event::Launched { container: container.clone() });
        let order = self.job.order(&container);
        let ydl_core::Order::Wait { round, .. } = order else {
            panic!("{order:?}");
        };
        self.apply(Event::Ready {
            container,
            round,
            endpoint: Endpoint { host: "127.0.0.1".to_owned(), ports: Default::default() },
        });
    }

    /// Sends frames of a container's agent and returns the resulting frames.
    fn send(&mut self, name: &str, frames: Vec<ClientFrame>) -> Vec<OutgoingFrame> {
        let container = ContainerId::from(name);
        let run = self.job.run_in(&container).expect("it runs");
        let at = SessionId { round: run.round, number: 1 };
        let received = self.links.receive(&self.job, &container, at, frames);
        let (records, frames_out) = received.expect("accepted");
        let round = self.links.round();
        let linked = records.into_iter().map(|record| JournalEntry::Link(round, record));
        self.journal.extend(linked);
        frames_out
    }

    fn attach(&mut self, name: &str) {
        self.send(name, vec![ClientFrame::Attach(Vec::new())]);
    }

    fn put(&mut self, name: &str, rank: u32) -> usize {
        let call = ConnId::Inbound(1);
        let request = format!("PUT /global/rank_{rank} HTTP/1.1\r\nContent-Length: 1\r\n\r\nx");
        let frames =
            vec![ClientFrame::Open(call), ClientFrame::Data(call, 0, request.into_bytes())];
        let frames_out = self.send(name, frames);
        answers(&frames_out)
    }

    /// Asks for a worker's rank in the next world; returns how many workers get theirs.
    fn ask(&mut self, name: &str, index: u32) -> usize {
        let call = ConnId::Inbound(100);
        let request = format!("GET /rank_and_size/worker-{index}:0 HTTP/1.1\r\n\r\n");
        let frames =
            vec![ClientFrame::Open(call), ClientFrame::Data(call, 0, request.into_bytes())];
        answers(&self.send(name, frames))
    }

    /// Recovers a new master from the journal.
    fn successor(&self) -> LinksHarness {
        let mut successor = LinksHarness::with_spec(self.job.spec().clone());
        for record in self.journal.clone() {
            match record {
                JournalEntry::Event(now, event) => {
                    successor.take(now, event);
                }
                JournalEntry::Link(round, record) => successor.links.replay(round, record),
            }
        }
        successor.journal = self.journal.clone();
        successor.now = self.now;
        successor
    }
}

fn answers(frames: &[OutgoingFrame]) -> usize {
    let is_data = |frames: &&OutgoingFrame| matches!(frames.frame, ServerFrame::Data(..));
    frames.iter().filter(is_data).count()
}

#[test]
fn remaining_workers_rendezvous_again_however_a_loss_is_detected() {
    let container = || ContainerId::from("c2");
    let missed_heartbeats = vec![
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
    for events in [missed_heartbeats, warned, recovered] {
        let mut old = LinksHarness::of(3, Range { min: 2, max: 3 });
        for name in ["c0", "c1", "c2"] {
            old.up(name);
        }
        for name in ["c0", "c1", "c2"] {
            old.attach(name);
            let index = name[1..].parse().expect("a number");
            assert_eq!(old.put(name, index), 1);
        }
        for event in events {
            old.apply(event);
        }
        let mut new = old.successor();
        for master in [&mut old, &mut new] {
            master.attach("c0");
            master.attach("c1");
            assert_eq!(master.ask("c0", 0), 0, "the worker does not wait");
            assert_eq!(master.ask("c1", 1), 2, "no world of two");
        }
    }
}

#[test]
fn finished_workers_are_not_awaited_by_a_new_rendezvous() {
    let mut old = LinksHarness::of(3, Range { min: 3, max: 3 });
    for name in ["c0", "c1", "c2"] {
        old.up(name);
    }
    let exit = ProgramExit { code: Some(0), ..ProgramExit::default() };
    old.apply(Event::Exited { container: ContainerId::from("c0"), round: 1, exit });
    // They see that it has gone, and no task was lost.
    let mut new = old.successor();
    new.attach("c1");
    new.attach("c2");
    assert_eq!(new.ask("c1", 1), 0, "the worker does not wait");
    assert_eq!(new.ask("c2", 2), 2, "no world of two");
    // Or another is lost as well.
    old.apply(Event::Ended {
        containers: vec![(ContainerId::from("c1"), ContainerExit::Preempted)],
    });
    let mut new = old.successor();
    for master in [&mut old, &mut new] {
        master.attach("c2");
        assert_eq!(master.ask("c2", 2), 1, "no world of one");
    }
}

#[test]
fn sidecars_neither_end_a_round_nor_take_part_in_it() {
    let mut harness = LinksHarness::of(1, Range { min: 1, max: 2 });
    harness.up("c0");
    harness.attach("c0");
    harness.up_as("b0", "board");
    let rejected = |harness: &mut LinksHarness, name: &str| {
        let container = ContainerId::from(name);
        let run = harness.job.run_in(&container).expect("it runs");
        let at = SessionId { round: run.round, number: 1 };
        let frames = vec![ClientFrame::Attach(Vec::new())];
        let received = harness.links.receive(&harness.job, &container, at, frames);
        received.map(drop).expect_err("rejected").status
    };
    assert_eq!(rejected(&mut harness, "b0"), 410);
    harness.apply(Event::ScaleRequested { role: RoleName::from("worker"), instances: 2 });
    harness.apply(Event::Ended {
        containers: vec![(ContainerId::from("b0"), ContainerExit::Preempted)],
    });
    harness.up_as("b1", "board");
    assert_eq!(rejected(&mut harness, "b1"), 410);
    assert_eq!(harness.links.round(), 1);
    assert_eq!(harness.put("c0", 0), 1, "the links changed");
}

#[test]
fn a_recovered_round_has_its_original_members() {
    let mut old = LinksHarness::new();
    old.up("c0");
    old.attach("c0");
    // The second joins while the first is loading and has sent nothing that is journaled.
    old.apply(Event::ScaleRequested { role: RoleName::from("worker"), instances: 2 });
    old.up("c1");
    old.apply(Event::Ticked);
    let mut new = old.successor();
    for master in [&mut old, &mut new] {
        master.attach("c0");
        master.attach("c1");
        assert_eq!(master.put("c0", 0), 1, "the current world has more than one worker");
        assert_eq!(master.put("c1", 1), 0, "the new worker does not wait");
    }
    // And its successor.
    let mut third = new.successor();
    third.attach("c1");
    assert_eq!(third.put("c1", 1), 0, "the new worker does not wait");
}

#[test]
fn a_worker_with_peers_that_changed_before_it_joined_does_not_fail_the_job() {
    let mut old = LinksHarness::new();
    old.up("c0");
    old.apply(Event::ScaleRequested { role: RoleName::from("worker"), instances: 2 });
    old.up("c1");
    old.apply(Event::Ticked);
    let run = old.job.run_in(&ContainerId::from("c1")).expect("it runs");
    old.apply(Event::Ended {
        containers: vec![(ContainerId::from("c0"), ContainerExit::Preempted)],
    });
    for claim in [false, true] {
        let mut master = old.successor();
        // The agent's claim does not matter.
        let exit = ProgramExit { code: Some(1), outdated: claim, ..ProgramExit::default() };
        master.apply(Event::Exited { container: ContainerId::from("c1"), round: run.round, exit });
        assert_eq!(master.job.outcome(), None);
        let Some(JournalEntry::Event(_, Event::Exited { exit, .. })) = master.journal.last() else {
            panic!("no exit is journaled");
        };
        assert!(exit.outdated, "the state of the rendezvous is not journaled");
    }
}

#[test]
fn a_replayed_exit_uses_the_journaled_state_of_the_rendezvous() {
    let mut harness = LinksHarness::new();
    harness.up("c0");
    let exit = ProgramExit { code: Some(1), outdated: true, ..ProgramExit::default() };
    let exited = Event::Exited { container: ContainerId::from("c0"), round: 1, exit };
    let mut successor = harness.successor();
    successor.take(successor.now, exited.clone());
    assert_eq!(successor.job.outcome(), None, "counted as a failure");
    // On a live event the agent's claim is ignored.
    harness.apply(exited);
    assert!(harness.job.outcome().is_some(), "the failure is not counted");
}

#[test]
fn a_replaced_session_is_rejected() {
    let mut harness = LinksHarness::new();
    harness.up("c0");
    let container = ContainerId::from("c0");
    let round = harness.job.run_in(&container).expect("it runs").round;
    let receive = |harness: &mut LinksHarness, number: u64, frames: Vec<ClientFrame>| {
        let at = SessionId { round, number };
        harness.links.receive(&harness.job, &container, at, frames)
    };
    let attach = || vec![ClientFrame::Attach(Vec::new())];
    let (first, rest) = ("GET /global/rank_0", " HTTP/1.1\r\n\r\n");
    let call = ConnId::Inbound(1);
    assert!(receive(&mut harness, 5, attach()).is_ok());
    assert!(receive(&mut harness, 6, attach()).is_ok());
    let frames = vec![ClientFrame::Open(call), ClientFrame::Data(call, 0, first.into())];
    assert!(receive(&mut harness, 6, frames).is_ok());
    // A late frame of the earlier session does not know the link.
    let rejected = receive(&mut harness, 5, attach()).expect_err("it is late");
    assert_eq!(rejected.status, 409);
    let frames = vec![ClientFrame::Data(call, first.len() as u64, rest.into())];
    let (_, frames_out) = receive(&mut harness, 6, frames).expect("it is known still");
    let response = |outgoing: &OutgoingFrame| matches!(outgoing.frame, ServerFrame::Data(..));
    assert!(frames_out.iter().any(response), "{frames_out:?}");
    assert!(receive(&mut harness, 7, attach()).is_ok());
}

/// Returns sequence number and frames of a response with frames.
fn sent(respond_to: &mut oneshot::Receiver<MasterResponse>) -> Option<(u64, Vec<ServerFrame>)> {
    let Ok(MasterResponse::Http(reply)) = respond_to.try_recv() else {
        return None;
    };
    let (number, frames) = reply.body.split_first_chunk()?;
    let frames = ydl_rendezvous::link::codec::decode_all(frames).expect("frames");
    Some((u64::from_be_bytes(*number), frames))
}

#[test]
fn frames_come_with_the_next_response_and_are_never_lost() {
    let mut harness = LinksHarness::new();
    harness.up("c0");
    harness.attach("c0");
    let container = ContainerId::from("c0");
    let run = harness.job.run_in(&container).expect("it runs");
    let (task, at) = (run.task, SessionId { round: run.round, number: 1 });
    let listen = |harness: &mut LinksHarness| {
        let (respond_to, response) = oneshot::channel();
        let waiter = harness.links.listen(&harness.job, &container, at, respond_to);
        assert!(waiter.is_ok());
        response
    };
    let send = |harness: &mut LinksHarness, call: u64| {
        let request = b"GET /global/rank_0 HTTP/1.1\r\n\r\n".to_vec();
        let call = ConnId::Inbound(call);
        let frames_out =
            harness.send("c0", vec![ClientFrame::Open(call), ClientFrame::Data(call, 0, request)]);
        frames_out.iter().for_each(|one| harness.links.enqueue(one));
    };
    // They come with the response to its own frames, even while it waits.
    let mut waiter = listen(&mut harness);
    send(&mut harness, 1);
    let (respond_to, mut response) = oneshot::channel();
    harness.links.respond(&task, 1, respond_to);
    harness.links.flush();
    let (number, frames) = sent(&mut response).expect("a response with frames");
    assert_eq!((number, frames.len()), (1, 2));
    assert!(sent(&mut waiter).is_none());
    // A response without frames confirms its own; the rest comes with the waiting request.
    let (respond_to, mut response) = oneshot::channel();
    harness.links.respond(&task, 1, respond_to);
    assert!(
        matches!(response.try_recv(), Ok(MasterResponse::Http(reply)) if reply.body.is_empty())
    );
    send(&mut harness, 2);
    harness.links.flush();
    let (number, frames) = sent(&mut waiter).expect("a response with frames");
    assert_eq!((number, frames.len()), (2, 2));
    // A request that was just cancelled leaves the frames to the next one.
    let mut waiter = listen(&mut harness);
    waiter.close();
    send(&mut harness, 3);
    harness.links.flush();
    assert!(sent(&mut waiter).is_none());
    let mut waiter = listen(&mut harness);
    let (number, frames) = sent(&mut waiter).expect("a response with frames");
    assert_eq!((number, frames.len()), (3, 2));
}
