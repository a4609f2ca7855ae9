//! `ydl ls`: the jobs of this machine.

use super::reach::{Reach, block_on};
use crate::{
    cli::{self, Manners},
    jobs::{self, Known, Standing},
    report::{Exit, Report},
    show::{self, Cell, Paint},
    talk::Viewed,
};
use std::{io, time::Duration};
use tokio::task::JoinSet;
use ydl_core::{Outcome, view::Phase};

/// Jobs shown unless all are asked for.
const SHOWN: usize = 20;
/// How long a live master may take to say how its job is.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// So many masters are asked at a time.
const ASKED_MAX: usize = 32;

/// A job in the list.
struct Row {
    job: Known,
    state: &'static str,
    viewed: Option<Box<Viewed>>,
}

/// Prints the table.
pub fn run(args: cli::Ls, manners: Manners) -> Result<Exit, Report> {
    let mut jobs = jobs::list()?;
    let all = jobs.len();
    if !args.all {
        jobs.truncate(SHOWN);
    }
    let rows = block_on(look(jobs))?;
    if manners.json {
        for row in &rows {
            show::json(&object(row))?;
        }
        return Ok(Exit::Success);
    }
    if rows.is_empty() {
        show::tell("there is no job on this machine");
        return Ok(Exit::Success);
    }
    let paint = Paint::of(manners.colours(), &io::stdout());
    let head = ["JOB", "NAME", "STATE", "TASKS", "AGE", "OUTCOME"];
    let cells = rows.iter().map(|row| cells(row, paint)).collect();
    show::print(show::table(&head, cells, None).join("\n") + "\n")?;
    if all > rows.len() {
        show::tell(format!(
            "… and {} older ones: `ydl ls --all`",
            all - rows.len()
        ));
    }
    Ok(Exit::Success)
}

/// Asks every live master at once; a slow one must not hold up the others.
async fn look(jobs: Vec<Known>) -> Result<Vec<Row>, Report> {
    let mut rows: Vec<Option<Row>> = Vec::new();
    let mut asking = JoinSet::new();
    for (n, job) in jobs.into_iter().enumerate() {
        rows.push(None);
        while asking.len() >= ASKED_MAX {
            if let Some(Ok((n, row))) = asking.join_next().await {
                place(&mut rows, n, row);
            }
        }
        asking.spawn(async move { (n, row(job).await) });
    }
    while let Some(asked) = asking.join_next().await {
        if let Ok((n, row)) = asked {
            place(&mut rows, n, row);
        }
    }
    Ok(rows.into_iter().flatten().collect())
}

fn place(rows: &mut [Option<Row>], n: usize, row: Row) {
    if let Some(place) = rows.get_mut(n) {
        *place = Some(row);
    }
}

async fn row(job: Known) -> Row {
    let (state, viewed) = match job.standing() {
        Standing::Starting => ("starting", None),
        Standing::Lost => ("lost", None),
        Standing::Ended(ended) => (ended.state, None),
        Standing::Over(last) => (state_of(&last), Some(last)),
        Standing::Live(at) => {
            let asked = async {
                Reach::to(&job.dir, &at)
                    .ok()?
                    .view(0, ANSWER_MAX)
                    .await
                    .ok()?
            };
            match tokio::time::timeout(ANSWER_MAX, asked).await {
                Ok(Some(viewed)) => (state_of(&viewed), Some(Box::new(viewed))),
                Ok(None) | Err(_) => ("no-answer", None),
            }
        }
    };
    Row { job, state, viewed }
}

/// One word for how a job stands.
pub(super) fn state_of(viewed: &Viewed) -> &'static str {
    match (&viewed.view.outcome, viewed.view.phase) {
        (Some(Outcome::Succeeded), Phase::Finished) => "succeeded",
        (Some(Outcome::Failed(_)), Phase::Finished) => "failed",
        (Some(Outcome::Killed { .. }), Phase::Finished) => "killed",
        (_, Phase::Gathering) => "gathering",
        (_, Phase::Running) => "running",
        (_, Phase::Ending) => "ending",
        (None, Phase::Finished) => "finished",
    }
}

fn cells(row: &Row, paint: Paint) -> Vec<Cell> {
    let state = Cell::painted(row.state, |word| match word {
        "running" => paint.bold(word),
        "succeeded" => paint.green(word),
        "failed" | "lost" => paint.red(word),
        _ => word.to_string(),
    });
    let spec = &row.job.submitted.spec;
    let tasks = match &row.viewed {
        Some(viewed) if viewed.view.outcome.is_none() => {
            let running: u32 = viewed.view.roles.iter().map(|role| role.running).sum();
            format!("{running}/{}", viewed.view.tasks.len())
        }
        _ => spec.tasks().to_string(),
    };
    let outcome = match (&row.viewed, row.state) {
        (_, "lost") => "its master died".to_string(),
        (Some(viewed), _) => viewed.view.outcome.as_ref().map_or(String::new(), short),
        (None, _) => String::new(),
    };
    let age = show::span_since(row.job.submitted.at).to_string();
    vec![
        row.job.id().into(),
        spec.name.as_str().into(),
        state,
        tasks.into(),
        age.into(),
        outcome.into(),
    ]
}

/// What the state does not say already.
fn short(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Succeeded => String::new(),
        Outcome::Failed(cause) => cause.to_string(),
        Outcome::Killed { by } => format!("by {by}"),
    }
}

fn object(row: &Row) -> serde_json::Value {
    let submitted = &row.job.submitted;
    let outcome = row
        .viewed
        .as_ref()
        .and_then(|viewed| viewed.view.outcome.as_ref());
    serde_json::json!({
        "id": submitted.id,
        "name": submitted.spec.name,
        "state": row.state,
        "tasks": submitted.spec.tasks(),
        "submitted": submitted.at,
        "outcome": outcome,
        "directory": row.job.dir.path(),
    })
}
