//! The ledger between "this is what I want" and the `allocate` call.
//!
//! What a master sends there are differences, yet every line of an ask is an absolute number that the
//! ResourceManager counts down as it grants. A line sent again without need is granted twice (YARN-1902), a
//! line forgotten is never granted, and replies get lost. The ledger keeps what is wanted and what the
//! ResourceManager believes is wanted, and says the difference.
//!
//! It does no I/O and knows no clock. One exchange is:
//! 1. [`Ledger::request`] says what to send. Until an answer is taken in it says the same again, so a lost
//!    reply is simply a reason to send it once more.
//! 2. [`Ledger::on_reply`] takes in the answer, or [`Ledger::on_rejected`] a refusal, or
//!    [`Ledger::on_resync`] the news that the ResourceManager has forgotten everything.
//!
//! [`AmRmClient::exchange`](crate::scheduler::AmRmClient::exchange) does all of that with a real one.
//!
//! ```
//! use std::collections::BTreeMap;
//! use yarn_native::ledger::{Key, Ledger, LedgerReply, Want};
//! use yarn_native::types::Resource;
//!
//! let mut ledger: Ledger<u64> = Ledger::new();
//! let key = Key { priority: 1, allocation: 7 };
//! let two = Want::anywhere(2, Resource::new(1024, 1));
//! ledger.set_wants(BTreeMap::from([(key, two)]), ledger.reply_count());
//! assert_eq!(ledger.request().rows[0].count, 2);
//! ledger.on_reply(LedgerReply { response_id: 1, granted: vec![], completed: vec![] })?;
//! assert!(ledger.request().rows.is_empty(), "sent_at once, it is known");
//! # Ok::<(), yarn_native::ledger::UnexpectedReply>(())
//! ```

mod mutant;
mod rm_view;
mod want;

#[doc(hidden)]
pub use mutant::Mutant;
pub use want::{
    Execution, Grant, Key, LedgerReply, LedgerRequest, Localities, NodeLocality, RackLocality,
    ReplyCount, ReplyOutcome, Row, UnexpectedReply, Want,
};

use std::collections::{BTreeMap, BTreeSet};

use rm_view::{RmView, RowGroup};

/// Replies after which a release is said again when its container has not ended. The end comes with the same
/// reply or the next one; this is for a ResourceManager that was told and forgot.
const REPLIES_PER_RELEASE: u64 = 16;
/// How often a release is said. A container that the ResourceManager does not know never ends.
const RELEASES_MAX: u8 = 4;

/// What a master wants, and what the ResourceManager believes it wants. `C` is the id of a container.
#[derive(Clone, Debug)]
pub struct Ledger<C> {
    wants: BTreeMap<Key, Want>,
    views: BTreeMap<RowGroup, RmView>,
    /// Where hosts are, as far as anybody said.
    racks: BTreeMap<String, String>,
    /// Containers granted that have not ended, as far as we know: a grant of one of them is no new grant.
    held: BTreeSet<C>,
    /// Containers to be taken back whose end has not been seen.
    releases: BTreeMap<C, Release>,
    exclude: BTreeSet<String>,
    /// Hosts that the ResourceManager believes are to be avoided.
    excluded: BTreeSet<String>,
    response_id: i32,
    /// The request in flight. While there is one, it is what is sent.
    pending: Option<LedgerRequest<C>>,
    reply_count: ReplyCount,
    /// Grants that whoever sets the wants may not know of yet: the reply they came with, key and host.
    recent: Vec<(ReplyCount, Key, String)>,
    mutant: Mutant,
}

#[derive(Clone, Copy, Debug, Default)]
struct Release {
    /// When it was last heard by the ResourceManager.
    sent_at: Option<ReplyCount>,
    attempts: u8,
}

impl<C: Clone + Ord> Default for Ledger<C> {
    fn default() -> Self {
        Self::new()
    }
}

impl<C: Clone + Ord> Ledger<C> {
    /// A ledger for a master that has just registered and wants nothing.
    pub fn new() -> Self {
        Self::with_mutant(Mutant::None)
    }

    /// A ledger with a deliberate mistake in it. Without the feature `mutants` there are none.
    #[doc(hidden)]
    pub fn with_mutant(mutant: Mutant) -> Self {
        Self {
            wants: BTreeMap::new(),
            views: BTreeMap::new(),
            racks: BTreeMap::new(),
            held: BTreeSet::new(),
            releases: BTreeMap::new(),
            exclude: BTreeSet::new(),
            excluded: BTreeSet::new(),
            response_id: 0,
            pending: None,
            reply_count: ReplyCount(0),
            recent: Vec::new(),
            mutant,
        }
    }

