//! Checks the magic number, identifies the worker and detects the protocol.
//!
//! The rank of a worker is the position of its task, known from its agent and the same in every attempt, whatever the
//! worker claims. Other workers receive the address of its node.

use std::collections::BTreeMap;

use ydl_core::TaskId;

use crate::{Effects, LinkId, Peer, Protocol, Rejection, rabit, xgboost};

const MAGIC: [u8; 4] = 0xff99_u32.to_le_bytes();
/// Maximum length of a message in either protocol: two texts of 64 KiB, and more.
const MESSAGE_MAX: usize = 192 << 10;
/// Maximum number of lines logged for a printed text.
const LINES_MAX: usize = 64;

/// Rabit's and XGBoost's tracker.
#[derive(Debug)]
pub struct Tracker {
    ranks: BTreeMap<TaskId, u32>,
    tasks: Vec<TaskId>,
    /// Current attempt of each rank. Earlier ones are ignored.
    current: Vec<u32>,
    links: BTreeMap<LinkId, TrackerLink>,
    rabit: rabit::RabitTracker,
    xgboost: xgboost::XgboostTracker,
    dialed: u64,
}

#[derive(Debug)]
struct TrackerLink {
    peer: Peer,
    stage: TrackerStage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TrackerStage {
    Magic,
    /// The protocol is not known yet.
    Unknown,
    Rabit,
    Xgboost,
}

impl Tracker {
    /// Creates a tracker. The tasks have the ranks from 0 on.
    pub fn new(tasks: Vec<TaskId>) -> Tracker {
        let workers = u32::try_from(tasks.len()).unwrap_or(u32::MAX);
        Tracker {
            ranks: tasks.iter().cloned().zip(0..).collect(),
            current: vec![0; tasks.len()],
            tasks,
            links: BTreeMap::new(),
            rabit: rabit::RabitTracker::new(workers),
            xgboost: xgboost::XgboostTracker::new(workers),
            dialed: 0,
        }
    }

    fn rank(&self, peer: &Peer) -> Result<u32, Rejection> {
        let Some(rank) = self.ranks.get(&peer.task).copied() else {
            let what = format!("{} is not a worker of this round", peer.task);
            return Err(Rejection::new(what));
        };
        if peer.attempt < self.current[rank as usize] {
            let what = format!("attempt {} of {} has ended", peer.attempt, peer.task);
            return Err(Rejection::new(what));
        }
        Ok(rank)
    }

    /// Drops the state of attempts of a rank before this one.
    fn end_attempts(&mut self, rank: u32, attempt: u32, effects: &mut Effects) {
        let current = &mut self.current[rank as usize];
        if attempt <= *current {
            return;
        }
        *current = attempt;
        let task = self.tasks[rank as usize].clone();
        self.links.retain(|_, state| state.peer.task != task || state.peer.attempt >= attempt);
        self.rabit.attempt_ended(rank, effects);
        let to_stop = self.xgboost.attempt_ended(rank, effects);
        self.stop_workers(rank, to_stop, effects);
    }

    /// Dials the error ports of workers to stop, each through its own agent.
    fn stop_workers(&mut self, by: u32, to_stop: Vec<(u32, u16)>, effects: &mut Effects) {
        if !to_stop.is_empty() {
            let task = &self.tasks[by as usize];
            effects.log(format!(
                "{task} left the group; stopping the other {} workers",
                to_stop.len()
            ));
        }
        for (rank, port) in to_stop {
            let link = LinkId::Dialed(self.dialed);
            self.dialed += 1;
            effects.dial(link, self.tasks[rank as usize].clone(), port);
        }
    }

