//! Two thousand random runs of an elastic Horovod job: after joins, departures and failures at any moment, all members
//! train in one world.

use std::collections::BTreeMap;

use crate::support::{ProtocolRunner, Rng, base64, bytes, link, peer};
use ydl_core::{Cluster, RoleMembers};
use ydl_rendezvous::{
    Action, Effects, LinkId, Protocol,
    gloo::{GlooDriver, GlooLimits},
};

/// Notification endpoint of a worker and its reply, both with the key 00 01 … 1f.
const ENDPOINT: &str = "8005955d000000000000007d94288c0465746830945d948c0831302e302e302e37944d409c8694618c026c6f945d948c09\
    3132372e302e302e31944d409c869461754320000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f9486942e";
const ACK: &str = "c41edba9650bd7f1bc648117db6dcbd46d4aaf63984f071b554bf122cb3a34184400000080059539000000000000008c22\
    686f726f766f642e72756e6e65722e636f6d6d6f6e2e7574696c2e6e6574776f726b948c0b41636b526573706f6e73659493942981942e";

const TASKS: u32 = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Loads,
    /// Has sent its first request.
    Waits(LinkId),
    Trains,
    /// Has detected a change of the world.
    Stops,
    RequestsRank(LinkId),
}

#[derive(Debug)]
struct Process {
    state: State,
    /// Its world, as last received.
    world: Vec<u32>,
}

struct JobHarness {
    runner: ProtocolRunner<GlooDriver>,
    connections: u64,
    /// By rank.
    members: Vec<u32>,
    processes: BTreeMap<u32, Process>,
    dialed: Vec<LinkId>,
}

fn cluster(indexes: &[u32]) -> Cluster {
    Cluster {
        round: 1,
        roles: vec![RoleMembers {
            role: "worker".into(),
            instances: indexes.len() as u32,
            processes: 1,
            indexes: indexes.to_vec(),
            endpoints: Vec::new(),
        }],
    }
}

impl JobHarness {
    fn begin() -> JobHarness {
        let members = vec![0, 1];
        let mut job = JobHarness {
            runner: ProtocolRunner::new(GlooDriver::new(&cluster(&members), GlooLimits::default())),
            connections: 0,
            members,
            processes: BTreeMap::new(),
            dialed: Vec::new(),
        };
        for worker in 0..2 {
            job.start(worker);
        }
        job
    }

    fn start(&mut self, worker: u32) {
        let process = Process { state: State::Loads, world: self.members.clone() };
        self.processes.insert(worker, process);
    }

    fn send(
        &mut self,
        worker: u32,
        method: &str,
        path: &str,
        value: &str,
    ) -> (LinkId, Vec<Action>) {
        self.connections += 1;
        let link = link(self.connections);
        self.runner.open(link, worker);
        let length = value.len();
        let input = format!("{method} {path} HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{value}");
        (link, self.runner.feed(link, input.as_bytes()))
    }

    /// Performs the next step of a process.
    fn step(&mut self, worker: u32) {
        let process = &self.processes[&worker];
        match process.state {
            State::Loads => {
                let rank = process.world.iter().position(|it| *it == worker);
                let path = format!("/global/rank_{}", rank.expect("it is in its world"));
                let (link, actions) = self.send(worker, "PUT", &path, "here");
                self.set(worker, State::Waits(link));
                self.apply(actions);
            }
            State::Stops => {
                let path = format!("/rank_and_size/worker-{worker}:0");
                let (link, actions) = self.send(worker, "GET", &path, "");
                self.set(worker, State::RequestsRank(link));
                self.apply(actions);
            }
            State::Waits(_) | State::Trains | State::RequestsRank(_) => {}
        }
    }

    fn set(&mut self, worker: u32, state: State) {
        if let Some(process) = self.processes.get_mut(&worker) {
            process.state = state;
        }
    }

    fn apply(&mut self, actions: Vec<Action>) {
        let of = |job: &JobHarness, link: LinkId| {
            let mut all = job.processes.iter();
            let found = all.find(|(_, it)| {
                it.state == State::Waits(link) || it.state == State::RequestsRank(link)
            });
            found.map(|(worker, _)| *worker)
        };
        for action in actions {
            match action {
                Action::Send(link @ LinkId::Accepted(_), answer) => {
                    if let Some(worker) = of(self, link) {
                        let answer = String::from_utf8(answer).expect("text");
                        let (_, numbers) = answer.split_once("\r\n\r\n").expect("an answer");
                        self.on_response(worker, numbers);
                    }
                }
                // Closed without a response: its world no longer exists.
                Action::Close(link) => {
                    if let Some(worker) = of(self, link) {
                        self.fail(worker);
                    }
                }
                Action::Dial(link, _, _) => self.dialed.push(link),
                Action::Send(..) | Action::Log(_) => {}
            }
        }
    }

