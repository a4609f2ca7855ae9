//! Simulation of a master with a ledger, and of every fault between it and the model.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use yarn_native::ledger::{
    Execution, Key, Ledger, LedgerRequest, Localities, Mutant, NodeLocality, RackLocality,
    ReplyCount, ReplyOutcome, Row, Want,
};
use yarn_native::types::Resource;

use super::model::{HOSTS, Model, RequestError};
use crate::random::Random;

/// Faults of a seed. Each seed enables a random half of them.
#[derive(Debug, Default)]
struct Faults {
    lost_requests: bool,
    lost_replies: bool,
    restarts: bool,
    rejects: bool,
    preemption: bool,
    window: bool,
    /// The decider processes replies late.
    late_decider: bool,
    /// The wants change all the time.
    changing_wants: bool,
    ends: bool,
}

impl Faults {
    fn some(random: &mut Random) -> Self {
        let mut coin = || random.one_in(2);
        Self {
            lost_requests: coin(),
            lost_replies: coin(),
            restarts: coin(),
            rejects: coin(),
            preemption: coin(),
            window: coin(),
            late_decider: coin(),
            changing_wants: coin(),
            ends: coin(),
        }
    }
}

/// Goal of one role.
#[derive(Clone, Debug)]
struct Role {
    key: Key,
    target: u32,
    resource: Resource,
    localities: Localities,
    label: Option<String>,
    execution: Execution,
}

#[derive(Debug)]
struct World {
    random: Random,
    faults: Faults,
    model: Model,
    ledger: Ledger<u64>,
    roles: Vec<Role>,
    held: BTreeMap<u64, Key>,
    /// Replies that the decider has not processed.
    inbox: VecDeque<(ReplyOutcome<u64>, Vec<u64>)>,
    seen: ReplyCount,
    exclude: BTreeSet<String>,
    /// Request without a reply.
    unanswered: Option<LedgerRequest<u64>>,
    /// True if something happened since the last new request that may change rows.
    may_change: bool,
    /// Replies since a row was sent or a container granted, by key.
    idle_replies: BTreeMap<Key, u32>,
    surplus: usize,
}

/// Runs one seed; returns a description of the failure.
pub fn run(seed: u64, mutant: Mutant) -> Result<(), String> {
    let mut random = Random::new(seed);
    let faults = match seed % 4 {
        // No faults, except that the decider may be late: nothing may be wasted.
        0 => Faults { late_decider: random.one_in(2), ..Faults::default() },
        _ => Faults::some(&mut random),
    };
    let model = Model::new(&mut random);
    let mut world = World {
        faults,
        model,
        ledger: Ledger::with_mutant(mutant),
        roles: Vec::new(),
        held: BTreeMap::new(),
        inbox: VecDeque::new(),
        seen: ReplyCount(0),
        exclude: BTreeSet::new(),
        unanswered: None,
        may_change: true,
        idle_replies: BTreeMap::new(),
        surplus: 0,
        random,
    };
    for (host, rack) in HOSTS {
        if world.random.one_in(2) {
            world.ledger.set_rack(host, rack);
        }
    }
    for number in 0..1 + world.random.below(4) {
        let role = world.role(number as i64);
        world.roles.push(role);
    }
    world.decide();
    for step in 0..60 {
        world.step().map_err(|why| format!("seed {seed}, step {step}: {why}"))?;
    }
    if seed.is_multiple_of(4) && world.surplus > 0 {
        return Err(format!("seed {seed}: {} containers wasted without a fault", world.surplus));
    }
    world.settle().map_err(|why| format!("seed {seed}, settling: {why}"))
}

impl World {
    fn role(&mut self, number: i64) -> Role {
        let random = &mut self.random;
        let memory_mib = 512 * (1 + random.below(4) as i64);
        let target = random.below(9) as u32;
        let execution = match random.below(5) {
            0 => Execution::Opportunistic { enforce: true },
            _ => Execution::Guaranteed,
        };
        let mut localities = Localities::default();
        if execution == Execution::Guaranteed && random.one_in(2) {
            for (host, rack) in HOSTS {
                if random.one_in(2) {
                    localities.nodes.push(NodeLocality {
                        host: host.into(),
                        rack: rack.into(),
                        count: target,
                    });
                }
            }
            if random.one_in(3) {
                localities.racks.push(RackLocality { rack: "/two".into(), count: target });
            }
            localities.strict = random.one_in(2);
        }
        Role {
            key: Key { priority: 1 + (number % 2) as i32, allocation: number },
            target,
            resource: Resource { memory_mib, vcores: 1, others: BTreeMap::new() },
            localities,
            label: random.one_in(4).then(|| "gpu".to_owned()),
            execution,
        }
    }

