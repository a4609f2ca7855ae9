//! The protocol: handles requests and responds.

use std::collections::{BTreeMap, BTreeSet};

use ydl_core::TaskId;

use super::{
    http::{self, BODY_MAX, HEAD_MAX, HttpMethod, HttpParseError, HttpRequest, HttpStatus},
    limits::{GlooLimits, WorldEvent},
    notification::{HostChange, NotificationEndpoint},
    outbox::Outbox,
    scopes::Scopes,
    world::{NOT_IN_WORLD, ProcessSlot, World, parse_rank},
};
use crate::{Effects, LinkId, Peer, Protocol, Rejection};

/// State of a link.
#[derive(Debug)]
struct GlooLink {
    task: TaskId,
    /// Minimum length of the request.
    needed: usize,
}

/// Horovod's HTTP store, for one round. An elastic job has one store for all its worlds.
#[derive(Debug)]
pub struct GlooStore {
    world: World,
    scopes: Scopes,
    /// Notification endpoints of the members.
    endpoints: BTreeMap<ProcessSlot, NotificationEndpoint>,
    /// Pending rank requests.
    rank_requests: BTreeMap<LinkId, ProcessSlot>,
    limits: GlooLimits,
    outbox: Outbox,
    links: BTreeMap<LinkId, GlooLink>,
}

const ADDRESSES: &str = "worker_addresses";
const RANKS: &str = "rank_and_size";

impl GlooStore {
    /// Creates an empty store for a world.
    pub fn new(world: World, limits: GlooLimits) -> GlooStore {
        GlooStore {
            scopes: Scopes::new(limits.stored_bytes_for(world.members().len())),
            world,
            limits,
            endpoints: BTreeMap::new(),
            rank_requests: BTreeMap::new(),
            outbox: Outbox::default(),
            links: BTreeMap::new(),
        }
    }

    /// Returns the memory in use.
    pub fn bytes(&self) -> usize {
        self.scopes.bytes()
    }

    /// Returns the current world.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Returns the processes that have requested their ranks in the next world.
    pub fn rank_requests(&self) -> impl Iterator<Item = &ProcessSlot> {
        self.rank_requests.values()
    }

    /// Returns the notification endpoint of a member.
    pub fn endpoint(&self, slot: &ProcessSlot) -> Option<&NotificationEndpoint> {
        self.endpoints.get(slot)
    }

    /// Returns the number of notifications so far, or `None` while one is in progress.
    pub(super) fn sent_notifications(&self) -> Option<u64> {
        (!self.outbox.is_busy()).then(|| self.outbox.count())
    }

    /// Handles an event from the driver. The caller persists it, in order with the messages.
    pub fn handle(&mut self, event: WorldEvent, effects: &mut Effects) {
        match event {
            WorldEvent::Started(world) => self.start_world(world, effects),
            WorldEvent::HostsChanged(change, time) => self.notify(change, time, effects),
        }
    }

    fn start_world(&mut self, world: World, effects: &mut Effects) {
        self.world = world;
        self.scopes = Scopes::new(self.limits.stored_bytes_for(self.world.members().len()));
        let world = &self.world;
        self.endpoints.retain(|slot, _| world.member(slot).is_some());
        let rank_infos = self.world.rank_infos();
        let ranks = |(link, slot): (LinkId, ProcessSlot)| match rank_infos.get(&slot) {
            Some(slot) => (link, slot.to_string()),
            None => (link, NOT_IN_WORLD.to_owned()),
        };
        let requests = std::mem::take(&mut self.rank_requests).into_iter();
        let responses: Vec<(LinkId, String)> = requests.map(ranks).collect();
        for (link, ranks) in responses {
            self.respond(link, http::response(HttpStatus::Ok, ranks.as_bytes()), effects);
        }
    }

    fn notify(&mut self, change: HostChange, time: i32, effects: &mut Effects) {
        let Some(first) = self.world.members().first() else {
            return;
        };
        let endpoint = self.endpoints.get(&first.slot);
        let Some((endpoint, port)) =
            endpoint.and_then(|endpoint| Some((endpoint, endpoint.port()?)))
        else {
            effects.log(format!(
                "cannot notify {} of the host change: no notification address registered",
                first.task
            ));
            return;
        };
        let message = endpoint.hosts_changed(time, change);
        self.outbox.begin((endpoint, port), &first.task, message, effects);
    }

    /// Sends the response to a request and closes its link, as Horovod's server does.
    fn respond(&mut self, link: LinkId, answer: Vec<u8>, effects: &mut Effects) {
        effects.send(link, answer);
        effects.close(link);
        self.links.remove(&link);
    }

