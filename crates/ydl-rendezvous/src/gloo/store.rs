//! The protocol itself: requests in, answers out.

use std::collections::{BTreeMap, BTreeSet};

use ydl_core::TaskId;

use super::{
    http::{self, BODY_MAX, HEAD_MAX, HttpMethod, HttpParseError, HttpRequest, HttpStatus},
    limits::{GlooLimits, WorldEvent},
    notification::{HostChange, NotificationEndpoint},
    outbox::Outbox,
    scopes::Scopes,
    world::{NOT_IN_WORLD, ProcessSlot, World, number},
};
use crate::{Effects, LinkId, Peer, Protocol, Rejection};

/// What is known of a link.
#[derive(Debug)]
struct GlooLink {
    task: TaskId,
    /// The request has at least so many bytes.
    least: usize,
}

/// Horovod's HTTP store, for one round. An elastic job has one store for all its worlds.
#[derive(Debug)]
pub struct GlooStore {
    world: World,
    scopes: Scopes,
    /// Where the members of this world listen.
    workers: BTreeMap<ProcessSlot, NotificationEndpoint>,
    /// Who waits for the next world.
    asking: BTreeMap<LinkId, ProcessSlot>,
    limits: GlooLimits,
    outbox: Outbox,
    links: BTreeMap<LinkId, GlooLink>,
}

const ADDRESSES: &str = "worker_addresses";
const NUMBERS: &str = "rank_and_size";

impl GlooStore {
    /// An empty store for that world.
    pub fn new(world: World, limits: GlooLimits) -> GlooStore {
        GlooStore {
            scopes: Scopes::new(limits.stored(world.members().len())),
            world,
            limits,
            workers: BTreeMap::new(),
            asking: BTreeMap::new(),
            outbox: Outbox::default(),
            links: BTreeMap::new(),
        }
    }

    /// How much memory it counts as its own.
    pub fn bytes(&self) -> usize {
        self.scopes.bytes()
    }

    /// The world of now.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Who has asked for its numbers in the next world.
    pub fn asking(&self) -> impl Iterator<Item = &ProcessSlot> {
        self.asking.values()
    }

    /// Where a member of this world listens.
    pub fn worker(&self, slot: &ProcessSlot) -> Option<&NotificationEndpoint> {
        self.workers.get(slot)
    }

    /// How often members were told something, once none is being told any more.
    pub(super) fn told(&self) -> Option<u64> {
        (!self.outbox.is_telling()).then(|| self.outbox.count())
    }

    /// Something that was decided elsewhere. It is for whoever decided to keep it, in its slot among the messages.
    pub fn hear(&mut self, news: WorldEvent, effects: &mut Effects) {
        match news {
            WorldEvent::Started(world) => self.begin(world, effects),
            WorldEvent::HostsChanged(change, time) => self.tell(change, time, effects),
        }
    }

    fn begin(&mut self, world: World, effects: &mut Effects) {
        self.world = world;
        self.scopes = Scopes::new(self.limits.stored(self.world.members().len()));
        let world = &self.world;
        self.workers.retain(|slot, _| world.member(slot).is_some());
        let rank_infos = self.world.rank_infos();
        let numbers = |(link, slot): (LinkId, ProcessSlot)| match rank_infos.get(&slot) {
            Some(slot) => (link, slot.to_string()),
            None => (link, NOT_IN_WORLD.to_owned()),
        };
        let asking = std::mem::take(&mut self.asking).into_iter();
        let answers: Vec<(LinkId, String)> = asking.map(numbers).collect();
        for (link, numbers) in answers {
            self.end(link, http::answer(HttpStatus::Ok, numbers.as_bytes()), effects);
        }
    }

    fn tell(&mut self, change: HostChange, time: i32, effects: &mut Effects) {
        let Some(first) = self.world.members().first() else {
            return;
        };
        let worker = self.workers.get(&first.slot);
        let Some((worker, port)) = worker.and_then(|worker| Some((worker, worker.port()?))) else {
            effects.log(format!(
                "cannot notify {} of the host change: no notification address registered",
                first.task
            ));
            return;
        };
        let message = worker.changed(time, change);
        self.outbox.begin((worker, port), &first.task, message, effects);
    }

    /// The answer to a request, and the end of its link: that is how Horovod's own server does it.
    fn end(&mut self, link: LinkId, answer: Vec<u8>, effects: &mut Effects) {
        effects.send(link, answer);
        effects.close(link);
        self.links.remove(&link);
    }

    fn answer(
        &mut self,
        link: LinkId,
        request: &HttpRequest<'_>,
        effects: &mut Effects,
    ) -> Result<(), Rejection> {
        let mut parts = request.path[1..].split('/');
        let (scope, key) = match (request.method, parts.next(), parts.next(), parts.next()) {
            (HttpMethod::Other, ..) => {
                self.end(link, http::answer(HttpStatus::NotImplemented, b""), effects);
                return Ok(());
            }
            (_, Some(scope), Some(key), None) => (scope, key),
            (_, _, _, Some(_)) => {
                return Err(Rejection::new("request path has more than a scope and a key"));
            }
            _ => {
                self.end(link, http::answer(HttpStatus::BadRequest, b""), effects);
                return Ok(());
            }
        };
        let (status, body) = match (request.method, scope) {
            (HttpMethod::Get, NUMBERS) => return self.ask(link, key, effects),
            (HttpMethod::Get, _) => match self.scopes.value(scope, key) {
                Some(value) => (HttpStatus::Ok, value.to_vec()),
                None => (HttpStatus::NotFound, Vec::new()),
            },
            (HttpMethod::Put, ADDRESSES) => {
                self.listens(link, key, request.body)?;
                effects.persist();
                (HttpStatus::Ok, Vec::new())
            }
            (HttpMethod::Put, _) => {
                self.is_own(link, scope, key)?;
                self.scopes.put(scope, key, request.body)?;
                effects.persist();
                (HttpStatus::Ok, Vec::new())
            }
            (HttpMethod::Delete | HttpMethod::Other, _) => {
                self.is_own(link, scope, key)?;
                let meeting = self.world.meeting(scope).len();
                if self.scopes.done(scope, key, meeting) {
                    effects.persist();
                }
                (HttpStatus::Ok, Vec::new())
            }
        };
        self.end(link, http::answer(status, &body), effects);
        Ok(())
    }