    /// Sets everything that is still wanted; what is not named is not wanted. `seen` is the last reply the
    /// speaker knows of ([`ReplyOutcome::beat`]): containers granted since are deducted.
    pub fn set_wants(&mut self, wants: BTreeMap<Key, Want>, seen: ReplyCount) {
        self.wants = wants;
        for want in self.wants.values() {
            for node in &want.localities.nodes {
                self.racks.insert(node.host.clone(), node.rack.clone());
            }
        }
        self.recent.retain(|(count, _, _)| *count > seen);
        if self.mutant.is(Mutant::IgnoresStaleWants) {
            return;
        }
        for (_, key, host) in &self.recent {
            if let Some(want) = self.wants.get_mut(key) {
                deduct(want, host, &self.racks);
            }
        }
    }

    /// Tells where a host is; with it the numbers for racks stay exact.
    pub fn set_rack(&mut self, host: impl Into<String>, rack: impl Into<String>) {
        self.racks.insert(host.into(), rack.into());
    }

    /// Sets the hosts on which nothing may be granted.
    pub fn set_excluded(&mut self, hosts: BTreeSet<String>) {
        self.exclude = hosts;
    }

    /// Hosts that an earlier attempt may have had avoided. The ResourceManager hands its list on to the next
    /// attempt, so that what is not avoided any more has to be said.
    pub fn inherit_excluded(&mut self, hosts: impl IntoIterator<Item = String>) {
        self.excluded.extend(hosts);
    }

    /// Gives a container back. It is said until the container's end is seen.
    pub fn release(&mut self, container: C) {
        self.releases.entry(container).or_default();
    }

    /// Counts a container of an earlier attempt as held, so that its grant would not be taken for a new one.
    pub fn adopt(&mut self, container: C) {
        self.held.insert(container);
    }

    /// Forgets a container whose end will never be told: its node refused it, or the ResourceManager refuses
    /// its release.
    pub fn forget(&mut self, container: &C) {
        self.held.remove(container);
        self.releases.remove(container);
    }

    /// How many replies have been taken in.
    pub fn reply_count(&self) -> ReplyCount {
        self.reply_count
    }

    /// How many containers are wanted and not granted.
    pub fn outstanding(&self) -> u64 {
        self.wants.values().map(|want| u64::from(want.count)).sum()
    }

    /// Whether the next request says anything: a reason not to wait with it.
    pub fn has_changes(&self) -> bool {
        let LedgerRequest { rows, releases, exclude, readmit, .. } = match &self.pending {
            Some(pending) => pending.clone(),
            None => self.draft(),
        };
        !(rows.is_empty() && releases.is_empty() && exclude.is_empty() && readmit.is_empty())
    }

    /// What to send. The same until an answer to it is taken in: the ResourceManager may have acted on it
    /// already, and then it ignores whatever is different.
    pub fn request(&mut self) -> LedgerRequest<C> {
        if self.mutant.is(Mutant::ChangesRetried) {
            self.pending = None;
        }
        match &self.pending {
            Some(pending) => pending.clone(),
            None => {
                let draft = self.draft();
                self.pending = Some(draft.clone());
                draft
            }
        }
    }

    fn draft(&self) -> LedgerRequest<C> {
        let due = |release: &Release| match release.sent_at {
            None => true,
            Some(sent_at) => self.reply_count.0 - sent_at.0 >= REPLIES_PER_RELEASE,
        };
        LedgerRequest {
            response_id: self.response_id,
            rows: rm_view::differences(&self.wants, &self.views, self.mutant),
            releases: self
                .releases
                .iter()
                .filter(|(_, release)| due(release))
                .map(|(container, _)| container.clone())
                .collect(),
            exclude: self.exclude.difference(&self.excluded).cloned().collect(),
            readmit: self.excluded.difference(&self.exclude).cloned().collect(),
        }
    }

    /// Takes in the answer to the request in flight.
    pub fn on_reply(&mut self, reply: LedgerReply<C>) -> Result<ReplyOutcome<C>, UnexpectedReply> {
        let expected = self.pending.as_ref().map(|pending| next_response_id(pending.response_id));
        if expected != Some(reply.response_id) {
            return Err(UnexpectedReply { got: reply.response_id, expected });
        }
        let Some(request) = self.pending.take() else {
            return Err(UnexpectedReply { got: reply.response_id, expected: None });
        };
        self.response_id = reply.response_id;
        self.reply_count.0 += 1;
        let changed = self.on_delivered(&request);
        self.views.values_mut().for_each(RmView::on_reply);
        let mut taken =
            ReplyOutcome { wanted: Vec::new(), surplus: Vec::new(), reply_count: self.reply_count };
        for grant in reply.granted {
            self.on_grant(grant, &request.rows, &changed, &mut taken);
        }
        for container in reply.completed {
            self.forget(&container);
        }
        Ok(taken)
    }

