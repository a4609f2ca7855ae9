//! What the ResourceManager believes we want, line by line, and the lines that set it right.

use std::collections::{BTreeMap, BTreeSet};

use super::mutant::Mutant;
use super::want::{Execution, Key, Row, Want};
use crate::types::Resource;

/// The line that counts: whatever hosts and racks say, no more than this is granted.
pub(super) const ANYWHERE: &str = "*";

/// Replies without a grant after which lines are said again. Said while nothing is being granted they do no
/// harm, and whatever else made the ResourceManager forget them is mended.
const IDLE_REPLIES_MAX: u32 = 100;

/// Lines that replace each other. The ResourceManager keeps opportunistic asks apart, and those of them also
/// by what each container has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RowGroup {
    pub key: Key,
    opportunistic: Option<Resource>,
}

impl RowGroup {
    pub fn of(key: Key, want: &Want) -> Self {
        let opportunistic = match want.execution {
            Execution::Guaranteed => None,
            Execution::Opportunistic { .. } => Some(want.resource.clone()),
        };
        Self { key, opportunistic }
    }
}

/// What the ResourceManager believes about one lane.
#[derive(Clone, Debug)]
pub(super) struct RmView {
    pub resource: Resource,
    label: Option<String>,
    execution: Execution,
    lines: BTreeMap<String, RowView>,
    /// Replies since something was said or granted.
    idle_replies: u32,
}

#[derive(Clone, Copy, Debug)]
struct RowView {
    /// `None`: it may be anything, so it must be said again.
    count: Option<u32>,
    relax: bool,
}

/// The lines of a want: name, count, relax. None when nothing is wanted.
fn rows_of(want: &Want) -> BTreeMap<&str, (u32, bool)> {
    let mut lines: BTreeMap<&str, (u32, bool)> = BTreeMap::new();
    if want.count == 0 {
        return lines;
    }
    let localities = &want.localities;
    let named = !localities.nodes.is_empty() || !localities.racks.is_empty();
    lines.insert(ANYWHERE, (want.count, !(named && localities.strict)));
    for node in &localities.nodes {
        let line = lines.entry(&node.host).or_insert((0, true));
        line.0 = line.0.saturating_add(node.count);
        let rack = lines.entry(&node.rack).or_insert((0, !localities.strict));
        rack.0 = rack.0.saturating_add(node.count);
    }
    for place in &localities.racks {
        let rack = lines.entry(&place.rack).or_insert((0, true));
        // A rack that was named will do as a whole, also when hosts of it were named.
        *rack = (rack.0.saturating_add(place.count), true);
    }
    for (name, line) in &mut lines {
        if *name != ANYWHERE {
            line.0 = line.0.min(want.count);
        }
    }
    lines
}

impl RmView {
    /// What is believed after `row`, of which nothing was known before.
    fn new(row: &Row) -> Self {
        Self {
            resource: row.resource.clone(),
            label: None,
            execution: row.execution,
            lines: BTreeMap::new(),
            idle_replies: 0,
        }
    }

    /// What is believed of one lane once these rows have arrived.
    pub fn apply(views: &mut BTreeMap<RowGroup, RmView>, row: &Row) {
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
            view.lines.remove(&row.name);
        } else {
            let line = RowView { count: Some(row.count), relax: row.relax };
            view.lines.insert(row.name.clone(), line);
        }
        if view.lines.is_empty() {
            views.remove(&group);
        }
    }

    /// A container was granted on `host`: counts down as the ResourceManager does.
    ///
    /// Lines that travelled with the request this grant came back on are another matter. Most likely it was
    /// made before they arrived, and they stand as they were sent; but it may also have been made a moment
    /// after. What is not known is said again.
    pub fn count_down(&mut self, host: &str, rack: Option<&str>, sent: &BTreeSet<&str>) {
        self.idle_replies = 0;
        let mut down = |name: &str| {
            if let Some(line) = self.lines.get_mut(name) {
                line.count = match line.count {
                    Some(count) if !sent.contains(name) => Some(count.saturating_sub(1)),
                    _ => None,
                };
            }
        };
        down(ANYWHERE);
        // On a host with a line of its own the container was granted for that line, otherwise for the line of
        // its rack, otherwise for neither.
        down(host);
        match rack {
            Some(rack) => down(rack),
            // Without knowing the rack every rack's line may have gone down.
            None => {
                let racks = self.lines.iter_mut().filter(|(name, _)| name.starts_with('/'));
                racks.for_each(|(_, line)| line.count = None);
            }
        }
        self.lines.retain(|_, line| line.count != Some(0));
        if !self.lines.contains_key(ANYWHERE) {
            // Nothing is left to grant. Some versions now drop the other lines and some keep them.
            self.lines.values_mut().for_each(|line| line.count = None);
        }
    }

    /// A reply has come. After many that brought nothing nobody knows what is still believed.
    pub fn on_reply(&mut self) {
        self.idle_replies += 1;
        if self.idle_replies > IDLE_REPLIES_MAX {
            self.idle_replies = 0;
            self.lines.values_mut().for_each(|line| line.count = None);
        }
    }

    /// Whether nothing is believed any more.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}

/// The lines that make the ResourceManager believe what is wanted. Sent only on change: an unchanged line
/// would be granted twice (YARN-1902).
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

/// Takes back every line of a lane in which nothing is wanted.
fn cancel(group: &RowGroup, view: &RmView, rows: &mut Vec<Row>) {
    for name in view.lines.keys() {
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
    let lines = rows_of(want);
    let changed = view.is_none_or(|view| {
        let kind = (&view.resource, &view.label, view.execution);
        kind != (&want.resource, &want.label, want.execution)
    });
    let names = view.iter().flat_map(|view| view.lines.keys());
    let names: BTreeSet<&str> = names.map(String::as_str).chain(lines.keys().copied()).collect();
    for name in names {
        let (count, relax) = lines.get(name).copied().unwrap_or((0, true));
        let line = view.and_then(|view| view.lines.get(name));
        let same = match line {
            None => count == 0,
            Some(RowView { count: None, .. }) => false,
            // What a line says beyond the number for `*` has no effect, so it need not be set right.
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
