//! Two thousand lives of an elastic Horovod job: whoever comes, goes or dies at any moment, in the end all who are left
//! train together.

mod support;

use std::collections::BTreeMap;

use support::{ProtocolRunner, Rng, base64, bytes, link, peer};
use ydl_core::{Cluster, RoleMembers};
use ydl_rendezvous::{
    Action, Effects, LinkId, Protocol,
    gloo::{GlooDriver, GlooLimits},
};

/// Where a worker listens, and what it answers; both with the key 00 01 … 1f.
const LISTENS: &str = "8005955d000000000000007d94288c0465746830945d948c0831302e302e302e37944d409c8694618c026c6f945d948c09\
    3132372e302e302e31944d409c869461754320000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f9486942e";
const TAKEN: &str = "c41edba9650bd7f1bc648117db6dcbd46d4aaf63984f071b554bf122cb3a34184400000080059539000000000000008c22\
    686f726f766f642e72756e6e65722e636f6d6d6f6e2e7574696c2e6e6574776f726b948c0b41636b526573706f6e73659493942981942e";

const TASKS: u32 = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Loads,
    /// Has said that it is there.
    Waits(LinkId),
    Trains,
    /// Has seen that the world changes.
    Stops,
    Asks(LinkId),
}

#[derive(Debug)]
struct Process {
    state: State,
    /// Its world, as it was told it.
    world: Vec<u32>,
}

struct Life {
    runner: ProtocolRunner<GlooDriver>,
    connections: u64,
    /// In the order of their ranks.
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

impl Life {
    fn begin() -> Life {
        let members = vec![0, 1];
        let mut life = Life {
            runner: ProtocolRunner::new(GlooDriver::new(&cluster(&members), GlooLimits::default())),
            connections: 0,
            members,
            processes: BTreeMap::new(),
            dialed: Vec::new(),
        };
        for worker in 0..2 {
            life.start(worker);
        }
        life
    }

    fn start(&mut self, worker: u32) {
        let process = Process { state: State::Loads, world: self.members.clone() };
        self.processes.insert(worker, process);
    }

    fn say(&mut self, worker: u32, verb: &str, path: &str, value: &str) -> (LinkId, Vec<Action>) {
        self.connections += 1;
        let link = link(self.connections);
        self.runner.open(link, worker);
        let length = value.len();
        let said = format!("{verb} {path} HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{value}");
        (link, self.runner.say(link, said.as_bytes()))
    }

    /// What a process does next, if it does not just train.
    fn goes_on(&mut self, worker: u32) {
        let process = &self.processes[&worker];
        match process.state {
            State::Loads => {
                let rank = process.world.iter().position(|it| *it == worker);
                let path = format!("/global/rank_{}", rank.expect("it is in its world"));
                let (link, acts) = self.say(worker, "PUT", &path, "here");
                self.set(worker, State::Waits(link));
                self.acts(acts);
            }
            State::Stops => {
                let path = format!("/rank_and_size/worker-{worker}:0");
                let (link, acts) = self.say(worker, "GET", &path, "");
                self.set(worker, State::Asks(link));
                self.acts(acts);
            }
            State::Waits(_) | State::Trains | State::Asks(_) => {}
        }
    }

    fn set(&mut self, worker: u32, state: State) {
        if let Some(process) = self.processes.get_mut(&worker) {
            process.state = state;
        }
    }

    fn acts(&mut self, acts: Vec<Action>) {
        let of = |life: &Life, link: LinkId| {
            let mut all = life.processes.iter();
            let found =
                all.find(|(_, it)| it.state == State::Waits(link) || it.state == State::Asks(link));
            found.map(|(worker, _)| *worker)
        };
        for act in acts {
            match act {
                Action::Send(link @ LinkId::Accepted(_), answer) => {
                    if let Some(worker) = of(self, link) {
                        let answer = String::from_utf8(answer).expect("text");
                        let (_, numbers) = answer.split_once("\r\n\r\n").expect("an answer");
                        self.answered(worker, numbers);
                    }
                }
                // Nothing was said before: it does not know its world any more.
                Action::Close(link) => {
                    if let Some(worker) = of(self, link) {
                        self.lost(worker);
                    }
                }
                Action::Dial(link, _, _) => self.dialed.push(link),
                Action::Send(..) | Action::Log(_) => {}
            }
        }
    }

