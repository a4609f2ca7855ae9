//! The magic number, who speaks, and which of the two protocols it is.
//!
//! A worker's rank is its place among the tasks that the tracker was made for: known from its agent, the same in every
//! attempt, and not what it says. The address told to others is that of its node.

use std::collections::BTreeMap;

use ydl_core::TaskId;

use crate::{Effects, LinkId, Peer, Protocol, Rejection, rabit, xgboost};

const MAGIC: [u8; 4] = 0xff99_u32.to_le_bytes();
/// The longest thing that either protocol takes: two texts of 64 KiB with something around them.
const MESSAGE_MAX: usize = 192 << 10;
/// What is printed at once goes to the log as so many lines.
const LINES_MAX: usize = 64;

/// Rabit's and XGBoost's tracker.
#[derive(Debug)]
pub struct Tracker {
    ranks: BTreeMap<TaskId, u32>,
    tasks: Vec<TaskId>,
    /// The attempt of each rank below which nothing counts any more.
    current: Vec<u32>,
    lines: BTreeMap<LinkId, TrackerLink>,
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
    /// Which of the two is not known yet.
    Either,
    Rabit,
    Xgboost,
}

impl Tracker {
    /// For these tasks, which are the ranks from 0 on.
    pub fn new(tasks: Vec<TaskId>) -> Tracker {
        let workers = u32::try_from(tasks.len()).unwrap_or(u32::MAX);
        Tracker {
            ranks: tasks.iter().cloned().zip(0..).collect(),
            current: vec![0; tasks.len()],
            tasks,
            lines: BTreeMap::new(),
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

    /// Attempts of a rank before this one are over.
    fn over(&mut self, rank: u32, attempt: u32, effects: &mut Effects) {
        let current = &mut self.current[rank as usize];
        if attempt <= *current {
            return;
        }
        *current = attempt;
        let task = self.tasks[rank as usize].clone();
        self.lines.retain(|_, line| line.peer.task != task || line.peer.attempt >= attempt);
        self.rabit.attempt_ended(rank, effects);
        let broken = self.xgboost.attempt_ended(rank, effects);
        self.tell(rank, broken, effects);
    }

    /// Those whose group is at an end are told at once, each through its own agent.
    fn tell(&mut self, by: u32, broken: Vec<(u32, u16)>, effects: &mut Effects) {
        if !broken.is_empty() {
            let task = &self.tasks[by as usize];
            effects
                .log(format!("{task} left the group; stopping the other {} workers", broken.len()));
        }
        for (rank, port) in broken {
            let link = LinkId::Dialed(self.dialed);
            self.dialed += 1;
            effects.dial(link, self.tasks[rank as usize].clone(), port);
        }
    }

    fn receive_on(
        &mut self,
        link: LinkId,
        line: &mut TrackerLink,
        bytes: &[u8],
        effects: &mut Effects,
    ) -> Result<Option<usize>, Rejection> {
        let rank = self.rank(&line.peer)?;
        if line.stage == TrackerStage::Magic {
            let differs = bytes.iter().zip(MAGIC).any(|(one, other)| *one != other);
            if differs {
                return Err(Rejection::new("invalid tracker magic number"));
            }
            if bytes.len() < MAGIC.len() {
                return Ok(None);
            }
            effects.persist();
            self.over(rank, line.peer.attempt, effects);
            line.stage = TrackerStage::Either;
            effects.send(link, MAGIC);
            return Ok(Some(MAGIC.len()));
        }
        if line.stage == TrackerStage::Either {
            // First a number in detect, then in one the text of a JSON object, in the other a small number or −1.
            let Some(second) = bytes.get(4..8) else {
                return Ok(None);
            };
            let text = second.iter().all(|byte| (b' '..=b'~').contains(byte));
            line.stage = if text { TrackerStage::Xgboost } else { TrackerStage::Rabit };
            match line.stage {
                TrackerStage::Xgboost => self.xgboost.open(link, rank),
                _ => self.rabit.open(link, rank),
            }
        }
        let host = &line.peer.host;
        if line.stage == TrackerStage::Rabit {
            let Some(heard) = self.rabit.receive(link, host, bytes, effects)? else {
                return Ok(None);
            };
            if let Some(printed) = heard.printed {
                say(&line.peer.task, &String::from_utf8_lossy(printed), effects);
            }
            return Ok(Some(heard.length));
        }
        let Some(heard) = self.xgboost.receive(link, host, bytes, effects)? else {
            return Ok(None);
        };
        if let Some(lines) = heard.lines {
            say(&line.peer.task, &lines, effects);
        }
        self.tell(rank, heard.broken, effects);
        Ok(Some(heard.length))
    }
}

/// What a program prints goes to people as lines, without what would move a cursor.
fn say(task: &TaskId, text: &str, effects: &mut Effects) {
    for line in text.trim().lines().take(LINES_MAX) {
        let line = line.trim_end().replace(char::is_control, " ");
        effects.log(format!("{task}: {line}"));
    }
}

impl Protocol for Tracker {
    fn max_message_len(&self) -> usize {
        // And a list of all ranks.
        MESSAGE_MAX.max(8 + 4 * self.tasks.len())
    }

    fn open(&mut self, link: LinkId, peer: &Peer, effects: &mut Effects) {
        match link {
            LinkId::Accepted(_) => {
                let line = TrackerLink { peer: peer.clone(), stage: TrackerStage::Magic };
                self.lines.insert(link, line);
            }
            // The only thing that is ever dialed, and once is enough.
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
        let Some(mut line) = self.lines.remove(&link) else {
            return Err(Rejection::new("input on a closed link"));
        };
        let took = self.receive_on(link, &mut line, bytes, effects);
        self.lines.insert(link, line);
        took
    }

    fn close(&mut self, link: LinkId, effects: &mut Effects) {
        let stage = self.lines.remove(&link).map(|line| line.stage);
        match stage {
            Some(TrackerStage::Rabit) => self.rabit.close(link, effects),
            Some(TrackerStage::Xgboost) => self.xgboost.close(link, effects),
            Some(TrackerStage::Magic | TrackerStage::Either) | None => {}
        }
    }

    fn attempt_ended(&mut self, peer: &Peer, effects: &mut Effects) {
        if let Some(rank) = self.ranks.get(&peer.task).copied() {
            self.over(rank, peer.attempt.saturating_add(1), effects);
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