    /// Sets the wants from what the decider knows.
    fn decide(&mut self) {
        let mut wants = BTreeMap::new();
        for role in &self.roles {
            let has = self.held.values().filter(|key| **key == role.key).count() as u32;
            let count = role.target.saturating_sub(has);
            let mut localities = role.localities.clone();
            for node in &mut localities.nodes {
                node.count = count;
            }
            for rack in &mut localities.racks {
                rack.count = count;
            }
            let want = Want {
                count,
                resource: role.resource.clone(),
                localities,
                label: role.label.clone(),
                execution: role.execution,
            };
            wants.insert(role.key, want);
        }
        self.ledger.set_wants(wants, self.seen);
        self.ledger.set_excluded(self.exclude.clone());
    }

    fn step(&mut self) -> Result<(), String> {
        if self.faults.changing_wants && self.random.one_in(4) {
            self.change_wants();
        }
        if self.faults.ends && self.random.one_in(4) {
            self.end_one();
        }
        for _ in 0..self.random.below(3) {
            self.model.schedule(&mut self.random);
        }
        if self.faults.preemption && self.random.one_in(6) {
            self.model.preempt_unacquired();
        }
        if self.faults.restarts && self.random.one_in(12) {
            self.restart();
        }
        self.exchange()?;
        self.process_inbox(self.faults.late_decider);
        Ok(())
    }

    fn change_wants(&mut self) {
        self.may_change = true;
        let at = self.random.below(self.roles.len());
        let key = self.roles[at].key;
        match self.random.below(4) {
            0 => self.roles[at].target = self.random.below(9) as u32,
            1 => {
                let role = self.role(key.allocation);
                self.roles[at] = role;
            }
            2 => {
                let host = self.random.pick(&HOSTS).0.to_owned();
                if !self.exclude.remove(&host) {
                    self.exclude.insert(host);
                }
            }
            _ => {
                // A held container is not needed any more.
                let mut mine = self.held.iter().filter(|(_, of)| **of == key);
                if let Some((container, _)) = mine.next() {
                    let container = *container;
                    self.held.remove(&container);
                    self.ledger.release(container);
                    self.roles[at].target = self.roles[at].target.saturating_sub(1);
                }
            }
        }
        self.decide();
    }

    fn end_one(&mut self) {
        let held: Vec<u64> = self.held.keys().copied().collect();
        if !held.is_empty() {
            let container = *self.random.pick(&held);
            self.model.end(container);
        }
    }

    fn restart(&mut self) {
        self.may_change = true;
        // Nodes reject grants of an earlier ResourceManager; the decider learns it at once.
        for container in self.model.restart() {
            self.held.remove(&container);
            self.ledger.forget(&container);
            for (outcome, _) in &mut self.inbox {
                outcome.wanted.retain(|grant| grant.container != container);
            }
        }
        self.decide();
    }

    /// Sends one request and handles the result.
    fn exchange(&mut self) -> Result<(), String> {
        let request = self.ledger.request();
        if let Some(unanswered) = &self.unanswered
            && *unanswered != request
        {
            return Err("a request changed before its reply".into());
        }
        if self.unanswered.is_none() {
            // After many idle replies all rows of a key are sent again, as they should.
            let early = |key: &Key| self.idle_replies.get(key).is_none_or(|replies| *replies < 100);
            if !self.may_change && request.rows.iter().any(|row| early(&row.key)) {
                return Err(format!("rows sent without need: {:?}", request.rows));
            }
            self.may_change = false;
        }
        self.unanswered = Some(request.clone());
        if self.faults.lost_requests && self.random.one_in(5) {
            return Ok(());
        }
        let rejects = self.faults.rejects && !request.rows.is_empty() && self.random.one_in(6);
        let mut window = Random::new(self.random.next());
        let window = self.faults.window.then_some(&mut window);
        match self.model.allocate(&request, rejects, window) {
            Err(RequestError::NotRegistered) => {
                self.model.register();
                self.ledger.on_resync();
                self.unanswered = None;
                self.may_change = true;
            }
            Err(RequestError::Rejected) => {
                self.ledger.on_rejected();
                self.unanswered = None;
                self.may_change = true;
            }
            Ok(_) if self.faults.lost_replies && self.random.one_in(5) => {}
            Ok(reply) => {
                let completed = reply.completed.clone();
                self.may_change |= !reply.granted.is_empty();
                let granted = reply.granted.iter().map(|grant| grant.key);
                let sent = request.rows.iter().map(|row| row.key);
                for key in granted.chain(sent) {
                    self.idle_replies.insert(key, 0);
                }
                self.idle_replies.values_mut().for_each(|replies| *replies += 1);
                let outcome = self.ledger.on_reply(reply).map_err(|error| error.to_string())?;
                self.check_kinds(&request, &outcome)?;
                self.surplus += outcome.surplus.len();
                self.unanswered = None;
                self.inbox.push_back((outcome, completed));
            }
        }
        Ok(())
    }

