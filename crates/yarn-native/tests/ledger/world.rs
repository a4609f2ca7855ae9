//! A master that uses the ledger, and everything that can go wrong between it and the model.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use yarn_native::ledger::{
    Execution, Key, Ledger, LedgerRequest, Localities, Mutant, NodeLocality, RackLocality,
    ReplyCount, ReplyOutcome, Row, Want,
};
use yarn_native::types::Resource;

use crate::model::{HOSTS, Model, Rejection};
use crate::random::Random;

/// What may go wrong under one seed. Each seed has a random half of it.
#[derive(Debug, Default)]
struct Faults {
    lost_requests: bool,
    lost_replies: bool,
    restarts: bool,
    rejects: bool,
    preemption: bool,
    window: bool,
    /// The one who decides hears of replies late.
    lag: bool,
    /// What is wanted changes all the time.
    fickle: bool,
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
            lag: coin(),
            fickle: coin(),
            ends: coin(),
        }
    }
}

/// What one role should have in the end.
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
    /// Replies the decider has not heard of yet.
    inbox: VecDeque<(ReplyOutcome<u64>, Vec<u64>)>,
    seen: ReplyCount,
    exclude: BTreeSet<String>,
    /// The request whose answer has not come.
    unanswered: Option<LedgerRequest<u64>>,
    /// Whether anything happened since the last new request that may make lines change.
    stirred: bool,
    /// Replies since something was said about a key, or granted under it.
    silence: BTreeMap<Key, u32>,
    surplus: usize,
}