    /// The request was refused as a whole: nothing of it counts, and its number is used again.
    pub fn on_rejected(&mut self) {
        let request = self.pending.take();
        if let Some(request) = request.filter(|_| self.mutant.is(Mutant::AppliesRejected)) {
            self.on_delivered(&request);
        }
    }

    /// The ResourceManager knows nothing of us any more, and we have registered again: everything is said
    /// again from the beginning.
    pub fn on_resync(&mut self) {
        self.pending = None;
        self.response_id = 0;
        if !self.mutant.is(Mutant::ForgetsToResend) {
            self.views.clear();
        }
        if !self.mutant.is(Mutant::ForgetsExcluded) {
            self.excluded.clear();
        }
        match self.mutant.is(Mutant::ForgetsReleases) {
            true => self.releases.clear(),
            false => self.releases.values_mut().for_each(|release| *release = Release::default()),
        }
    }

    /// The request has arrived: what it said is believed from now on. Returns the keys under which containers
    /// of another kind are asked for than before.
    fn on_delivered(&mut self, request: &LedgerRequest<C>) -> BTreeSet<Key> {
        let changes_resource = |row: &&Row| {
            let mut lanes = self.views.iter().filter(|(group, _)| group.key == row.key);
            row.count > 0 && lanes.any(|(_, view)| view.resource != row.resource)
        };
        let changed: BTreeSet<Key> =
            request.rows.iter().filter(changes_resource).map(|row| row.key).collect();
        for row in &request.rows {
            RmView::apply(&mut self.views, row);
        }
        for container in &request.releases {
            let Some(release) = self.releases.get_mut(container) else {
                continue;
            };
            release.sent_at = Some(self.reply_count);
            release.attempts += 1;
            if release.attempts >= RELEASES_MAX {
                self.releases.remove(container);
            }
        }
        self.excluded.extend(request.exclude.iter().cloned());
        self.excluded.retain(|host| !request.readmit.contains(host));
        changed
    }

    fn on_grant(
        &mut self,
        grant: Grant<C>,
        sent: &[Row],
        changed: &BTreeSet<Key>,
        taken: &mut ReplyOutcome<C>,
    ) {
        if !self.held.insert(grant.container.clone()) {
            return;
        }
        let Some(key) = self.key_of(&grant) else {
            return self.on_surplus(grant, taken);
        };
        if self.is_outdated(key, &grant, changed) {
            return self.on_surplus(grant, taken);
        }
        if let Some(group) = self.group_of(key)
            && !self.mutant.is(Mutant::ForgetsCountdown)
        {
            self.count_down(&group, &grant.host, sent);
        }
        let Some(want) = self.wants.get_mut(&key).filter(|want| want.count > 0) else {
            return self.on_surplus(grant, taken);
        };
        if !self.mutant.is(Mutant::IgnoresGrants) {
            deduct(want, &grant.host, &self.racks);
        }
        self.recent.push((self.reply_count, key, grant.host.clone()));
        taken.wanted.push(grant);
    }

    /// Whether a container was made for what was asked before, and is too small for what is asked now. Only
    /// where the ask has just changed: a ResourceManager may also grant less than asked, and then insisting
    /// would never end.
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

    fn on_surplus(&mut self, grant: Grant<C>, taken: &mut ReplyOutcome<C>) {
        if !self.mutant.is(Mutant::KeepsSurplus) {
            self.release(grant.container.clone());
        }
        taken.surplus.push(grant);
    }

    /// Whose container it is. Servers before 2.9 do not say the allocation id; there the priority must do.
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

    /// Which of our lines it was granted for. When grants are looked at the request has arrived, and that
    /// has left each key with the one lane in which something is wanted.
    fn group_of(&self, key: Key) -> Option<RowGroup> {
        self.views.keys().find(|group| group.key == key).cloned()
    }
}

/// The number of the reply to a request with this number.
pub(crate) fn next_response_id(response_id: i32) -> i32 {
    response_id.wrapping_add(1) & i32::MAX
}

/// One container less is wanted, since one was granted on `host`.
fn deduct(want: &mut Want, host: &str, racks: &BTreeMap<String, String>) {
    want.count = want.count.saturating_sub(1);
    let localities = &mut want.localities;
    if let Some(node) = localities.nodes.iter_mut().find(|node| node.host == host && node.count > 0)
    {
        node.count -= 1;
        return;
    }
    let rack = racks.get(host);
    let place = localities.racks.iter_mut();
    for place in place.filter(|place| Some(&place.rack) == rack).take(1) {
        place.count = place.count.saturating_sub(1);
    }
}
