//! Bookkeeping between the containers a master wants and its `allocate` calls.
//!
//! An allocate call sends differences, yet each row of an ask is an absolute number that the
//! ResourceManager counts down as it grants. A row that is sent again without need is granted twice
//! (YARN-1902), a row that is not sent is never granted, and replies get lost. The ledger keeps the
//! wants and a view of what the ResourceManager knows of them, and sends the differences.
//!
//! It does no I/O. One exchange is:
//! 1. [`Ledger::request`] returns the request to send. It returns the same one until its reply is
//!    processed, so that a lost reply is handled by sending the request again.
//! 2. [`Ledger::on_reply`] processes the reply, [`Ledger::on_rejected`] a rejection, and
//!    [`Ledger::on_resync`] a restart of the ResourceManager.
//!
//! [`AmRmClient::exchange`](crate::scheduler::AmRmClient::exchange) does all of this against a
//! ResourceManager. `ydl`'s `RmClient` does it by itself, to send heartbeats at its own pace.
//!
//! Wants with placement constraints ([`Ledger::set_constrained_wants`]) are sent as scheduling
//! requests. The ledger reads no clock, so [`Ledger::set_now`] tells it when to retry rejected ones.
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
//! ledger.on_reply(LedgerReply { response_id: 1, granted: vec![], completed: vec![], rejected: vec![] })?;
//! assert!(ledger.request().rows.is_empty(), "an unchanged ask is not sent again");
//! # Ok::<(), yarn_native::ledger::UnexpectedReply>(())
//! ```

mod constrained;
mod grants;
mod mutant;
mod rm_view;
mod want;

pub use constrained::SchedulingRequestMode;
#[doc(hidden)]
pub use mutant::Mutant;
pub use want::{
    ConstrainedWant, Execution, Grant, Key, LedgerReply, LedgerRequest, Localities, NodeLocality,
    RackLocality, ReplyCount, ReplyOutcome, Row, UnexpectedReply, Want,
};

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::Instant;

use constrained::ConstrainedAsks;
use grants::deduct;
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
    constrained: ConstrainedAsks,
    /// Time of the next request, as set by the caller.
    now: Option<Instant>,
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
            constrained: ConstrainedAsks::default(),
            now: None,
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

    /// Replaces all wants with placement constraints. Their keys must differ from those of plain
    /// wants. `seen` is as in [`Ledger::set_wants`].
    pub fn set_constrained_wants(
        &mut self,
        wants: BTreeMap<Key, ConstrainedWant>,
        seen: ReplyCount,
    ) {
        self.constrained.set_wants(wants, seen);
    }

    /// Sets the effect of repeated scheduling requests, which depends on the cluster's placement
    /// handler.
    pub fn set_scheduling_request_mode(&mut self, mode: SchedulingRequestMode) {
        self.constrained.mode = mode;
    }

    /// Sets the current time, which delays the retry of rejected scheduling requests. Without it
    /// they are sent again at once.
    pub fn set_now(&mut self, now: Instant) {
        self.now = Some(now);
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
        let plain: u64 = self.wants.values().map(|want| u64::from(want.count)).sum();
        plain + self.constrained.outstanding()
    }

    /// Returns true if the next request carries changes, so that it should be sent soon.
    pub fn has_changes(&self) -> bool {
        let LedgerRequest { rows, releases, exclude, readmit, scheduling_requests, .. } =
            match &self.pending {
                Some(pending) => pending.clone(),
                None => self.draft(),
            };
        !(rows.is_empty()
            && releases.is_empty()
            && exclude.is_empty()
            && readmit.is_empty()
            && scheduling_requests.is_empty())
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
            scheduling_requests: self.constrained.differences(self.now),
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
        for rejection in &reply.rejected {
            self.constrained.on_rejected(rejection, self.now);
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
        self.constrained.on_resync();
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
        self.constrained.on_delivered(&request.scheduling_requests);
        self.excluded.extend(request.exclude.iter().cloned());
        self.excluded.retain(|host| !request.readmit.contains(host));
        changed
    }
}

/// Returns the response id of the reply to a request.
pub(crate) fn next_response_id(response_id: i32) -> i32 {
    response_id.wrapping_add(1) & i32::MAX
}
