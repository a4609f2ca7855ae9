//! Table of a job's tasks: all of them for `status`, some for the live table.

use super::{
    format::{clean, counted_bytes, seconds},
    metrics,
    paint::Paint,
    table::{Cell, table},
};
use ydl_core::{
    spec::Range,
    view::{JobPhase, TaskState, TaskView},
};
use ydl_proto::{
    messages::JobSnapshot,
    usage::{DownloadProgress, Usage},
};

const HEAD: [&str; 7] = ["TASK", "STATE", "ATTEMPT", "NODE", "FOR", "CPU", "MEMORY"];

/// Returns the column titles. The columns for GPUs and metrics exist only if a task has any.
fn head(snapshot: &JobSnapshot) -> Vec<&'static str> {
    let mut head = HEAD.to_vec();
    if has_gpus(snapshot) {
        head.push("GPU");
    }
    if !snapshot.metrics.is_empty() {
        head.push("METRICS");
    }
    head
}

fn has_gpus(snapshot: &JobSnapshot) -> bool {
    snapshot.usage.values().any(|usage| !usage.gpus.is_empty())
}

/// Formats load and memory of each device: `0: 97% 1.2 GiB`.
fn gpus(usage: &Usage) -> String {
    let each = usage.gpus.iter().map(|gpu| {
        let memory = counted_bytes(gpu.memory_bytes);
        format!("{}: {}% {memory}", gpu.device, gpu.busy_percent)
    });
    each.collect::<Vec<_>>().join(", ")
}

fn row(task: &TaskView, snapshot: &JobSnapshot, paint: Paint) -> Vec<Cell> {
    let usage = snapshot.usage.get(&task.task);
    let cpu = usage.map_or(String::new(), |usage| format!("{}%", usage.cpu_percent));
    let memory = usage.map_or(String::new(), |usage| counted_bytes(usage.memory_bytes));
    let has_ended =
        matches!(task.state, TaskState::Succeeded | TaskState::Failed | TaskState::Stopped);
    let state = state(task, usage);
    let span = seconds(snapshot.view.now - task.since).to_string();
    let mut cells: Vec<Cell> = vec![
        task.task.to_string().into(),
        Cell::painted(&state, |word| paint.state(task.state, word)),
        task.attempt.to_string().into(),
        task.node.as_ref().map_or("", |node| node.as_str()).into(),
        if has_ended { String::new() } else { span }.into(),
        if has_ended { String::new() } else { cpu }.into(),
        if has_ended { String::new() } else { memory }.into(),
    ];
    if has_gpus(snapshot) {
        let gpus = usage.filter(|_| !has_ended).map(gpus).unwrap_or_default();
        cells.push(gpus.into());
    }
    if !snapshot.metrics.is_empty() {
        let reported = snapshot.metrics.get(&task.task).map(metrics::of_task);
        cells.push(reported.unwrap_or_default().into());
    }
    if let Some(ending) = &task.last_ending {
        cells.push(ending.into());
    }
    cells
}

/// Returns the task's state, with progress while its inputs are downloaded.
fn state(task: &TaskView, usage: Option<&Usage>) -> String {
    let download = usage.and_then(|usage| usage.download);
    match download.filter(|_| task.state == TaskState::Launching) {
        Some(DownloadProgress { total: 0, .. }) => "fetching".to_owned(),
        Some(DownloadProgress { bytes, total }) => {
            let percent = bytes.saturating_mul(100) / total.max(1);
            format!("fetching {percent}% of {}", counted_bytes(total))
        }
        None => task.state.word().to_owned(),
    }
}

/// Formats a line for each elastic role, with its target size and its limits.
pub(crate) fn sizes_of_roles(snapshot: &JobSnapshot) -> Vec<String> {
    let roles = snapshot.view.roles.iter();
    let elastic = roles.filter_map(|role| Some((role, role.elastic?)));
    let each = elastic.map(|(role, Range { min, max })| {
        let (name, instances) = (&role.role, role.instances);
        format!("{instances} × `{name}` of {min} to {max}")
    });
    each.collect()
}

