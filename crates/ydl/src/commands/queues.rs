//! `ydl queues`: lists the cluster's queues with their capacities.

use crate::{
    cli::GlobalArgs,
    client::{
        cluster,
        master_client::block_on,
        preflight::{self, Queue},
    },
    terminal::{self, Cell, Paint},
};
use std::io;
use ydl_os::report::{Exit, Report};

/// Prints the table.
pub(crate) fn run(global: GlobalArgs) -> Result<Exit, Report> {
    let cluster = cluster::require(global)?;
    let (rm, config) = (&cluster.rm, &cluster.config);
    let query = preflight::gather(rm, config, &cluster.user, cluster.deadline());
    let info = block_on(cluster.call(query))?;
    if global.json {
        for queue in &info.queues {
            terminal::print_json(&object(queue))?;
        }
        return Ok(Exit::Success);
    }
    let paint = Paint::of(global.use_color(), &io::stdout());
    let head = ["QUEUE", "STATE", "SUBMIT", "LABEL", "CAPACITY", "MAX"];
    let mut rows = Vec::new();
    for queue in &info.queues {
        for (n, (label, share)) in queue.shares.iter().enumerate() {
            // Skip labels that the queue cannot use.
            if !label.is_empty() && share.max_capacity <= 0.0 {
                continue;
            }
            let first = |text: String| if n == 0 { text } else { String::new() };
            let state = first(queue.state.to_lowercase());
            let can_submit = match queue.can_submit {
                _ if queue.has_children => "-",
                Some(true) => "yes",
                Some(false) => "no",
                None => "?",
            };
            let percent = |part: f64| format!("{:.0}%", part * 100.0);
            rows.push(vec![
                Cell::from(first(queue.path.clone())),
                Cell::painted(&state, |word| match word {
                    "running" | "" => word.to_owned(),
                    _ => paint.red(word),
                }),
                first(can_submit.to_owned()).into(),
                label.as_str().into(),
                percent(share.capacity).into(),
                percent(share.max_capacity).into(),
            ]);
        }
    }
    terminal::print(terminal::table(&head, rows, None).join("\n") + "\n")?;
    Ok(Exit::Success)
}

fn object(queue: &Queue) -> serde_json::Value {
    let shares: std::collections::BTreeMap<_, _> = queue
        .shares
        .iter()
        .map(|(label, share)| {
            let share = serde_json::json!({
                "capacity": share.capacity, "max_capacity": share.max_capacity,
            });
            (label.as_str(), share)
        })
        .collect();
    serde_json::json!({
        "queue": queue.path,
        "state": queue.state,
        "leaf": queue.is_leaf(),
        "can_submit": queue.can_submit,
        "labels": queue.labels,
        "label": queue.label,
        "shares": shares,
    })
}
