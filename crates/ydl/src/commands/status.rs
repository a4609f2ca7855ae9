//! `ydl status`: how a job stands, and why.

use super::{
    follow::written_facts,
    ls::state_of,
    reach::{Reach, block_on, report, settled},
};
use crate::{
    cli::{self, Manners},
    jobs::{self, Known, Standing},
    report::{Exit, Report},
    show::{self, Paint, clean},
    talk::Viewed,
};
use std::{collections::VecDeque, io, time::Duration};
use ydl_core::Fact;

/// How long a master may take to show its job.
const WAIT: Duration = Duration::from_secs(5);

/// Prints what is known. That a job failed is no failure of this command.
pub fn run(args: cli::Status, manners: Manners) -> Result<Exit, Report> {
    let job = match &args.job {
        Some(word) => jobs::find(word)?,
        None => jobs::newest()?,
    };
    let (state, viewed) = block_on(look(&job))?;
    let facts = last_facts(&job, args.facts);
    if manners.json {
        show::json(&serde_json::json!({
            "id": job.id(),
            "state": state,
            "submitted": job.submitted.at,
            "directory": job.dir.path(),
            "view": viewed.as_ref().map(|viewed| &viewed.view),
            "usage": viewed.as_ref().map(|viewed| &viewed.usage),
            "facts": facts,
        }))?;
        return Ok(Exit::Success);
    }
    let paint = Paint::of(manners.colours(), &io::stdout());
    show::print(text(&job, state, viewed.as_deref(), &facts, paint))?;
    Ok(Exit::Success)
}

async fn look(job: &Known) -> Result<(&'static str, Option<Box<Viewed>>), Report> {
    match settled(job).await {
        Standing::Over(last) => Ok((state_of(&last), Some(last))),
        Standing::Lost => Ok(("lost", None)),
        Standing::Starting => Ok(("starting", None)),
        Standing::Live(place) => {
            let reach = Reach::to(&job.dir, &place)?;
            match reach.view(0, WAIT).await {
                Ok(Some(viewed)) => Ok((state_of(&viewed), Some(Box::new(viewed)))),
                // It may have ended while we asked.
                asked => match (job.standing(), asked) {
                    (Standing::Over(last), _) => Ok((state_of(&last), Some(last))),
                    (Standing::Lost, _) => Ok(("lost", None)),
                    (_, Err(error)) => Err(report(error)),
                    (_, Ok(_)) => Ok(("no-answer", None)),
                },
            }
        }
    }
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

fn text(job: &Known, state: &str, viewed: Option<&Viewed>, facts: &[Fact], paint: Paint) -> String {
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
    match viewed {
        Some(viewed) => {
            line("why", &viewed.view.why);
            line("round", &viewed.view.round.to_string());
            line("ran", &(viewed.view.now - viewed.view.started).to_string());
        }
        None if state == "lost" => {
            line(
                "why",
                "the job's master died without leaving a result; its programs died with it",
            );
            line("master log", &job.dir.master_log().display().to_string());
        }
        None => {}
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
