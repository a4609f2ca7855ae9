//! `ydl kill`: stops a job and waits until it has.

use super::{
    ls::state_of,
    reach::{Reach, block_on, left, report, settled, signal_master},
};
use crate::{
    cli::{self, Manners},
    jobs::{self, Known, Standing},
    report::{Exit, Report},
    show,
    wire::client::CallError,
};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use ydl_core::Span;

/// What giving everything back may take beyond the job's own deadlines.
const MARGIN: Duration = Duration::from_secs(30);
/// How often the job is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// Asks the job to end and waits.
pub fn run(args: cli::Kill, manners: Manners) -> Result<Exit, Report> {
    let job = jobs::find(&args.job)?;
    block_on(kill(job, args.now, manners))
}

async fn kill(job: Known, now: bool, manners: Manners) -> Result<Exit, Report> {
    let over = |standing: Standing, killed: bool| -> Result<Exit, Report> {
        let state = match &standing {
            Standing::Over(last) => state_of(last),
            _ => "lost",
        };
        if manners.json {
            show::json(&serde_json::json!({ "id": job.id(), "state": state, "stopped": killed }))?;
        } else if killed {
            show::tell(format!("{} is over: {state}", job.id()));
        } else {
            show::tell(format!("{} was over already: {state}", job.id()));
        }
        Ok(Exit::Success)
    };
    let place = match settled(&job).await {
        Standing::Live(place) => place,
        standing => return over(standing, false),
    };
    let by = if now {
        "`ydl kill --now`"
    } else {
        "`ydl kill`"
    };
    match Reach::to(&job.dir, &place)?.kill(by, now).await {
        Ok(()) => {}
        // It ended while we asked.
        Err(CallError::Refused { status: 410, .. } | CallError::Unreachable { .. })
            if !matches!(job.standing(), Standing::Live(_)) =>
        {
            return over(job.standing(), false);
        }
        Err(CallError::Unreachable { .. } | CallError::TooLate { .. }) => {
            let (name, hint) = match now {
                true => ("SIGKILL", ""),
                false => ("SIGTERM", " (if that does not help: `ydl kill --now`)"),
            };
            show::tell(format!(
                "the master of {} does not answer; its process {} is sent {name}{hint}",
                job.id(),
                place.pid
            ));
            signal_master(&place, now)?;
        }
        Err(error) => return Err(report(error)),
    }
    let deadlines = &job.submitted.spec.deadlines;
    let Span(ms) = deadlines.grace + deadlines.stop + deadlines.save;
    let patience = Duration::from_millis(ms) + MARGIN;
    let end = Instant::now() + patience;
    loop {
        match job.standing() {
            Standing::Live(_) | Standing::Starting if Instant::now() < end => sleep(LOOK).await,
            Standing::Live(_) | Standing::Starting => {
                let what = format!("`{}` has not ended after {}s", job.id(), patience.as_secs());
                let hint = format!("`ydl status {}` shows what it waits for", job.id());
                return Err(Report::new(Exit::Unreachable, what).hint(hint));
            }
            standing => {
                left(&job).await;
                return over(standing, true);
            }
        }
    }
}