    fn on_response(&mut self, worker: u32, numbers: &str) {
        if numbers.starts_with('-') {
            return self.fail(worker);
        }
        let world: Vec<u32> = {
            let members = self.runner.protocol.world().members().iter();
            members.map(|member| member.task.index).collect()
        };
        let process = self.processes.get_mut(&worker).expect("a process");
        let rank = world.iter().position(|it| *it == worker);
        match process.state {
            State::RequestsRank(_) => {
                let expected = format!("{},{},", rank.expect("its world"), world.len());
                assert!(numbers.starts_with(&expected), "{numbers}: {world:?}");
                process.world = world;
            }
            _ => {
                assert_eq!(process.world, world, "a new worker is in the world it was started for")
            }
        }
        process.state = State::Trains;
        let path = format!("/worker_addresses/worker-{worker}:0");
        let (_, actions) = self.send(worker, "PUT", &path, &base64(&bytes(ENDPOINT)));
        self.apply(actions);
    }

    /// Ends a process. The others of its world detect it, and the members change.
    fn fail(&mut self, worker: u32) {
        let Some(process) = self.processes.remove(&worker) else {
            return;
        };
        let mut effects = Effects::default();
        if let State::Waits(link) | State::RequestsRank(link) = process.state {
            self.runner.protocol.close(link, &mut effects);
        }
        self.runner.protocol.attempt_ended(&peer(worker), &mut effects);
        for other in self.processes.values_mut() {
            if other.state == State::Trains && other.world.contains(&worker) {
                other.state = State::Stops;
            }
        }
        self.members.retain(|it| *it != worker);
        self.members_changed(effects);
    }

    /// Applies the current members together with pending effects.
    fn members_changed(&mut self, mut effects: Effects) {
        let members = cluster(&self.members);
        self.runner.protocol.members_changed(&members, &mut effects);
        self.apply(effects.into_parts().1);
    }

    fn join(&mut self, workers: &[u32]) {
        self.members.extend(workers);
        self.members_changed(Effects::default());
        for worker in workers {
            self.start(*worker);
        }
    }

    /// Delivers notifications to rank 0. If they take effect, all training processes stop at the next commit.
    fn deliver(&mut self, effective: bool) {
        for link in std::mem::take(&mut self.dialed) {
            let mut actions = self.runner.open(link, self.members[0]);
            actions.extend(self.runner.feed(link, &bytes(ACK)));
            self.apply(actions);
        }
        if !effective {
            return;
        }
        for process in self.processes.values_mut() {
            if process.state == State::Trains {
                process.state = State::Stops;
            }
        }
    }

    /// Expires the retry timer.
    fn expire_timer(&mut self) {
        if self.runner.protocol.retry_timer().is_some() {
            let mut effects = Effects::default();
            self.runner.protocol.retry(&mut effects);
            self.apply(effects.into_parts().1);
        }
    }

    /// Returns the number of processes with a state that others can copy.
    fn trained(&self) -> usize {
        let known = |it: &&Process| {
            matches!(it.state, State::Trains | State::Stops | State::RequestsRank(_))
        };
        self.processes.values().filter(known).count()
    }
}

#[test]
fn all_members_eventually_train_in_one_world() {
    for seed in 1..=2000 {
        let mut rng = Rng::new(seed);
        let mut job = JobHarness::begin();
        for worker in 0..2 {
            job.step(worker);
        }
        for _ in 0..rng.below(40) {
            let worker = rng.below(TASKS as usize) as u32;
            match (rng.below(7), job.processes.get(&worker)) {
                (0, None) => job.join(&[worker]),
                (1, Some(process)) => {
                    let has_state = !matches!(process.state, State::Loads | State::Waits(_));
                    if !has_state || job.trained() > 1 {
                        job.fail(worker);
                    }
                }
                (2, _) if !job.dialed.is_empty() => job.deliver(rng.below(2) == 0),
                (3, _) => job.expire_timer(),
                (_, Some(_)) => job.step(worker),
                _ => {}
            }
            assert!(job.trained() > 0, "seed {seed}: the state is lost");
        }
        // No random failures from here on. Disconnected workers join again after a round without changes, which is as
        // long as a worker takes to load. Sooner, they would join a world with workers that will be disconnected.
        let mut steps = 0;
        loop {
            steps += 1;
            assert!(steps < 20, "seed {seed}: {:#?}", job.processes);
            job.expire_timer();
            if !job.dialed.is_empty() {
                job.deliver(true);
            }
            for worker in 0..TASKS {
                if job.processes.contains_key(&worker) {
                    job.step(worker);
                }
            }
            let absent: Vec<u32> =
                (0..TASKS).filter(|worker| !job.processes.contains_key(worker)).collect();
            if !absent.is_empty() {
                job.join(&absent);
                continue;
            }
            let all = job.processes.values();
            let together = |it: &Process| it.state == State::Trains && it.world == job.members;
            if job.processes.len() == TASKS as usize && all.into_iter().all(together) {
                break;
            }
        }
    }
}
