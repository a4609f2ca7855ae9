//! The ResourceManager's view of the asks, row by row, and the rows that correct it.

use std::collections::{BTreeMap, BTreeSet};

use super::mutant::Mutant;
use super::want::{Execution, Key, Row, Want};
use crate::types::Resource;

/// Name of the row that limits the total: no more is granted, whatever the rows of hosts and racks
/// say.
pub(super) const ANYWHERE: &str = "*";

/// Replies without a grant after which rows are sent again. This does no harm while nothing is
/// granted, and it restores rows that the ResourceManager has lost.
const IDLE_REPLIES_MAX: u32 = 100;

/// Rows that replace each other. The ResourceManager keeps opportunistic asks apart, and those also
/// by container size.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RowGroup {
    pub key: Key,
    opportunistic: Option<Resource>,
}

impl RowGroup {
    pub(crate) fn of(key: Key, want: &Want) -> Self {
        let opportunistic = match want.execution {
            Execution::Guaranteed => None,
            Execution::Opportunistic { .. } => Some(want.resource.clone()),
        };
        Self { key, opportunistic }
    }
}

/// View of one row group.
#[derive(Clone, Debug)]
pub(super) struct RmView {
    pub resource: Resource,
    label: Option<String>,
    execution: Execution,
    rows: BTreeMap<String, RowView>,
    /// Replies since the last row was sent or granted.
    idle_replies: u32,
}

#[derive(Clone, Copy, Debug)]
struct RowView {
    /// `None` if the count is uncertain, so that the row has to be sent again.
    count: Option<u32>,
    relax: bool,
}

/// Returns the rows of a want: name, count and relax flag. Empty if nothing is wanted.
fn rows_of(want: &Want) -> BTreeMap<&str, (u32, bool)> {
    let mut rows: BTreeMap<&str, (u32, bool)> = BTreeMap::new();
    if want.count == 0 {
        return rows;
    }
    let localities = &want.localities;
    let named = !localities.nodes.is_empty() || !localities.racks.is_empty();
    rows.insert(ANYWHERE, (want.count, !(named && localities.strict)));
    for node in &localities.nodes {
        let row = rows.entry(&node.host).or_insert((0, true));
        row.0 = row.0.saturating_add(node.count);
        let rack = rows.entry(&node.rack).or_insert((0, !localities.strict));
        rack.0 = rack.0.saturating_add(node.count);
    }
    for place in &localities.racks {
        let rack = rows.entry(&place.rack).or_insert((0, true));
        // A rack named by itself is relaxed, even if hosts in it were named, too.
        *rack = (rack.0.saturating_add(place.count), true);
    }
    for (name, row) in &mut rows {
        if *name != ANYWHERE {
            row.0 = row.0.min(want.count);
        }
    }
    rows
}

impl RmView {
    /// Creates the view after `row`, with nothing known before.
    fn new(row: &Row) -> Self {
        Self {
            resource: row.resource.clone(),
            label: None,
            execution: row.execution,
            rows: BTreeMap::new(),
            idle_replies: 0,
        }
    }

    /// Applies a delivered row to the view of its group.
    pub(crate) fn apply(views: &mut BTreeMap<RowGroup, RmView>, row: &Row) {
        let group = RowGroup {
            key: row.key,
            opportunistic: match row.execution {
                Execution::Guaranteed => None,
                Execution::Opportunistic { .. } => Some(row.resource.clone()),
            },
        };
        let view = views.entry(group.clone()).or_insert_with(|| RmView::new(row));
        view.idle_replies = 0;
        if row.count > 0 {
            view.resource = row.resource.clone();
            view.execution = row.execution;
        }
        if row.name == ANYWHERE {
            view.label = row.label.clone();
        }
        if row.count == 0 {
            view.rows.remove(&row.name);
        } else {
            let row_view = RowView { count: Some(row.count), relax: row.relax };
            view.rows.insert(row.name.clone(), row_view);
        }
        if view.rows.is_empty() {
            views.remove(&group);
        }
    }

