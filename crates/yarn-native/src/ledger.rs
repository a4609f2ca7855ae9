//! Bookkeeping between the containers a master wants and its `allocate` calls.
//!
//! An allocate call sends differences, yet each row of an ask is an absolute number that the
//! ResourceManager counts down as it grants. A row that is sent again without need is granted twice
//! (YARN-1902), a row that is not sent is never granted, and replies get lost. The ledger keeps the
//! wants and a view of what the ResourceManager knows of them, and sends the differences.
//!
//! It does no I/O and reads no clock. One exchange is:
//! 1. [`Ledger::request`] returns the request to send. It returns the same one until its reply is
//!    processed, so that a lost reply is handled by sending the request again.
//! 2. [`Ledger::on_reply`] processes the reply, [`Ledger::on_rejected`] a rejection, and
//!    [`Ledger::on_resync`] a restart of the ResourceManager.
//!
//! [`AmRmClient::exchange`](crate::scheduler::AmRmClient::exchange) does all of this against a
//! ResourceManager. The ledger keeps asks without placement constraints.
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
//! assert!(ledger.request().rows.is_empty(), "an unchanged ask is not sent again");
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

/// Replies after which a release is sent again while its container has not ended. The end usually
/// comes with the same reply or the next one; the retry is for a ResourceManager that lost the
/// release.
const REPLIES_PER_RELEASE: u64 = 16;
/// Maximum number of times a release is sent. The end of an unknown container is never reported.
const RELEASES_MAX: u8 = 4;

/// Wants of a master, and the ResourceManager's view of them. `C` is the id of a container.
#[derive(Clone, Debug)]
pub struct Ledger<C> {
    wants: BTreeMap<Key, Want>,
    views: BTreeMap<RowGroup, RmView>,
    /// Racks by host, as far as known.
    racks: BTreeMap<String, String>,
    /// Granted containers that have not ended. Another grant of one of them is a duplicate.
    held: BTreeSet<C>,
    /// Containers to release, until their end is reported.
    releases: BTreeMap<C, Release>,
    exclude: BTreeSet<String>,
    /// Hosts that the ResourceManager excludes.
    excluded: BTreeSet<String>,
    response_id: i32,
    /// Request in flight; it is sent again until its reply is processed.
    pending: Option<LedgerRequest<C>>,
    reply_count: ReplyCount,
    /// Grants that the next `set_wants` may not account for: the reply they came with, key and
    /// host.
    recent: Vec<(ReplyCount, Key, String)>,
    mutant: Mutant,
}

#[derive(Clone, Copy, Debug, Default)]
struct Release {
    /// Last reply that confirmed a request with this release.
    sent_at: Option<ReplyCount>,
    attempts: u8,
}

impl<C: Clone + Ord> Default for Ledger<C> {
    fn default() -> Self {
        Self::new()
    }
}

impl<C: Clone + Ord> Ledger<C> {
    /// Creates a ledger for a newly registered master without wants.
    pub fn new() -> Self {
        Self::with_mutant(Mutant::None)
    }

    /// Creates a ledger with a deliberate fault. Without the feature `mutants` it has none.
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

    /// Replaces all wants. `seen` is the last reply that the caller had processed
    /// ([`ReplyOutcome::reply_count`]): containers granted since then are deducted.
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

    /// Sets the rack of a host, which keeps the counts of racks exact.
    pub fn set_rack(&mut self, host: impl Into<String>, rack: impl Into<String>) {
        self.racks.insert(host.into(), rack.into());
    }

    /// Sets the hosts that must not get containers.
    pub fn set_excluded(&mut self, hosts: BTreeSet<String>) {
        self.exclude = hosts;
    }

    /// Adds hosts that an earlier attempt may have excluded. The ResourceManager passes the
    /// exclusions on to the next attempt, so they have to be readmitted explicitly.
    pub fn inherit_excluded(&mut self, hosts: impl IntoIterator<Item = String>) {
        self.excluded.extend(hosts);
    }

    /// Releases a container. The release is sent until its end is reported.
    pub fn release(&mut self, container: C) {
        self.releases.entry(container).or_default();
    }

    /// Adds a container of an earlier attempt, so that another grant of it counts as a duplicate.
    pub fn adopt(&mut self, container: C) {
        self.held.insert(container);
    }

    /// Forgets a container without waiting for its end: its node rejected it, or the
    /// ResourceManager rejects its release.
    pub fn forget(&mut self, container: &C) {
        self.held.remove(container);
        self.releases.remove(container);
    }

    /// Returns the number of replies processed.
    pub fn reply_count(&self) -> ReplyCount {
        self.reply_count
    }

    /// Returns the number of containers wanted and not granted.
    pub fn outstanding(&self) -> u64 {
        self.wants.values().map(|want| u64::from(want.count)).sum()
    }

    /// Returns true if the next request carries changes, so that it should be sent soon.
    pub fn has_changes(&self) -> bool {
        let LedgerRequest { rows, releases, exclude, readmit, .. } = match &self.pending {
            Some(pending) => pending.clone(),
            None => self.draft(),
        };
        !(rows.is_empty() && releases.is_empty() && exclude.is_empty() && readmit.is_empty())
    }

    /// Returns the request to send. It stays the same until its reply is processed: the
    /// ResourceManager may have applied it already, and would then ignore any difference.
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

    /// Processes the reply to the request in flight.
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
        let mut outcome =
            ReplyOutcome { wanted: Vec::new(), surplus: Vec::new(), reply_count: self.reply_count };
        for grant in reply.granted {
            self.on_grant(grant, &request.rows, &changed, &mut outcome);
        }
        for container in reply.completed {
            self.forget(&container);
        }
        Ok(outcome)
    }

    /// Drops a request that was rejected as a whole. Its response id is used again.
    pub fn on_rejected(&mut self) {
        let request = self.pending.take();
        if let Some(request) = request.filter(|_| self.mutant.is(Mutant::AppliesRejected)) {
            self.on_delivered(&request);
        }
    }

    /// Resets the view after the master has registered with a restarted ResourceManager: everything
    /// is sent again.
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

    /// Applies a delivered request to the view. Returns the keys under which containers of another
    /// size are asked for than before.
    fn on_delivered(&mut self, request: &LedgerRequest<C>) -> BTreeSet<Key> {
        let changes_resource = |row: &&Row| {
            let mut groups = self.views.iter().filter(|(group, _)| group.key == row.key);
            row.count > 0 && groups.any(|(_, view)| view.resource != row.resource)
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
        outcome: &mut ReplyOutcome<C>,
    ) {
        if !self.held.insert(grant.container.clone()) {
            return;
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

/// Returns the response id of the reply to a request.
pub(crate) fn next_response_id(response_id: i32) -> i32 {
    response_id.wrapping_add(1) & i32::MAX
}

/// Deducts a container granted on `host`.
fn deduct(want: &mut Want, host: &str, racks: &BTreeMap<String, String>) {
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
