//! The magic number, who speaks, and which of the two protocols it is.
//!
//! A worker's rank is its place among the tasks that the tracker was made for: known from its agent, the same in every
//! attempt, and not what it says. The address told to others is that of its node.

use std::collections::BTreeMap;

use ydl_core::TaskId;

use crate::{Link, Peer, Protocol, Reaction, Refusal, rabit, xgboost};

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
    lines: BTreeMap<Link, Line>,
    rabit: rabit::Tracker,
    xgboost: xgboost::Tracker,
    dialed: u64,
}

#[derive(Debug)]
struct Line {
    peer: Peer,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
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
            rabit: rabit::Tracker::new(workers),
            xgboost: xgboost::Tracker::new(workers),
            dialed: 0,
        }
    }

    fn rank(&self, peer: &Peer) -> Result<u32, Refusal> {
        let Some(rank) = self.ranks.get(&peer.task).copied() else {
            let what = format!("{} is no worker of this round", peer.task);
            return Err(Refusal::new(what));
        };
        if peer.attempt < self.current[rank as usize] {
            let what = format!("attempt {} of {} is over", peer.attempt, peer.task);
            return Err(Refusal::new(what));
        }
        Ok(rank)
    }

    /// Attempts of a rank before this one are over.
    fn over(&mut self, rank: u32, attempt: u32, reaction: &mut Reaction) {
        let current = &mut self.current[rank as usize];
        if attempt <= *current {
            return;
        }
        *current = attempt;
        let task = self.tasks[rank as usize].clone();
        self.lines.retain(|_, line| line.peer.task != task || line.peer.attempt >= attempt);
        self.rabit.ended(rank, reaction);
        let broken = self.xgboost.ended(rank, reaction);
        self.tell(rank, broken, reaction);
    }

    /// Those whose group is at an end are told at once, each through its own agent.
    fn tell(&mut self, by: u32, broken: Vec<(u32, u16)>, reaction: &mut Reaction) {
        if !broken.is_empty() {
            let task = &self.tasks[by as usize];
            reaction.say(format!(
                "{task} has left the group, and the other {} are told to end",
                broken.len()
            ));
        }
        for (rank, port) in broken {
            let link = Link::Dialed(self.dialed);
            self.dialed += 1;
            reaction.dial(link, self.tasks[rank as usize].clone(), port);
        }
    }

    fn take_on(
        &mut self,
        link: Link,
        line: &mut Line,
        bytes: &[u8],
        reaction: &mut Reaction,
    ) -> Result<Option<usize>, Refusal> {
        let rank = self.rank(&line.peer)?;
        if line.stage == Stage::Magic {
            let differs = bytes.iter().zip(MAGIC).any(|(one, other)| *one != other);
            if differs {
                return Err(Refusal::new("a tracker's magic number is another"));
            }
            if bytes.len() < MAGIC.len() {
                return Ok(None);
            }
            reaction.keep();
            self.over(rank, line.peer.attempt, reaction);
            line.stage = Stage::Either;
            reaction.send(link, MAGIC);
            return Ok(Some(MAGIC.len()));
        }
        if line.stage == Stage::Either {
            // First a number in both, then in one the text of a JSON object, in the other a small number or −1.
            let Some(second) = bytes.get(4..8) else {
                return Ok(None);
            };
            let text = second.iter().all(|byte| (b' '..=b'~').contains(byte));
            line.stage = if text { Stage::Xgboost } else { Stage::Rabit };
            match line.stage {
                Stage::Xgboost => self.xgboost.open(link, rank),
                _ => self.rabit.open(link, rank),
            }
        }
        let host = &line.peer.host;
        if line.stage == Stage::Rabit {
            let Some(heard) = self.rabit.take(link, host, bytes, reaction)? else {
                return Ok(None);
            };
            if let Some(printed) = heard.printed {
                say(&line.peer.task, &String::from_utf8_lossy(printed), reaction);
            }
            return Ok(Some(heard.length));
        }
        let Some(heard) = self.xgboost.take(link, host, bytes, reaction)? else {
            return Ok(None);
        };
        if let Some(lines) = heard.lines {
            say(&line.peer.task, &lines, reaction);
        }
        self.tell(rank, heard.broken, reaction);
        Ok(Some(heard.length))
    }
}

/// What a program prints goes to people as lines, without what would move a cursor.
fn say(task: &TaskId, text: &str, reaction: &mut Reaction) {
    for line in text.trim().lines().take(LINES_MAX) {
        let line = line.trim_end().replace(char::is_control, " ");
        reaction.say(format!("{task}: {line}"));
    }
}

impl Protocol for Tracker {
    fn message_max(&self) -> usize {
        // And a list of all ranks.
        MESSAGE_MAX.max(8 + 4 * self.tasks.len())
    }

    fn open(&mut self, link: Link, peer: &Peer, reaction: &mut Reaction) {
        match link {
            Link::Accepted(_) => {
                let line = Line { peer: peer.clone(), stage: Stage::Magic };
                self.lines.insert(link, line);
            }
            // The only thing that is ever dialed, and once is enough.
            Link::Dialed(_) => {
                reaction.keep();
                reaction.send(link, xgboost::ERROR.to_le_bytes());
                reaction.close(link);
            }
        }
    }

    fn take(
        &mut self,
        link: Link,
        bytes: &[u8],
        reaction: &mut Reaction,
    ) -> Result<Option<usize>, Refusal> {
        let Some(mut line) = self.lines.remove(&link) else {
            return Err(Refusal::new("a link speaks that is over"));
        };
        let took = self.take_on(link, &mut line, bytes, reaction);
        self.lines.insert(link, line);
        took
    }

    fn close(&mut self, link: Link, reaction: &mut Reaction) {
        let stage = self.lines.remove(&link).map(|line| line.stage);
        match stage {
            Some(Stage::Rabit) => self.rabit.close(link, reaction),
            Some(Stage::Xgboost) => self.xgboost.close(link, reaction),
            Some(Stage::Magic | Stage::Either) | None => {}
        }
    }

    fn ended(&mut self, peer: &Peer, reaction: &mut Reaction) {
        if let Some(rank) = self.ranks.get(&peer.task).copied() {
            self.over(rank, peer.attempt.saturating_add(1), reaction);
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