    /// Counts down for a container granted on `host`, as the ResourceManager does.
    ///
    /// Rows sent with the request that this grant is a reply to are uncertain. Most likely the
    /// grant was made before they arrived, and they stand as sent; but it may also have been made
    /// just after. Uncertain rows are sent again.
    pub(crate) fn count_down(&mut self, host: &str, rack: Option<&str>, sent: &BTreeSet<&str>) {
        self.idle_replies = 0;
        let mut down = |name: &str| {
            if let Some(row) = self.rows.get_mut(name) {
                row.count = match row.count {
                    Some(count) if !sent.contains(name) => Some(count.saturating_sub(1)),
                    _ => None,
                };
            }
        };
        down(ANYWHERE);
        // On a host with a row of its own the grant counts for that row, otherwise for the row of
        // its rack, otherwise for neither.
        down(host);
        match rack {
            Some(rack) => down(rack),
            // The rack is unknown, so the row of any rack may have been counted down.
            None => {
                let racks = self.rows.iter_mut().filter(|(name, _)| name.starts_with('/'));
                racks.for_each(|(_, row)| row.count = None);
            }
        }
        self.rows.retain(|_, row| row.count != Some(0));
        if !self.rows.contains_key(ANYWHERE) {
            // Nothing is left to grant. Some versions drop the other rows then, some keep them.
            self.rows.values_mut().for_each(|row| row.count = None);
        }
    }

    /// Counts a reply. After many without a grant the view becomes uncertain.
    pub(crate) fn on_reply(&mut self) {
        self.idle_replies += 1;
        if self.idle_replies > IDLE_REPLIES_MAX {
            self.idle_replies = 0;
            self.rows.values_mut().for_each(|row| row.count = None);
        }
    }

    /// Returns true if no rows are left.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

/// Returns the rows that bring the ResourceManager's view in row with the wants. Only changed
/// rows: an unchanged one would be granted twice (YARN-1902).
pub(super) fn differences(
    wants: &BTreeMap<Key, Want>,
    views: &BTreeMap<RowGroup, RmView>,
    mutant: Mutant,
) -> Vec<Row> {
    let mut rows = Vec::new();
    let wanted: BTreeMap<RowGroup, &Want> = wants
        .iter()
        .filter(|(_, want)| want.count > 0)
        .map(|(key, want)| (RowGroup::of(*key, want), want))
        .collect();
    for (group, view) in views {
        if !wanted.contains_key(group) {
            cancel(group, view, &mut rows);
        }
    }
    for (group, want) in wanted {
        correct(group.key, want, views.get(&group), mutant, &mut rows);
    }
    rows
}

/// Takes back all rows of a group in which nothing is wanted.
fn cancel(group: &RowGroup, view: &RmView, rows: &mut Vec<Row>) {
    for name in view.rows.keys() {
        rows.push(Row {
            key: group.key,
            name: name.clone(),
            count: 0,
            resource: view.resource.clone(),
            relax: true,
            label: None,
            execution: view.execution,
        });
    }
}

fn correct(key: Key, want: &Want, view: Option<&RmView>, mutant: Mutant, rows: &mut Vec<Row>) {
    let wanted_rows = rows_of(want);
    let changed = view.is_none_or(|view| {
        let kind = (&view.resource, &view.label, view.execution);
        kind != (&want.resource, &want.label, want.execution)
    });
    let names = view.iter().flat_map(|view| view.rows.keys());
    let names: BTreeSet<&str> =
        names.map(String::as_str).chain(wanted_rows.keys().copied()).collect();
    for name in names {
        let (count, relax) = wanted_rows.get(name).copied().unwrap_or((0, true));
        let known_row = view.and_then(|view| view.rows.get(name));
        let same = match known_row {
            None => count == 0,
            Some(RowView { count: None, .. }) => false,
            // A count above the one of `*` has no effect, so it need not be corrected.
            Some(RowView { count: Some(known), relax: known_relax }) => {
                let effective = match name {
                    ANYWHERE => *known,
                    _ => (*known).min(want.count),
                };
                effective == count && (count == 0 || (!changed && *known_relax == relax))
            }
        };
        if same && !mutant.is(Mutant::ResendsUnchanged) {
            continue;
        }
        rows.push(Row {
            key,
            name: name.to_owned(),
            count,
            resource: want.resource.clone(),
            relax,
            label: want.label.clone().filter(|_| name == ANYWHERE),
            execution: want.execution,
        });
    }
}
