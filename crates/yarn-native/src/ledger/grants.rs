//! Grants: which want they belong to, and whether they are surplus.

use std::collections::{BTreeMap, BTreeSet};

use super::rm_view::RowGroup;
use super::{Grant, Key, Ledger, Mutant, ReplyOutcome, Row, Want};

impl<C: Clone + Ord> Ledger<C> {
    /// Processes a granted container of a reply to the rows `sent`.
    pub(super) fn on_grant(
        &mut self,
        grant: Grant<C>,
        sent: &[Row],
        changed: &BTreeSet<Key>,
        outcome: &mut ReplyOutcome<C>,
    ) {
        if !self.held.insert(grant.container.clone()) {
            return;
        }
        if self.constrained.contains(grant.key) {
            return match self.constrained.on_grant(grant.key, self.reply_count) {
                true => outcome.wanted.push(grant),
                false => self.on_surplus(grant, outcome),
            };
        }
        let Some(key) = self.key_of(&grant) else {
            return self.on_surplus(grant, outcome);
        };
        if self.is_outdated(key, &grant, changed) {
            return self.on_surplus(grant, outcome);
        }
        if let Some(group) = self.group_of(key)
            && !self.mutant.is(Mutant::ForgetsCountdown)
        {
            self.count_down(&group, &grant.host, sent);
        }
        let Some(want) = self.wants.get_mut(&key).filter(|want| want.count > 0) else {
            return self.on_surplus(grant, outcome);
        };
        if !self.mutant.is(Mutant::IgnoresGrants) {
            deduct(want, &grant.host, &self.racks);
        }
        self.recent.push((self.reply_count, key, grant.host.clone()));
        outcome.wanted.push(grant);
    }

    /// Returns true if a container was granted for the ask before its last change, and is too small
    /// now. Only checked right after the change: a ResourceManager may grant less than asked, and
    /// rejecting that would never end.
    fn is_outdated(&self, key: Key, grant: &Grant<C>, changed: &BTreeSet<Key>) -> bool {
        let want = self.wants.get(&key).filter(|_| changed.contains(&key));
        want.is_some_and(|want| grant.resource.memory_mib < want.resource.memory_mib)
            && !self.mutant.is(Mutant::AcceptsOutdatedKind)
    }

    fn count_down(&mut self, group: &RowGroup, host: &str, sent: &[Row]) {
        let Some(view) = self.views.get_mut(group) else {
            return;
        };
        let sent: BTreeSet<&str> = sent
            .iter()
            .filter(|row| row.key == group.key && !self.mutant.is(Mutant::CountsEarlyGrants))
            .map(|row| row.name.as_str())
            .collect();
        let rack = self.racks.get(host).map(String::as_str);
        view.count_down(host, rack, &sent);
        if view.is_empty() {
            self.views.remove(group);
        }
    }

    fn on_surplus(&mut self, grant: Grant<C>, outcome: &mut ReplyOutcome<C>) {
        if !self.mutant.is(Mutant::KeepsSurplus) {
            self.release(grant.container.clone());
        }
        outcome.surplus.push(grant);
    }

    /// Finds the key of a grant. Servers before 2.9 send no allocation id, so the priority has to
    /// match.
    fn key_of(&self, grant: &Grant<C>) -> Option<Key> {
        let known = |key: &Key| {
            self.wants.contains_key(key) || self.views.keys().any(|group| group.key == *key)
        };
        if known(&grant.key) {
            return Some(grant.key);
        }
        let keys = self.wants.keys().copied();
        let keys = keys.chain(self.views.keys().map(|group| group.key));
        let mut candidates: Vec<Key> =
            keys.filter(|key| key.priority == grant.key.priority).collect();
        candidates.sort_unstable();
        candidates.dedup();
        match candidates.as_slice() {
            [only] => Some(*only),
            _ => None,
        }
    }

    /// Finds the row group that a grant belongs to. The request has been applied by then, so each
    /// key has one group left with something wanted.
    fn group_of(&self, key: Key) -> Option<RowGroup> {
        self.views.keys().find(|group| group.key == key).cloned()
    }
}

/// Deducts a container granted on `host`.
pub(super) fn deduct(want: &mut Want, host: &str, racks: &BTreeMap<String, String>) {
    want.count = want.count.saturating_sub(1);
    let localities = &mut want.localities;
    if let Some(node) = localities.nodes.iter_mut().find(|node| node.host == host && node.count > 0)
    {
        node.count -= 1;
        return;
    }
    let rack = racks.get(host);
    let racks_named = localities.racks.iter_mut();
    for place in racks_named.filter(|place| Some(&place.rack) == rack).take(1) {
        place.count = place.count.saturating_sub(1);
    }
}