    fn execute(
        &mut self,
        link: LinkId,
        request: &HttpRequest<'_>,
        effects: &mut Effects,
    ) -> Result<(), Rejection> {
        let mut parts = request.path[1..].split('/');
        let (scope, key) = match (request.method, parts.next(), parts.next(), parts.next()) {
            (HttpMethod::Other, ..) => {
                self.respond(link, http::response(HttpStatus::NotImplemented, b""), effects);
                return Ok(());
            }
            (_, Some(scope), Some(key), None) => (scope, key),
            (_, _, _, Some(_)) => {
                return Err(Rejection::new("request path has more than a scope and a key"));
            }
            _ => {
                self.respond(link, http::response(HttpStatus::BadRequest, b""), effects);
                return Ok(());
            }
        };
        let (status, body) = match (request.method, scope) {
            (HttpMethod::Get, RANKS) => return self.request_ranks(link, key, effects),
            (HttpMethod::Get, _) => match self.scopes.value(scope, key) {
                Some(value) => (HttpStatus::Ok, value.to_vec()),
                None => (HttpStatus::NotFound, Vec::new()),
            },
            (HttpMethod::Put, ADDRESSES) => {
                self.register_endpoint(link, key, request.body)?;
                effects.persist();
                (HttpStatus::Ok, Vec::new())
            }
            (HttpMethod::Put, _) => {
                self.check_key_owner(link, scope, key)?;
                self.scopes.put(scope, key, request.body)?;
                effects.persist();
                (HttpStatus::Ok, Vec::new())
            }
            (HttpMethod::Delete | HttpMethod::Other, _) => {
                self.check_key_owner(link, scope, key)?;
                let participants = self.world.participants(scope).len();
                if self.scopes.delete(scope, key, participants) {
                    effects.persist();
                }
                (HttpStatus::Ok, Vec::new())
            }
        };
        self.respond(link, http::response(status, &body), effects);
        Ok(())
    }

    /// Returns the task of a link.
    fn task_of(&self, link: LinkId) -> Option<&TaskId> {
        self.links.get(&link).map(|state| &state.task)
    }

    /// Checks that a key of a scope belongs to the client: `3` and `rank_3` belong to participant 3.
    fn check_key_owner(&self, link: LinkId, scope: &str, key: &str) -> Result<(), Rejection> {
        let participants = self.world.participants(scope);
        let number = parse_rank(key.strip_prefix("rank_").unwrap_or(key));
        let owner = number.and_then(|number| participants.get(number as usize));
        match (owner, self.task_of(link)) {
            (Some(owner), Some(task)) if owner.task != *task => {
                Err(Rejection::new(format!("key belongs to `{}`", owner.task)))
            }
            _ => Ok(()),
        }
    }

    /// Parses a slot. One of this world must belong to the client.
    fn own_slot(&self, link: LinkId, key: &str) -> Result<ProcessSlot, Rejection> {
        let slot: ProcessSlot = key.parse().map_err(Rejection)?;
        match (self.world.member(&slot), self.task_of(link)) {
            (Some(owner), Some(task)) if owner.task != *task => {
                Err(Rejection::new(format!("key belongs to `{}`", owner.task)))
            }
            _ => Ok(slot),
        }
    }

    /// Handles a request for the ranks in the next world. The response is sent when that world starts. The request is
    /// persisted: a later one of the same process is for the world after.
    fn request_ranks(
        &mut self,
        link: LinkId,
        key: &str,
        effects: &mut Effects,
    ) -> Result<(), Rejection> {
        let slot = self.own_slot(link, key)?;
        if self.rank_requests.len() >= self.limits.rank_requests {
            return Err(Rejection::new(format!(
                "more than `{}` pending rank requests",
                self.limits.rank_requests
            )));
        }
        effects.persist();
        self.rank_requests.insert(link, slot);
        Ok(())
    }

    fn register_endpoint(
        &mut self,
        link: LinkId,
        key: &str,
        value: &[u8],
    ) -> Result<(), Rejection> {
        let slot = self.own_slot(link, key)?;
        if self.world.member(&slot).is_none() {
            return Err(Rejection::new("not a member of this world"));
        }
        let endpoint = NotificationEndpoint::parse(value)
            .ok_or_else(|| Rejection::new("invalid notification address"))?;
        self.endpoints.insert(slot, endpoint);
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
            self.links.insert(link, GlooLink { task, needed: 0 });
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
        if self.rank_requests.contains_key(&link) {
            return Err(Rejection::new("second request before the response to the first"));
        }
        let state = self
            .links
            .get_mut(&link)
            .ok_or_else(|| Rejection::new("connection already has its response"))?;
        if bytes.len() < state.needed {
            return Ok(None);
        }
        match http::parse(bytes) {
            Ok(request) => {
                self.execute(link, &request, effects)?;
                Ok(Some(request.length))
            }
            Err(HttpParseError::Incomplete(needed)) => {
                state.needed = needed;
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
        if self.rank_requests.remove(&link).is_some() {
            effects.persist();
        }
    }

    fn attempt_ended(&mut self, peer: &Peer, _effects: &mut Effects) {
        self.outbox.task_ended(&peer.task);
        let world = &self.world;
        self.endpoints
            .retain(|slot, _| world.member(slot).is_some_and(|member| member.task != peer.task));
    }

    fn missing(&self) -> Vec<TaskId> {
        let mut missing: Vec<TaskId> = Vec::new();
        let mut seen = BTreeSet::new();
        let mut add = |task: &TaskId| {
            if seen.insert(task.clone()) {
                missing.push(task.clone());
            }
        };
        for scope in self.scopes.names() {
            for (number, member) in self.world.participants(scope).iter().enumerate() {
                if self.scopes.value(scope, &number.to_string()).is_none() {
                    add(&member.task);
                }
            }
        }
        if !self.rank_requests.is_empty() {
            let requested: BTreeSet<&ProcessSlot> = self.rank_requests().collect();
            for member in self.world.members() {
                if !requested.contains(&member.slot) {
                    add(&member.task);
                }
            }
        }
        missing
    }
}
