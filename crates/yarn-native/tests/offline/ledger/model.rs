//! Model of a ResourceManager as seen by one master: rows are replaced and counted down, the last
//! reply is repeated for a repeated request, and a restart forgets everything but running
//! containers.

use std::collections::{BTreeMap, BTreeSet};

use yarn_native::ledger::{Execution, Grant, Key, LedgerReply, LedgerRequest, Row};
use yarn_native::types::Resource;

use crate::random::Random;

pub const HOSTS: [(&str, &str); 6] =
    [("a", "/one"), ("b", "/one"), ("c", "/one"), ("d", "/two"), ("e", "/two"), ("f", "/two")];

/// Reason why a request failed.
#[derive(Debug, PartialEq, Eq)]
pub enum RequestError {
    NotRegistered,
    Rejected,
}

#[derive(Clone, Debug)]
struct AskState {
    resource: Resource,
    rows: BTreeMap<String, (u32, bool)>,
}

#[derive(Clone, Debug)]
pub struct Container {
    pub key: Key,
    pub host: &'static str,
    pub resource: Resource,
    pub opportunistic: bool,
    /// Rows it was counted against, restored if it is preempted before the master acquires it.
    lines: Vec<String>,
    /// True once a reply has carried it.
    pub acquired: bool,
    /// True if its node runs it: only then does it survive a restart.
    pub started: bool,
}

#[derive(Debug)]
pub struct Model {
    registered: bool,
    response_id: i32,
    /// Last reply, repeated for a request with the response id before it.
    last: Option<LedgerReply<u64>>,
    guaranteed: BTreeMap<Key, AskState>,
    opportunistic: BTreeMap<(Key, Resource), u32>,
    pub containers: BTreeMap<u64, Container>,
    fresh: Vec<u64>,
    ended: Vec<u64>,
    pub excluded: BTreeSet<String>,
    next: u64,
    /// True if the rows of hosts and racks are dropped when nothing is left to grant. Versions
    /// differ.
    drops_rows: bool,
    pub granted: usize,
}

impl Model {
    pub fn new(random: &mut Random) -> Self {
        Self {
            registered: true,
            response_id: 0,
            last: None,
            guaranteed: BTreeMap::new(),
            opportunistic: BTreeMap::new(),
            containers: BTreeMap::new(),
            fresh: Vec::new(),
            ended: Vec::new(),
            excluded: BTreeSet::new(),
            next: 1,
            drops_rows: random.one_in(2),
            granted: 0,
        }
    }

    pub fn register(&mut self) {
        self.registered = true;
        self.response_id = 0;
        self.last = None;
    }

    /// Processes a request. With `window`, grants may be made between the asks and the reply.
    pub fn allocate(
        &mut self,
        request: &LedgerRequest<u64>,
        rejects: bool,
        window: Option<&mut Random>,
    ) -> Result<LedgerReply<u64>, RequestError> {
        if !self.registered {
            return Err(RequestError::NotRegistered);
        }
        let following = (request.response_id + 1) & i32::MAX;
        if let Some(last) = &self.last
            && following == last.response_id
        {
            return Ok(last.clone());
        }
        assert_eq!(request.response_id, self.response_id, "wrong response id");
        if rejects {
            return Err(RequestError::Rejected);
        }
        for row in &request.rows {
            self.ask(row);
        }
        for container in &request.releases {
            self.end(*container);
        }
        self.excluded.extend(request.exclude.iter().cloned());
        self.excluded.retain(|host| !request.readmit.contains(host));
        if let Some(random) = window {
            self.schedule(random);
        }
        let granted: Vec<Grant<u64>> = std::mem::take(&mut self.fresh)
            .into_iter()
            .filter_map(|id| {
                let container = self.containers.get_mut(&id)?;
                container.acquired = true;
                Some(Grant {
                    container: id,
                    key: container.key,
                    host: container.host.to_owned(),
                    resource: container.resource.clone(),
                    opportunistic: container.opportunistic,
                })
            })
            .collect();
        self.response_id = following;
        let reply = LedgerReply {
            response_id: following,
            granted,
            completed: std::mem::take(&mut self.ended),
            rejected: vec![],
        };
        self.last = Some(reply.clone());
        Ok(reply)
    }

    fn ask(&mut self, row: &Row) {
        if let Execution::Opportunistic { .. } = row.execution {
            if row.name == "*" {
                let lane = (row.key, row.resource.clone());
                self.opportunistic.insert(lane, row.count);
            }
            return;
        }
        let asked = self
            .guaranteed
            .entry(row.key)
            .or_insert_with(|| AskState { resource: row.resource.clone(), rows: BTreeMap::new() });
        if row.count == 0 {
            asked.rows.remove(&row.name);
        } else {
            asked.resource = row.resource.clone();
            asked.rows.insert(row.name.clone(), (row.count, row.relax));
        }
        self.drop_finished(row.key);
    }

    /// Drops the other rows when nothing is left to grant, if this version does.
    fn drop_finished(&mut self, key: Key) {
        let over = |asked: &AskState| !asked.rows.contains_key("*");
        if self.drops_rows && self.guaranteed.get(&key).is_some_and(over) {
            self.guaranteed.remove(&key);
        }
    }

