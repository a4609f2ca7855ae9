//! `ydl status`: how a job stands, and why.

use super::{
    follow::written_facts,
    ls::state_of,
    reach::{Reach, block_on, settled},
};
use crate::{
    cli::{self, Manners},
    jobs::{self, Ended, Known, Standing},
    report::{Exit, Report},
    show::{self, Paint, clean},
    talk::Viewed,
};
use std::{collections::VecDeque, io, time::Duration};
use ydl_core::Fact;

/// How long a master may take to show its job.
const WAIT: Duration = Duration::from_secs(5);

/// Agents end their programs with grace when their master is gone, so this may take a moment to become true.
const LOST: &str =
    "the job's master died without leaving a result; its programs are ended by their agents";

/// Prints what is known. That a job failed is no failure of this command.
pub fn run(args: cli::Status, manners: Manners) -> Result<Exit, Report> {
    let job = match &args.job {
        Some(word) => jobs::find(word)?,
        None => jobs::newest()?,
    };
    let Seen {
        state,
        viewed,
        unreachable,
    } = block_on(look(&job))?;
    let exit = match &unreachable {
        Some(_) => Exit::Unreachable,
        None => Exit::Success,
    };
    let facts = last_facts(&job, args.facts);
    if manners.json {
        show::json(&serde_json::json!({
            "id": job.id(),
            "state": state,
            "submitted": job.submitted.at,
            "directory": job.dir.path(),
            "view": viewed.as_ref().map(|viewed| &viewed.view),
            "usage": viewed.as_ref().map(|viewed| &viewed.usage),
            "unreachable": unreachable,
            "facts": facts,
        }))?;
        return Ok(exit);
    }
    let paint = Paint::of(manners.colours(), &io::stdout());
    let why = match (state, unreachable) {
        ("lost", _) => Some(LOST.to_owned()),
        (_, why) => why.map(|why| format!("its master runs and does not answer: {why}")),
    };
    show::print(text(&job, state, viewed.as_deref(), why, &facts, paint))?;
    Ok(exit)
}

/// What could be seen of a job.
struct Seen {
    state: &'static str,
    viewed: Option<Box<Viewed>>,
    /// Why its master, which runs, could not be asked.
    unreachable: Option<String>,
}

impl Seen {
    fn view(viewed: Box<Viewed>) -> Seen {
        Seen {
            state: state_of(&viewed),
            viewed: Some(viewed),
            unreachable: None,
        }
    }

    fn ended(ended: Ended) -> Seen {
        Seen {
            unreachable: None,
            ..Seen::only(ended.state)
        }
    }

    fn only(state: &'static str) -> Seen {
        Seen {
            state,
            viewed: None,
            unreachable: None,
        }
    }
}

async fn look(job: &Known) -> Result<Seen, Report> {
    let place = match settled(job).await {
        Standing::Over(last) => return Ok(Seen::view(last)),
        Standing::Lost => return Ok(Seen::only("lost")),
        Standing::Ended(ended) => return Ok(Seen::ended(ended)),
        Standing::Starting => return Ok(Seen::only("starting")),
        Standing::Live(place) => place,
    };
    let asked = Reach::to(&job.dir, &place)?.view(0, WAIT).await;
    let why = match asked {
        Ok(Some(viewed)) => return Ok(Seen::view(Box::new(viewed))),
        Ok(None) => format!("nothing came within {}s", WAIT.as_secs()),
        Err(error) => error.to_string(),
    };
    // It may have ended while we asked.
    Ok(match job.standing() {
        Standing::Over(last) => Seen::view(last),
        Standing::Lost => Seen::only("lost"),
        Standing::Ended(ended) => Seen::ended(ended),
        Standing::Starting | Standing::Live(_) => Seen {
            unreachable: Some(why),
            ..Seen::only("no-answer")
        },
    })
}

/// The last facts that were written down.
fn last_facts(job: &Known, count: usize) -> Vec<Fact> {
    let mut last = VecDeque::new();
    for fact in written_facts(job, 0) {
        last.push_back(fact);
        if last.len() > count {
            last.pop_front();
        }
    }
    last.into()
}

fn text(
    job: &Known,
    state: &str,
    viewed: Option<&Viewed>,
    why: Option<String>,
    facts: &[Fact],
    paint: Paint,
) -> String {
    let mut lines = Vec::new();
    let mut line = |name: &str, value: &str| {
        lines.push(format!(
            "{}{}",
            paint.dim(&format!("{name:<11}")),
            clean(value)
        ));
    };
    line("job", job.id());
    line("state", state);
    if let Some(why) = why {
        line("why", &why);
        line("master log", &job.dir.master_log().display().to_string());
    }
    if let Some(viewed) = viewed {
        line("why", &viewed.view.why);
        line("round", &viewed.view.round.to_string());
        line("ran", &(viewed.view.now - viewed.view.started).to_string());
    }
    line(
        "submitted",
        &format!("{} ago", show::span_since(job.submitted.at)),
    );
    line("directory", &job.dir.path().display().to_string());
    for output in &job.submitted.spec.outputs {
        line("output", &format!("{} → {}", output.from, output.to));
    }
    if let Some(viewed) = viewed {
        lines.push(String::new());
        lines.extend(show::tasks(viewed, paint));
    }
    if !facts.is_empty() {
        lines.push(String::new());
        lines.push(paint.dim("last facts"));
        for fact in facts {
            let ago = show::span_since(fact.at).to_string();
            lines.push(format!("  {ago:>8} ago  {}", clean(&fact.what.to_string())));
        }
    }
    lines.join("\n") + "\n"
}