/// Runs one seed; says what went wrong.
pub fn run(seed: u64, mutant: Mutant) -> Result<(), String> {
    let mut random = Random::new(seed);
    let faults = match seed % 4 {
        // Nothing goes wrong, at most the decider hears late: then nothing may be wasted.
        0 => Faults { lag: random.one_in(2), ..Faults::default() },
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
        stirred: true,
        silence: BTreeMap::new(),
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
        return Err(format!("seed {seed}: {} wasted with nothing wrong", world.surplus));
    }
    world.calm().map_err(|why| format!("seed {seed}, calm: {why}"))
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

    /// Says what is still wanted, with what the decider knows.
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
        if self.faults.fickle && self.random.one_in(4) {
            self.change_mind();
        }
        if self.faults.ends && self.random.one_in(4) {
            self.end_one();
        }
        for _ in 0..self.random.below(3) {
            self.model.schedule(&mut self.random);
        }
        if self.faults.preemption && self.random.one_in(6) {
            self.model.preempt_unheard();
        }
        if self.faults.restarts && self.random.one_in(12) {
            self.restart();
        }
        self.exchange()?;
        self.hear(self.faults.lag);
        Ok(())
    }

    fn change_mind(&mut self) {
        self.stirred = true;
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
                // One that is held is not needed any more.
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
        self.stirred = true;
        // Nodes refuse what a ResourceManager before this one granted; the decider hears of it at once.
        for container in self.model.restart() {
            self.held.remove(&container);
            self.ledger.forget(&container);
            for (taken, _) in &mut self.inbox {
                taken.wanted.retain(|grant| grant.container != container);
            }
        }
        self.decide();
    }

    /// One request, and what becomes of it.
    fn exchange(&mut self) -> Result<(), String> {
        let request = self.ledger.request();
        if let Some(unanswered) = &self.unanswered
            && *unanswered != request
        {
            return Err("a request was changed before it was answered".into());
        }
        if self.unanswered.is_none() {
            // After a long silence everything about a key is said again, and rightly so.
            let early = |key: &Key| self.silence.get(key).is_none_or(|replies| *replies < 100);
            if !self.stirred && request.rows.iter().any(|row| early(&row.key)) {
                return Err(format!("lines sent without need: {:?}", request.rows));
            }
            self.stirred = false;
        }
        self.unanswered = Some(request.clone());
        if self.faults.lost_requests && self.random.one_in(5) {
            return Ok(());
        }
        let rejects = self.faults.rejects && !request.rows.is_empty() && self.random.one_in(6);
        let mut window = Random::new(self.random.next());
        let window = self.faults.window.then_some(&mut window);
        match self.model.allocate(&request, rejects, window) {
            Err(Rejection::NotRegistered) => {
                self.model.register();
                self.ledger.on_resync();
                self.unanswered = None;
                self.stirred = true;
            }
            Err(Rejection::Rejected) => {
                self.ledger.on_rejected();
                self.unanswered = None;
                self.stirred = true;
            }
            Ok(_) if self.faults.lost_replies && self.random.one_in(5) => {}
            Ok(reply) => {
                let completed = reply.completed.clone();
                self.stirred |= !reply.granted.is_empty();
                let granted = reply.granted.iter().map(|grant| grant.key);
                let told = request.rows.iter().map(|row| row.key);
                for key in granted.chain(told) {
                    self.silence.insert(key, 0);
                }
                self.silence.values_mut().for_each(|replies| *replies += 1);
                let taken = self.ledger.on_reply(reply).map_err(|error| error.to_string())?;
                self.check_kinds(&request, &taken)?;
                self.surplus += taken.surplus.len();
                self.unanswered = None;
                self.inbox.push_back((taken, completed));
            }
        }
        Ok(())
    }

    /// What comes back on a request for larger containers is not too small for it.
    fn check_kinds(
        &self,
        request: &LedgerRequest<u64>,
        taken: &ReplyOutcome<u64>,
    ) -> Result<(), String> {
        for grant in &taken.wanted {
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

    /// The decider hears of replies, all of them or some, and decides.
    fn hear(&mut self, lag: bool) {
        while let Some((taken, completed)) = self.inbox.pop_front() {
            if lag && self.random.one_in(2) {
                self.inbox.push_front((taken, completed));
                break;
            }
            self.seen = taken.reply_count;
            // What it hears late may be outdated, and then it wants something else than a moment ago.
            self.stirred |= lag;
            for grant in taken.wanted {
                self.held.insert(grant.container, grant.key);
                if let Some(container) = self.model.containers.get_mut(&grant.container) {
                    container.started = true;
                }
            }
            for container in completed {
                self.stirred |= self.held.remove(&container).is_some();
            }
            self.shed();
            self.decide();
        }
    }

    /// Gives back what is held beyond the target: it may have been lowered in the meantime.
    fn shed(&mut self) {
        for role in &self.roles {
            let mine = self.held.iter().filter(|(_, key)| **key == role.key);
            let extra: Vec<u64> = mine.map(|(id, _)| *id).skip(role.target as usize).collect();
            for container in extra {
                self.held.remove(&container);
                self.ledger.release(container);
            }
        }
    }

    /// The ResourceManager owes exactly what is wanted, when there is nothing more to be said.
    fn check_debts(&self) -> Result<(), String> {
        for role in &self.roles {
            let has = self.held.values().filter(|key| **key == role.key).count() as u32;
            let (wanted, owed) = (role.target - has, self.model.owes(role.key));
            if wanted != owed {
                return Err(format!("{:?}: {wanted} wanted, {owed} owed", role.key));
            }
        }
        Ok(())
    }

    /// Nothing goes wrong any more: everything wanted must come, and nothing else may stay.
    fn calm(&mut self) -> Result<(), String> {
        self.faults = Faults::default();
        // Nobody can satisfy a strict wish for hosts that are to be avoided, nor one where all are.
        if self.roles.iter().any(|role| role.localities.strict) {
            self.exclude.clear();
        }
        self.exclude.remove("a");
        self.hear(false);
        self.stirred = true;
        self.decide();
        for beat in 0..400 {
            self.model.schedule(&mut self.random);
            self.exchange()?;
            self.hear(false);
            if beat > 2 && !self.ledger.has_changes() {
                self.check_debts()?;
                let over = self.ledger.outstanding() == 0 && self.model.outstanding() == 0;
                if over && self.inbox.is_empty() && !self.stirred {
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
            return Err(format!("avoids {:?}, should {:?}", self.model.excluded, self.exclude));
        }
        let before = self.model.granted;
        for beat in 0..80 {
            self.model.schedule(&mut self.random);
            let request = self.ledger.request();
            // A release that nobody answers is said a few times more.
            let rests = request.releases.is_empty() || beat < 70;
            if !request.rows.is_empty() || !rests {
                return Err(format!("does not come to rest: {request:?}"));
            }
            self.exchange()?;
            self.hear(false);
        }
        match self.model.granted - before {
            0 => Ok(()),
            more => Err(format!("{more} granted to nobody")),
        }
    }
}