    /// Grants some of the asks.
    pub fn schedule(&mut self, random: &mut Random) {
        let keys: Vec<Key> = self.guaranteed.keys().copied().collect();
        for key in keys {
            for _ in 0..random.below(4) {
                let (host, rack) = *random.pick(&HOSTS);
                self.grant(key, host, rack);
            }
        }
        let lanes: Vec<(Key, Resource)> = self.opportunistic.keys().cloned().collect();
        for lane in lanes {
            let (host, _) = *random.pick(&HOSTS);
            let Some(count) = self.opportunistic.get_mut(&lane).filter(|count| **count > 0) else {
                continue;
            };
            if !self.excluded.contains(host) {
                *count -= 1;
                self.add(lane.0, host, lane.1, true, Vec::new());
            }
        }
    }

    fn grant(&mut self, key: Key, host: &'static str, rack: &'static str) {
        let Some(asked) = self.guaranteed.get_mut(&key) else {
            return;
        };
        let line = |name: &str| asked.rows.get(name).copied().unwrap_or((0, false));
        let (anywhere, relax_anywhere) = line("*");
        if anywhere == 0 || self.excluded.contains(host) {
            return;
        }
        let (in_rack, relax_rack) = line(rack);
        let counted: &[&str] = if line(host).0 > 0 {
            &[host, rack, "*"]
        } else if in_rack > 0 && relax_rack {
            &[rack, "*"]
        } else if relax_anywhere {
            &["*"]
        } else {
            return;
        };
        for name in counted {
            if let Some((count, _)) = asked.rows.get_mut(*name) {
                *count = count.saturating_sub(1);
            }
        }
        asked.rows.retain(|_, (count, _)| *count > 0);
        let resource = asked.resource.clone();
        let lines = counted.iter().map(|name| (*name).to_owned()).collect();
        self.drop_finished(key);
        self.add(key, host, resource, false, lines);
    }

    fn add(
        &mut self,
        key: Key,
        host: &'static str,
        resource: Resource,
        opportunistic: bool,
        lines: Vec<String>,
    ) {
        let container = Container {
            key,
            host,
            resource,
            opportunistic,
            lines,
            acquired: false,
            started: false,
        };
        self.containers.insert(self.next, container);
        self.fresh.push(self.next);
        self.next += 1;
        self.granted += 1;
    }

    /// Preempts a container that the master has not acquired, and restores its ask.
    pub fn preempt_unacquired(&mut self) {
        let Some(id) = self.fresh.pop() else { return };
        let Some(container) = self.containers.remove(&id) else {
            return;
        };
        self.ended.push(id);
        if container.opportunistic {
            let lane = (container.key, container.resource);
            *self.opportunistic.entry(lane).or_insert(0) += 1;
            return;
        }
        let asked = self.guaranteed.entry(container.key).or_insert_with(|| AskState {
            resource: container.resource.clone(),
            rows: BTreeMap::new(),
        });
        for name in container.lines {
            asked.rows.entry(name).or_insert((0, true)).0 += 1;
        }
    }

    /// Ends a container, by itself or because it was released. An unknown one is ignored.
    pub fn end(&mut self, id: u64) {
        if self.containers.remove(&id).is_some() {
            self.fresh.retain(|fresh| *fresh != id);
            self.ended.push(id);
        }
    }

    /// Forgets everything but running containers. Returns the granted containers that were not
    /// started: they are lost without a notice.
    pub fn restart(&mut self) -> Vec<u64> {
        self.registered = false;
        let last = self.last.take();
        let mut reported = last.map(|last| last.completed).unwrap_or_default();
        self.guaranteed.clear();
        self.opportunistic.clear();
        self.excluded.clear();
        self.fresh.clear();
        // Nodes report ends again until the master has confirmed the reply with them.
        self.ended.append(&mut reported);
        let lost = |(id, container): (&u64, &Container)| (!container.started).then_some(*id);
        let lost: Vec<u64> = self.containers.iter().filter_map(lost).collect();
        self.containers.retain(|_, container| container.started);
        lost
    }

    /// Returns the number it would still grant under a key, or has granted without reporting.
    pub fn owed(&self, key: Key) -> u32 {
        let lines = self.guaranteed.get(&key).and_then(|asked| asked.rows.get("*"));
        let guaranteed = lines.map_or(0, |(count, _)| *count);
        let lanes = self.opportunistic.iter().filter(|((of, _), _)| *of == key);
        let opportunistic: u32 = lanes.map(|(_, count)| count).sum();
        let fresh = self.fresh.iter().filter_map(|id| self.containers.get(id));
        guaranteed + opportunistic + fresh.filter(|container| container.key == key).count() as u32
    }

    /// Returns the number it would still grant.
    pub fn outstanding(&self) -> u32 {
        let lines = self.guaranteed.values().filter_map(|asked| asked.rows.get("*"));
        lines.map(|(count, _)| count).sum::<u32>() + self.opportunistic.values().sum::<u32>()
    }
}