    /// Whose process speaks on a link.
    fn speaks(&self, link: LinkId) -> Option<&TaskId> {
        self.links.get(&link).map(|talk| &talk.task)
    }

    /// Nobody says anything for another member of a meeting: `3` and `rank_3` are for number 3 to say.
    fn is_own(&self, link: LinkId, scope: &str, key: &str) -> Result<(), Rejection> {
        let meeting = self.world.meeting(scope);
        let number = number(key.strip_prefix("rank_").unwrap_or(key));
        let owner = number.and_then(|number| meeting.get(number as usize));
        match (owner, self.speaks(link)) {
            (Some(owner), Some(task)) if owner.task != *task => {
                Err(Rejection::new(format!("key belongs to `{}`", owner.task)))
            }
            _ => Ok(()),
        }
    }

    /// A slot, which must be the speaker's own if it is one of this world.
    fn slot(&self, link: LinkId, key: &str) -> Result<ProcessSlot, Rejection> {
        let slot: ProcessSlot = key.parse().map_err(Rejection)?;
        match (self.world.member(&slot), self.speaks(link)) {
            (Some(owner), Some(task)) if owner.task != *task => {
                Err(Rejection::new(format!("key belongs to `{}`", owner.task)))
            }
            _ => Ok(slot),
        }
    }

    /// The numbers of whoever asks are those in the next world, and are told when there is one. What was asked is kept:
    /// whoever asks again after being told asks for the one after.
    fn ask(&mut self, link: LinkId, key: &str, effects: &mut Effects) -> Result<(), Rejection> {
        let slot = self.slot(link, key)?;
        if self.asking.len() >= self.limits.asking {
            return Err(Rejection::new(format!(
                "more than `{}` pending rank requests",
                self.limits.asking
            )));
        }
        effects.persist();
        self.asking.insert(link, slot);
        Ok(())
    }

    fn listens(&mut self, link: LinkId, key: &str, put: &[u8]) -> Result<(), Rejection> {
        let slot = self.slot(link, key)?;
        if self.world.member(&slot).is_none() {
            return Err(Rejection::new("not a member of this world"));
        }
        let worker = NotificationEndpoint::read(put)
            .ok_or_else(|| Rejection::new("invalid notification address"))?;
        self.workers.insert(slot, worker);
        Ok(())
    }
}

impl Protocol for GlooStore {
    fn max_message_len(&self) -> usize {
        HEAD_MAX + BODY_MAX
    }

    fn open(&mut self, link: LinkId, peer: &Peer, effects: &mut Effects) {
        if !self.outbox.open(link, effects) {
            let task = peer.task.clone();
            self.links.insert(link, GlooLink { task, least: 0 });
        }
    }

    fn receive(
        &mut self,
        link: LinkId,
        bytes: &[u8],
        effects: &mut Effects,
    ) -> Result<Option<usize>, Rejection> {
        if let Some(taken) = self.outbox.receive(link, bytes, effects) {
            return taken;
        }
        if bytes.is_empty() {
            return Ok(None);
        }
        if self.asking.contains_key(&link) {
            return Err(Rejection::new("second request before the response to the first"));
        }
        let talk = self
            .links
            .get_mut(&link)
            .ok_or_else(|| Rejection::new("connection already has its response"))?;
        if bytes.len() < talk.least {
            return Ok(None);
        }
        match http::read(bytes) {
            Ok(request) => {
                self.answer(link, &request, effects)?;
                Ok(Some(request.length))
            }
            Err(HttpParseError::Incomplete(least)) => {
                talk.least = least;
                Ok(None)
            }
            Err(HttpParseError::Invalid(rejection)) => Err(rejection),
        }
    }

    fn close(&mut self, link: LinkId, effects: &mut Effects) {
        self.links.remove(&link);
        if let Some(task) = self.outbox.close(link) {
            effects.persist();
            effects.log(format!("cannot notify {task} of the host change: no reply"));
        }
        if self.asking.remove(&link).is_some() {
            effects.persist();
        }
    }

    fn attempt_ended(&mut self, peer: &Peer, _reaction: &mut Effects) {
        self.outbox.attempt_ended(&peer.task);
        let world = &self.world;
        self.workers
            .retain(|slot, _| world.member(slot).is_some_and(|member| member.task != peer.task));
    }

    fn missing(&self) -> Vec<TaskId> {
        let mut missing: Vec<TaskId> = Vec::new();
        let mut named = BTreeSet::new();
        let mut miss = |task: &TaskId| {
            if named.insert(task.clone()) {
                missing.push(task.clone());
            }
        };
        for scope in self.scopes.names() {
            for (number, member) in self.world.meeting(scope).iter().enumerate() {
                if self.scopes.value(scope, &number.to_string()).is_none() {
                    miss(&member.task);
                }
            }
        }
        if !self.asking.is_empty() {
            let asking: BTreeSet<&ProcessSlot> = self.asking().collect();
            for member in self.world.members() {
                if !asking.contains(&member.slot) {
                    miss(&member.task);
                }
            }
        }
        missing
    }
}
