//! Final locations of a job's outputs, and missing outputs, from the agents' records.

use crate::{
    client::{jobs::JobHandle, mirror::Mirror},
    terminal::clean,
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::time::Instant;
use ydl_core::{
    Outcome, RoleName,
    spec::{ExistingPolicy, Output},
    view::JobView,
};
use ydl_proto::files::JobTarget;
use ydl_storage::data::{Destinations, ReservationLog};

/// Maximum time for reading the records.
const READ_MAX: Duration = Duration::from_secs(10);
/// Maximum number of destinations looked up for one output.
const DESTINATIONS_MAX: usize = 32;

/// Location of one output, as shown to users.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OutputLocation {
    /// `model/ → out-2`.
    pub line: String,
    /// Problem with the output.
    pub warning: Option<String>,
}

/// Returns the current locations of a job's outputs.
pub(crate) async fn output_locations(
    job: &JobHandle,
    mirror: Option<&Mirror>,
    view: Option<&JobView>,
) -> Vec<OutputLocation> {
    let outputs = &job.submitted.spec.outputs;
    if outputs.is_empty() {
        return Vec::new();
    }
    let deadline = Instant::now() + READ_MAX;
    let reservations = match (&job.submitted.target, mirror) {
        (JobTarget::Local(_), _) => Some(ReservationLog::local(&job.dir.reservations())),
        (JobTarget::Yarn(_), Some(mirror)) => {
            let store = Arc::new(mirror.hdfs.clone());
            Some(ReservationLog::new(store, mirror.layout.reservations()))
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
        // A failed job reports its cause instead of missing outputs.
        Some(reservations) if succeeded => {
            reservations.absent(&names, deadline).await.unwrap_or_default()
        }
        _ => Vec::new(),
    };
    let mut locations = Vec::new();
    for (at, output) in outputs.iter().enumerate() {
        let tasks = task_count(job, output, &sizes);
        let is_missing = tasks > 0 && absent.get(at).is_some_and(|absent| *absent >= tasks);
        let warning = is_missing.then(|| {
            let path = clean(&output.from);
            match tasks {
                1 => format!("nothing was uploaded: the task wrote no `{path}`"),
                tasks => format!("nothing was uploaded: none of {tasks} tasks wrote `{path}`"),
            }
        });
        let to = destination(job, output, reservations.as_ref(), &sizes, deadline).await;
        let line = format!("{} → {}", clean(&output.from), clean(&to));
        locations.push(OutputLocation { line, warning });
    }
    locations
}

/// Counts the tasks that produce an output.
fn task_count(job: &JobHandle, output: &Output, sizes: &BTreeMap<RoleName, u32>) -> usize {
    let mut count = 0;
    for role in &job.submitted.spec.roles {
        let instances = sizes.get(&role.name).copied().unwrap_or(role.instances);
        count += (0..instances).filter(|index| output.is_produced_by(role, *index)).count();
    }
    count
}

/// Returns the destination of an output, with the numbered directories that replaced it.
async fn destination(
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
        for to in all.iter().take(DESTINATIONS_MAX) {
            let reserved = reservations.read(to, deadline).await.ok().flatten();
            others.extend(reserved.filter(|reserved| reserved != to));
        }
    }
    match (all.len(), others.pop()) {
        (1, Some(numbered)) => numbered,
        (1, None) => all.into_iter().next().unwrap_or_default(),
        (_, None) => job.destination(&output.to),
        (_, Some(numbered)) => {
            others.push(numbered);
            format!("{}, some to {}", job.destination(&output.to), others.join(", "))
        }
    }
}
