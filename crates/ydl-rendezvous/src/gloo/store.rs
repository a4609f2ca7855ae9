//! The protocol itself: requests in, answers out.

use std::collections::{BTreeMap, BTreeSet};

use ydl_core::TaskId;

use super::{
    http::{self, BODY_MAX, HEAD_MAX, Request, Status, Stop, Verb},
    news::{Limits, News},
    notice::{Change, Worker},
    scopes::Scopes,
    telling::Tellings,
    world::{OUT, Place, World, number},
};
use crate::{Link, Peer, Protocol, Reaction, Refusal};

/// What is known of a link.
#[derive(Debug)]
struct Talk {
    task: TaskId,
    /// The request has at least so many bytes.
    least: usize,
}

/// Horovod's HTTP store, for one round. An elastic job has one store for all its worlds.
#[derive(Debug)]
pub struct Store {
    world: World,
    scopes: Scopes,
    /// Where the members of this world listen.
    workers: BTreeMap<Place, Worker>,
    /// Who waits for the next world.
    asking: BTreeMap<Link, Place>,
    limits: Limits,
    tellings: Tellings,
    links: BTreeMap<Link, Talk>,
}

const ADDRESSES: &str = "worker_addresses";
const NUMBERS: &str = "rank_and_size";

impl Store {
    /// An empty store for that world.
    pub fn new(world: World, limits: Limits) -> Store {
        Store {
            scopes: Scopes::new(limits.stored(world.members().len())),
            world,
            limits,
            workers: BTreeMap::new(),
            asking: BTreeMap::new(),
            tellings: Tellings::default(),
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
    pub fn asking(&self) -> impl Iterator<Item = &Place> {
        self.asking.values()
    }

    /// Where a member of this world listens.
    pub fn worker(&self, place: &Place) -> Option<&Worker> {
        self.workers.get(place)
    }

    /// How often members were told something, once none is being told any more.
    pub(super) fn told(&self) -> Option<u64> {
        (!self.tellings.is_telling()).then(|| self.tellings.count())
    }

    /// Something that was decided elsewhere. It is for whoever decided to keep it, in its place among the messages.
    pub fn hear(&mut self, news: News, reaction: &mut Reaction) {
        match news {
            News::World(world) => self.begin(world, reaction),
            News::Changed(change, time) => self.tell(change, time, reaction),
        }
    }

    fn begin(&mut self, world: World, reaction: &mut Reaction) {
        self.world = world;
        self.scopes = Scopes::new(self.limits.stored(self.world.members().len()));
        let world = &self.world;
        self.workers.retain(|place, _| world.member(place).is_some());
        let slots = self.world.slots();
        let numbers = |(link, place): (Link, Place)| match slots.get(&place) {
            Some(slot) => (link, slot.to_string()),
            None => (link, OUT.to_owned()),
        };
        let asking = std::mem::take(&mut self.asking).into_iter();
        let answers: Vec<(Link, String)> = asking.map(numbers).collect();
        for (link, numbers) in answers {
            self.end(link, http::answer(Status::Ok, numbers.as_bytes()), reaction);
        }
    }

    fn tell(&mut self, change: Change, time: i32, reaction: &mut Reaction) {
        let Some(first) = self.world.members().first() else {
            return;
        };
        let worker = self.workers.get(&first.place);
        let Some((worker, port)) = worker.and_then(|worker| Some((worker, worker.port()?))) else {
            reaction.say(format!(
                "{} was not told that the hosts have changed: it has not said where it listens",
                first.task
            ));
            return;
        };
        let message = worker.changed(time, change);
        self.tellings.begin((worker, port), &first.task, message, reaction);
    }

    /// The answer to a request, and the end of its link: that is how Horovod's own server does it.
    fn end(&mut self, link: Link, answer: Vec<u8>, reaction: &mut Reaction) {
        reaction.send(link, answer);
        reaction.close(link);
        self.links.remove(&link);
    }

    fn answer(
        &mut self,
        link: Link,
        request: &Request<'_>,
        reaction: &mut Reaction,
    ) -> Result<(), Refusal> {
        let mut parts = request.path[1..].split('/');
        let (scope, key) = match (request.verb, parts.next(), parts.next(), parts.next()) {
            (Verb::Other, ..) => {
                self.end(link, http::answer(Status::NotImplemented, b""), reaction);
                return Ok(());
            }
            (_, Some(scope), Some(key), None) => (scope, key),
            (_, _, _, Some(_)) => {
                return Err(Refusal::new("a path has more than a scope and a key"));
            }
            _ => {
                self.end(link, http::answer(Status::BadRequest, b""), reaction);
                return Ok(());
            }
        };
        let (status, body) = match (request.verb, scope) {
            (Verb::Get, NUMBERS) => return self.ask(link, key, reaction),
            (Verb::Get, _) => match self.scopes.value(scope, key) {
                Some(value) => (Status::Ok, value.to_vec()),
                None => (Status::NotFound, Vec::new()),
            },
            (Verb::Put, ADDRESSES) => {
                self.listens(link, key, request.body)?;
                reaction.keep();
                (Status::Ok, Vec::new())
            }
            (Verb::Put, _) => {
                self.is_own(link, scope, key)?;
                self.scopes.put(scope, key, request.body)?;
                reaction.keep();
                (Status::Ok, Vec::new())
            }
            (Verb::Delete | Verb::Other, _) => {
                self.is_own(link, scope, key)?;
                let meeting = self.world.meeting(scope).len();
                if self.scopes.done(scope, key, meeting) {
                    reaction.keep();
                }
                (Status::Ok, Vec::new())
            }
        };
        self.end(link, http::answer(status, &body), reaction);
        Ok(())
    }

    /// Whose process speaks on a link.
    fn speaks(&self, link: Link) -> Option<&TaskId> {
        self.links.get(&link).map(|talk| &talk.task)
    }

    /// Nobody says anything for another member of a meeting: `3` and `rank_3` are for number 3 to say.
    fn is_own(&self, link: Link, scope: &str, key: &str) -> Result<(), Refusal> {
        let meeting = self.world.meeting(scope);
        let number = number(key.strip_prefix("rank_").unwrap_or(key));
        let owner = number.and_then(|number| meeting.get(number as usize));
        match (owner, self.speaks(link)) {
            (Some(owner), Some(task)) if owner.task != *task => {
                Err(Refusal::new(format!("it spoke for `{}`", owner.task)))
            }
            _ => Ok(()),
        }
    }

    /// A place, which must be the speaker's own if it is one of this world.
    fn place(&self, link: Link, key: &str) -> Result<Place, Refusal> {
        let place: Place = key.parse().map_err(Refusal)?;
        match (self.world.member(&place), self.speaks(link)) {
            (Some(owner), Some(task)) if owner.task != *task => {
                Err(Refusal::new(format!("it spoke for `{}`", owner.task)))
            }
            _ => Ok(place),
        }
    }

    /// The numbers of whoever asks are those in the next world, and are told when there is one. What was asked is kept:
    /// whoever asks again after being told asks for the one after.
    fn ask(&mut self, link: Link, key: &str, reaction: &mut Reaction) -> Result<(), Refusal> {
        let place = self.place(link, key)?;
        if self.asking.len() >= self.limits.asking {
            return Err(Refusal::new(format!(
                "`{}` others ask for their numbers already",
                self.limits.asking
            )));
        }
        reaction.keep();
        self.asking.insert(link, place);
        Ok(())
    }

    fn listens(&mut self, link: Link, key: &str, put: &[u8]) -> Result<(), Refusal> {
        let place = self.place(link, key)?;
        if self.world.member(&place).is_none() {
            return Err(Refusal::new("it has no place in this world"));
        }
        let worker = Worker::read(put)
            .ok_or_else(|| Refusal::new("where it listens was not said as workers say it"))?;
        self.workers.insert(place, worker);
        Ok(())
    }
}

impl Protocol for Store {
    fn message_max(&self) -> usize {
        HEAD_MAX + BODY_MAX
    }

    fn open(&mut self, link: Link, peer: &Peer, reaction: &mut Reaction) {
        if !self.tellings.open(link, reaction) {
            let task = peer.task.clone();
            self.links.insert(link, Talk { task, least: 0 });
        }
    }

    fn take(
        &mut self,
        link: Link,
        bytes: &[u8],
        reaction: &mut Reaction,
    ) -> Result<Option<usize>, Refusal> {
        if let Some(taken) = self.tellings.take(link, bytes, reaction) {
            return taken;
        }
        if bytes.is_empty() {
            return Ok(None);
        }
        if self.asking.contains_key(&link) {
            return Err(Refusal::new("a second request came before the first was answered"));
        }
        let talk =
            self.links.get_mut(&link).ok_or_else(|| Refusal::new("it was answered already"))?;
        if bytes.len() < talk.least {
            return Ok(None);
        }
        match http::read(bytes) {
            Ok(request) => {
                self.answer(link, &request, reaction)?;
                Ok(Some(request.length))
            }
            Err(Stop::Short(least)) => {
                talk.least = least;
                Ok(None)
            }
            Err(Stop::Wrong(refusal)) => Err(refusal),
        }
    }

    fn close(&mut self, link: Link, reaction: &mut Reaction) {
        self.links.remove(&link);
        if let Some(task) = self.tellings.close(link) {
            reaction.keep();
            reaction.say(format!(
                "{task} was not told that the hosts have changed: it does not answer"
            ));
        }
        if self.asking.remove(&link).is_some() {
            reaction.keep();
        }
    }

    fn ended(&mut self, peer: &Peer, _reaction: &mut Reaction) {
        self.tellings.ended(&peer.task);
        let world = &self.world;
        self.workers
            .retain(|place, _| world.member(place).is_some_and(|member| member.task != peer.task));
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
            let asking: BTreeSet<&Place> = self.asking().collect();
            for member in self.world.members() {
                if !asking.contains(&member.place) {
                    miss(&member.task);
                }
            }
        }
        missing
    }
}
