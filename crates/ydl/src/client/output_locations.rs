//! Final locations of a job's outputs and missing outputs, from the agents' records.

use crate::{
    client::{jobs::JobHandle, mirror::Mirror},
    terminal::clean,
};
use std::{collections::BTreeMap, time::Duration};
use tokio::time::Instant;
use ydl_core::{
    Outcome, RoleName,
    spec::{ExistingPolicy, Output},
    view::JobView,
};
use ydl_proto::files::JobTarget;
use ydl_storage::data::{Destinations, ReservationLog};

/// Maximum time for reading the record, which is short.
const ASK_MAX: Duration = Duration::from_secs(10);
/// Destinations of one output that are asked for.
const ASKED_MAX: usize = 32;

/// Location of one output, as shown to users.
#[derive(Debug, PartialEq, Eq)]
pub struct OutputLocation {
    /// `model/ → out-2`.
    pub line: String,
    /// Problem with the output.
    pub warning: Option<String>,
}

/// All outputs of a job as they are now.
pub async fn output_locations(
    job: &JobHandle,
    mirror: Option<&Mirror>,
    view: Option<&JobView>,
) -> Vec<OutputLocation> {
    let outputs = &job.submitted.spec.outputs;
    if outputs.is_empty() {
        return Vec::new();
    }
    let deadline = Instant::now() + ASK_MAX;
    let reservations = match (&job.submitted.target, mirror) {
        (JobTarget::Local(_), _) => Some(ReservationLog::Local(job.dir.reservations())),
        (JobTarget::Yarn(_), Some(mirror)) => {
            Some(ReservationLog::Hdfs(mirror.hdfs.clone(), mirror.place.reservations()))
        }
        (JobTarget::Yarn(_), None) => None,
    };
    let mut sizes: BTreeMap<RoleName, u32> = BTreeMap::new();
    for role in view.iter().flat_map(|view| &view.roles) {
        sizes.insert(role.role.clone(), role.instances);
    }
    let succeeded = view.is_some_and(|view| view.outcome == Some(Outcome::Succeeded));
    let names: Vec<String> = outputs.iter().map(|output| output.from.clone()).collect();
    let absent = match &reservations {
        // What is not noted is not told: where something went wrong its cause is.
        Some(reservations) if succeeded => {
            reservations.absent(&names, deadline).await.unwrap_or_default()
        }
        _ => Vec::new(),
    };
    let mut locations = Vec::new();
    for (at, output) in outputs.iter().enumerate() {
        let tasks = tasks(job, output, &sizes);
        let is_missing = tasks > 0 && absent.get(at).is_some_and(|absent| *absent >= tasks);
        let warning = is_missing.then(|| {
            let whose = match tasks {
                1 => "the task".to_owned(),
                tasks => format!("none of {tasks} tasks"),
            };
            let not = if tasks == 1 { "left no" } else { "left a" };
            format!("{whose} {not} `{}`, so nothing was sent", clean(&output.from))
        });
        let to = to(job, output, reservations.as_ref(), &sizes, deadline).await;
        let line = format!("{} → {}", clean(&output.from), clean(&to));
        locations.push(OutputLocation { line, warning });
    }
    locations
}

/// Counts the tasks that send it.
fn tasks(job: &JobHandle, output: &Output, sizes: &BTreeMap<RoleName, u32>) -> usize {
    let mut tasks = 0;
    for role in &job.submitted.spec.roles {
        let instances = sizes.get(&role.name).copied().unwrap_or(role.instances);
        let theirs = (0..instances).filter(|index| output.is_produced_by(role, *index));
        tasks += theirs.count();
    }
    tasks
}

async fn to(
    job: &JobHandle,
    output: &Output,
    reservations: Option<&ReservationLog>,
    sizes: &BTreeMap<RoleName, u32>,
    deadline: Instant,
) -> String {
    let destinations = Destinations {
        id: Some(job.id()),
        home: match &job.submitted.target {
            JobTarget::Yarn(staged) => Some(&staged.home),
            JobTarget::Local(_) => None,
        },
    };
    let all = destinations.destinations(&job.submitted.spec, sizes, output);
    let mut others = Vec::new();
    if let (Some(reservations), false) =
        (reservations, output.existing == ExistingPolicy::Overwrite)
    {
        for to in all.iter().take(ASKED_MAX) {
            let taken = reservations.read(to, deadline).await.ok().flatten();
            others.extend(taken.filter(|taken| taken != to));
        }
    }
    match (all.len(), others.pop()) {
        (1, Some(taken)) => taken,
        (1, None) => all.into_iter().next().unwrap_or_default(),
        (_, None) => job.destination(&output.to),
        (_, Some(taken)) => {
            others.push(taken);
            let named = job.destination(&output.to);
            format!("{named}, some to {}", others.join(", "))
        }
    }
}