    fn receive_on(
        &mut self,
        link: LinkId,
        state: &mut TrackerLink,
        bytes: &[u8],
        effects: &mut Effects,
    ) -> Result<Option<usize>, Rejection> {
        let rank = self.rank(&state.peer)?;
        if state.stage == TrackerStage::Magic {
            let differs = bytes.iter().zip(MAGIC).any(|(one, other)| *one != other);
            if differs {
                return Err(Rejection::new("invalid tracker magic number"));
            }
            if bytes.len() < MAGIC.len() {
                return Ok(None);
            }
            effects.persist();
            self.end_attempts(rank, state.peer.attempt, effects);
            state.stage = TrackerStage::Unknown;
            effects.send(link, MAGIC);
            return Ok(Some(MAGIC.len()));
        }
        if state.stage == TrackerStage::Unknown {
            // Both start with a number. A JSON object follows in one, a small number or −1 in the other.
            let Some(second) = bytes.get(4..8) else {
                return Ok(None);
            };
            let text = second.iter().all(|byte| (b' '..=b'~').contains(byte));
            state.stage = if text { TrackerStage::Xgboost } else { TrackerStage::Rabit };
            match state.stage {
                TrackerStage::Xgboost => self.xgboost.open(link, rank),
                _ => self.rabit.open(link, rank),
            }
        }
        let host = &state.peer.host;
        if state.stage == TrackerStage::Rabit {
            let Some(message) = self.rabit.receive(link, host, bytes, effects)? else {
                return Ok(None);
            };
            if let Some(printed) = message.printed {
                log_lines(&state.peer.task, &String::from_utf8_lossy(printed), effects);
            }
            return Ok(Some(message.length));
        }
        let Some(message) = self.xgboost.receive(link, host, bytes, effects)? else {
            return Ok(None);
        };
        if let Some(printed) = message.printed {
            log_lines(&state.peer.task, &printed, effects);
        }
        self.stop_workers(rank, message.to_stop, effects);
        Ok(Some(message.length))
    }
}

/// Logs a printed text as lines, without control characters.
fn log_lines(task: &TaskId, text: &str, effects: &mut Effects) {
    for line in text.trim().lines().take(LINES_MAX) {
        let line = line.trim_end().replace(char::is_control, " ");
        effects.log(format!("{task}: {line}"));
    }
}

impl Protocol for Tracker {
    fn max_message_len(&self) -> usize {
        // A list of all ranks may be longer.
        MESSAGE_MAX.max(8 + 4 * self.tasks.len())
    }

    fn open(&mut self, link: LinkId, peer: &Peer, effects: &mut Effects) {
        match link {
            LinkId::Accepted(_) => {
                let state = TrackerLink { peer: peer.clone(), stage: TrackerStage::Magic };
                self.links.insert(link, state);
            }
            // Only error ports are dialed. One notification is enough.
            LinkId::Dialed(_) => {
                effects.persist();
                effects.send(link, xgboost::ERROR.to_le_bytes());
                effects.close(link);
            }
        }
    }

    fn receive(
        &mut self,
        link: LinkId,
        bytes: &[u8],
        effects: &mut Effects,
    ) -> Result<Option<usize>, Rejection> {
        let Some(mut state) = self.links.remove(&link) else {
            return Err(Rejection::new("input on a closed link"));
        };
        let result = self.receive_on(link, &mut state, bytes, effects);
        self.links.insert(link, state);
        result
    }

    fn close(&mut self, link: LinkId, effects: &mut Effects) {
        let stage = self.links.remove(&link).map(|state| state.stage);
        match stage {
            Some(TrackerStage::Rabit) => self.rabit.close(link, effects),
            Some(TrackerStage::Xgboost) => self.xgboost.close(link, effects),
            Some(TrackerStage::Magic | TrackerStage::Unknown) | None => {}
        }
    }

    fn attempt_ended(&mut self, peer: &Peer, effects: &mut Effects) {
        if let Some(rank) = self.ranks.get(&peer.task).copied() {
            self.end_attempts(rank, peer.attempt.saturating_add(1), effects);
        }
    }

    fn missing(&self) -> Vec<TaskId> {
        let mut ranks = self.rabit.missing();
        ranks.extend(self.xgboost.missing());
        ranks.sort_unstable();
        ranks.dedup();
        ranks.iter().map(|rank| self.tasks[*rank as usize].clone()).collect()
    }
}