    /// Checks that grants returned for a larger ask are not too small for it.
    fn check_kinds(
        &self,
        request: &LedgerRequest<u64>,
        outcome: &ReplyOutcome<u64>,
    ) -> Result<(), String> {
        for grant in &outcome.wanted {
            let role = self.roles.iter().find(|role| role.key == grant.key);
            let Some(role) = role else { continue };
            let asked =
                |row: &Row| row.key == role.key && row.count > 0 && row.resource == role.resource;
            let small = grant.resource.memory_mib < role.resource.memory_mib;
            if small && request.rows.iter().any(asked) {
                return Err(format!("{} is too small", grant.container));
            }
        }
        Ok(())
    }

    /// Processes replies, all or some, and decides.
    fn process_inbox(&mut self, late_decider: bool) {
        while let Some((outcome, completed)) = self.inbox.pop_front() {
            if late_decider && self.random.one_in(2) {
                self.inbox.push_front((outcome, completed));
                break;
            }
            self.seen = outcome.reply_count;
            // A late reply may be outdated, so that the wants change back and forth.
            self.may_change |= late_decider;
            for grant in outcome.wanted {
                self.held.insert(grant.container, grant.key);
                if let Some(container) = self.model.containers.get_mut(&grant.container) {
                    container.started = true;
                }
            }
            for container in completed {
                self.may_change |= self.held.remove(&container).is_some();
            }
            self.release_excess();
            self.decide();
        }
    }

    /// Releases what is held beyond the target, which may have been lowered meanwhile.
    fn release_excess(&mut self) {
        for role in &self.roles {
            let mine = self.held.iter().filter(|(_, key)| **key == role.key);
            let extra: Vec<u64> = mine.map(|(id, _)| *id).skip(role.target as usize).collect();
            for container in extra {
                self.held.remove(&container);
                self.ledger.release(container);
            }
        }
    }

    /// Checks that the model owes exactly the wants when the ledger has no changes to send.
    fn check_outstanding(&self) -> Result<(), String> {
        for role in &self.roles {
            let has = self.held.values().filter(|key| **key == role.key).count() as u32;
            let (wanted, owed) = (role.target - has, self.model.owed(role.key));
            if wanted != owed {
                return Err(format!("{:?}: {wanted} wanted, {owed} owed", role.key));
            }
        }
        Ok(())
    }

    /// Runs without faults until everything wanted has come and nothing else is left.
    fn settle(&mut self) -> Result<(), String> {
        self.faults = Faults::default();
        // A strict want for excluded hosts cannot be satisfied, nor can any if all hosts are
        // excluded.
        if self.roles.iter().any(|role| role.localities.strict) {
            self.exclude.clear();
        }
        self.exclude.remove("a");
        self.process_inbox(false);
        self.may_change = true;
        self.decide();
        for step in 0..400 {
            self.model.schedule(&mut self.random);
            self.exchange()?;
            self.process_inbox(false);
            if step > 2 && !self.ledger.has_changes() {
                self.check_outstanding()?;
                let over = self.ledger.outstanding() == 0 && self.model.outstanding() == 0;
                if over && self.inbox.is_empty() && !self.may_change {
                    break;
                }
            }
        }
        for role in &self.roles {
            let has = self.held.values().filter(|key| **key == role.key).count();
            if has != role.target as usize {
                return Err(format!("{:?} has {has} of {}", role.key, role.target));
            }
        }
        let held: BTreeSet<u64> = self.held.keys().copied().collect();
        let live: BTreeSet<u64> = self.model.containers.keys().copied().collect();
        if held != live {
            return Err(format!("held {held:?}, alive {live:?}"));
        }
        if self.model.outstanding() != 0 || self.ledger.outstanding() != 0 {
            return Err(format!("{} still asked for", self.model.outstanding()));
        }
        if self.model.excluded != self.exclude {
            return Err(format!("excludes {:?}, expected {:?}", self.model.excluded, self.exclude));
        }
        let before = self.model.granted;
        for step in 0..80 {
            self.model.schedule(&mut self.random);
            let request = self.ledger.request();
            // A release without an effect is sent a few times more.
            let rests = request.releases.is_empty() || step < 70;
            if !request.rows.is_empty() || !rests {
                return Err(format!("still sends changes: {request:?}"));
            }
            self.exchange()?;
            self.process_inbox(false);
        }
        match self.model.granted - before {
            0 => Ok(()),
            more => Err(format!("{more} granted without a want")),
        }
    }
}
