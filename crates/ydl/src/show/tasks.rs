//! A job's tasks as a table: whole for `status`, a few lines for the live one.

use super::{
    paint::Paint,
    table::{Cell, table},
    words::{clean, counted_bytes, seconds},
};
use crate::talk::Viewed;
use ydl_core::view::{Phase, TaskState, TaskView};

const HEAD: [&str; 7] = ["TASK", "STATE", "ATTEMPT", "NODE", "FOR", "CPU", "MEMORY"];

fn row(task: &TaskView, viewed: &Viewed, paint: Paint) -> Vec<Cell> {
    let usage = viewed.usage.get(&task.task);
    let cpu = usage.map_or(String::new(), |usage| format!("{}%", usage.cpu_percent));
    let memory = usage.map_or(String::new(), |usage| counted_bytes(usage.memory_bytes));
    let over = matches!(
        task.state,
        TaskState::Succeeded | TaskState::Failed | TaskState::Stopped
    );
    let span = seconds(viewed.view.now - task.since).to_string();
    let mut cells: Vec<Cell> = vec![
        task.task.to_string().into(),
        Cell::painted(task.state.word(), |word| paint.state(task.state, word)),
        task.attempt.to_string().into(),
        task.node.as_ref().map_or("", |node| node.as_str()).into(),
        if over { String::new() } else { span }.into(),
        if over { String::new() } else { cpu }.into(),
        if over { String::new() } else { memory }.into(),
    ];
    if let Some(ending) = &task.last_ending {
        cells.push(ending.into());
    }
    cells
}

/// Every task, a line each.
pub fn tasks(viewed: &Viewed, paint: Paint) -> Vec<String> {
    let mut head = HEAD.to_vec();
    if viewed
        .view
        .tasks
        .iter()
        .any(|task| task.last_ending.is_some())
    {
        head.push("LAST ENDING");
    }
    let rows = viewed.view.tasks.iter();
    table(
        &head,
        rows.map(|task| row(task, viewed, paint)).collect(),
        None,
    )
}

/// What fits on part of a terminal: those first that have something left to do.
pub fn live(id: &str, viewed: &Viewed, paint: Paint, width: usize, height: usize) -> Vec<String> {
    let view = &viewed.view;
    let phase = match view.phase {
        Phase::Gathering => "gathering",
        Phase::Running => "running",
        Phase::Ending => "ending",
        Phase::Finished => "finished",
    };
    let elapsed = seconds(view.now - view.started);
    let why = clean(&view.why);
    let title = format!("{id}  {phase}  {elapsed}  {why}");
    let title: String = title.chars().take(width).collect();
    let mut lines = vec![paint.bold(&title)];
    let mut order: Vec<&TaskView> = view.tasks.iter().collect();
    order.sort_by_key(|task| urgency(task.state));
    let shown = order.len().min(height.saturating_sub(3).clamp(1, 12));
    let mut chosen: Vec<_> = order[..shown].to_vec();
    chosen.sort_by_key(|task| view.tasks.iter().position(|other| other.task == task.task));
    let rows = chosen.iter().map(|task| row(task, viewed, paint)).collect();
    lines.extend(table(&HEAD, rows, Some(width)));
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

/// What a person looks for first comes first.
fn urgency(state: TaskState) -> u8 {
    match state {
        TaskState::Failed => 0,
        TaskState::BackingOff | TaskState::Rewinding | TaskState::Stopping => 1,
        TaskState::Starting | TaskState::Launching | TaskState::Ready | TaskState::Running => 2,
        TaskState::Asked => 3,
        TaskState::Succeeded | TaskState::Stopped => 4,
    }
}