    fn answered(&mut self, worker: u32, numbers: &str) {
        if numbers.starts_with('-') {
            return self.lost(worker);
        }
        let world: Vec<u32> = {
            let members = self.runner.protocol.world().members().iter();
            members.map(|member| member.task.index).collect()
        };
        let process = self.processes.get_mut(&worker).expect("it was answered");
        let rank = world.iter().position(|it| *it == worker);
        match process.state {
            State::Asks(_) => {
                let expected = format!("{},{},", rank.expect("its world"), world.len());
                assert!(numbers.starts_with(&expected), "{numbers}: {world:?}");
                process.world = world;
            }
            _ => assert_eq!(process.world, world, "a newcomer is in the world it knows"),
        }
        process.state = State::Trains;
        let path = format!("/worker_addresses/worker-{worker}:0");
        let (_, acts) = self.say(worker, "PUT", &path, &base64(&bytes(LISTENS)));
        self.acts(acts);
    }

    /// A process has died: the others of its world see it, and those who decide go on without it.
    fn lost(&mut self, worker: u32) {
        let Some(process) = self.processes.remove(&worker) else {
            return;
        };
        let mut effects = Effects::default();
        if let State::Waits(link) | State::Asks(link) = process.state {
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

    /// At once after what has led to it.
    fn members_changed(&mut self, mut effects: Effects) {
        let members = cluster(&self.members);
        self.runner.protocol.members_changed(&members, &mut effects);
        self.acts(effects.into_parts().1);
    }

    fn come(&mut self, workers: &[u32]) {
        self.members.extend(workers);
        self.members_changed(Effects::default());
        for worker in workers {
            self.start(*worker);
        }
    }

    /// Rank 0 hears of newcomers, and everybody who trains stops at the next commit; unless it does not heed it yet.
    fn hears(&mut self, heeds: bool) {
        for link in std::mem::take(&mut self.dialed) {
            let mut acts = self.runner.open(link, self.members[0]);
            acts.extend(self.runner.say(link, &bytes(TAKEN)));
            self.acts(acts);
        }
        if !heeds {
            return;
        }
        for process in self.processes.values_mut() {
            if process.state == State::Trains {
                process.state = State::Stops;
            }
        }
    }

    /// Whoever was told something and has not heeded it is told again.
    fn time_passes(&mut self) {
        if self.runner.protocol.retry_timer().is_some() {
            let mut effects = Effects::default();
            self.runner.protocol.retry(&mut effects);
            self.acts(effects.into_parts().1);
        }
    }

    /// How many have a state that others could take.
    fn trained(&self) -> usize {
        let known =
            |it: &&Process| matches!(it.state, State::Trains | State::Stops | State::Asks(_));
        self.processes.values().filter(known).count()
    }
}

#[test]
fn in_the_end_all_who_are_left_train_in_one_world() {
    for seed in 1..=2000 {
        let mut rng = Rng::new(seed);
        let mut life = Life::begin();
        for worker in 0..2 {
            life.goes_on(worker);
        }
        for _ in 0..rng.below(40) {
            let worker = rng.below(TASKS as usize) as u32;
            match (rng.below(7), life.processes.get(&worker)) {
                (0, None) => life.come(&[worker]),
                (1, Some(process)) => {
                    let knows = !matches!(process.state, State::Loads | State::Waits(_));
                    if !knows || life.trained() > 1 {
                        life.lost(worker);
                    }
                }
                (2, _) if !life.dialed.is_empty() => life.hears(rng.below(2) == 0),
                (3, _) => life.time_passes(),
                (_, Some(_)) => life.goes_on(worker),
                _ => {}
            }
            assert!(life.trained() > 0, "seed {seed}: the state is lost");
        }
        // From here on nobody dies by himself. Whoever was sent away comes again when nothing has changed for as long as
        // it takes to load: whoever came sooner would be in a world with others who will be sent away.
        let mut turns = 0;
        loop {
            turns += 1;
            assert!(turns < 20, "seed {seed}: {:#?}", life.processes);
            life.time_passes();
            if !life.dialed.is_empty() {
                life.hears(true);
            }
            for worker in 0..TASKS {
                if life.processes.contains_key(&worker) {
                    life.goes_on(worker);
                }
            }
            let away: Vec<u32> =
                (0..TASKS).filter(|worker| !life.processes.contains_key(worker)).collect();
            if !away.is_empty() {
                life.come(&away);
                continue;
            }
            let all = life.processes.values();
            let together = |it: &Process| it.state == State::Trains && it.world == life.members;
            if life.processes.len() == TASKS as usize && all.into_iter().all(together) {
                break;
            }
        }
    }
}