/// Formats a line for each task.
pub(crate) fn task_table(snapshot: &JobSnapshot, paint: Paint) -> Vec<String> {
    let mut head = head(snapshot);
    if snapshot.view.tasks.iter().any(|task| task.last_ending.is_some()) {
        head.push("LAST ENDING");
    }
    let rows = snapshot.view.tasks.iter();
    table(&head, rows.map(|task| row(task, snapshot, paint)).collect(), None)
}

/// Returns the rows that fit on part of a terminal, unfinished tasks first.
pub(crate) fn live_table(
    id: &str,
    snapshot: &JobSnapshot,
    paint: Paint,
    width: usize,
    height: usize,
) -> Vec<String> {
    let view = &snapshot.view;
    let phase = match view.phase {
        JobPhase::Pending => "pending",
        JobPhase::Running => "running",
        JobPhase::Ending => "ending",
        JobPhase::Finished => "finished",
    };
    let elapsed = seconds(view.now - view.started);
    let reason = clean(&view.reason);
    let title = format!("{id}  {phase}  {elapsed}  {reason}");
    let title: String = title.chars().take(width).collect();
    let mut lines = vec![paint.bold(&title)];
    let mut order: Vec<&TaskView> = view.tasks.iter().collect();
    order.sort_by_key(|task| urgency(task.state));
    let shown = order.len().min(height.saturating_sub(3).clamp(1, 12));
    let mut selected: Vec<_> = order[..shown].to_vec();
    selected.sort_by_key(|task| view.tasks.iter().position(|other| other.task == task.task));
    let rows = selected.iter().map(|task| row(task, snapshot, paint)).collect();
    lines.extend(table(&head(snapshot), rows, Some(width)));
    if shown < order.len() {
        let roles = view.roles.iter().map(|role| {
            let parts = [
                (role.waiting, "waiting"),
                (role.preparing, "preparing"),
                (role.running, "running"),
                (role.succeeded, "succeeded"),
                (role.failed, "failed"),
            ];
            let parts: Vec<_> = parts
                .iter()
                .filter(|(n, _)| *n > 0)
                .map(|(n, word)| format!("{n} {word}"))
                .collect();
            format!("{}: {}", role.role, parts.join(", "))
        });
        let roles: Vec<_> = roles.collect();
        let rest = format!("… and {} more   {}", order.len() - shown, roles.join("   "));
        lines.push(paint.dim(&rest.chars().take(width).collect::<String>()));
    }
    lines
}

/// Sort key: the most important states come first.
fn urgency(state: TaskState) -> u8 {
    match state {
        TaskState::Failed => 0,
        TaskState::BackingOff | TaskState::Restarting | TaskState::Stopping => 1,
        TaskState::Starting | TaskState::Launching | TaskState::Ready | TaskState::Running => 2,
        TaskState::Requested => 3,
        TaskState::Succeeded | TaskState::Stopped => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ydl_core::Time;
    use ydl_proto::usage::GpuUsage;

    #[test]
    fn the_state_of_a_task_shows_the_progress_of_its_inputs() {
        let task = TaskView {
            task: "worker:0".parse().unwrap(),
            state: TaskState::Launching,
            attempt: 1,
            round: 1,
            container: None,
            node: None,
            since: Time(0),
            last_ending: None,
        };
        let usage = Usage {
            download: Some(DownloadProgress { bytes: 1 << 29, total: 1 << 30 }),
            ..Usage::default()
        };
        assert_eq!(state(&task, Some(&usage)), "fetching 50% of 1.0 GiB");
        assert_eq!(state(&task, None), "launching");
        let empty = Usage { download: Some(DownloadProgress::default()), ..Usage::default() };
        assert_eq!(state(&task, Some(&empty)), "fetching");
    }

    #[test]
    fn gpus_are_shown_with_load_and_memory() {
        let gpu = |device: &str, busy_percent| GpuUsage {
            device: device.to_owned(),
            busy_percent,
            memory_bytes: 3 << 29,
            memory_total_bytes: 1 << 37,
        };
        let usage = Usage { gpus: vec![gpu("0", 97), gpu("3", 0)], ..Usage::default() };
        assert_eq!(gpus(&usage), "0: 97% 1.5 GiB, 3: 0% 1.5 GiB");
    }
}
