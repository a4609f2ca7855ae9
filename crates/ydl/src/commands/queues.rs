//! `ydl queues`: the queues of the cluster, and what they may use.

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
pub fn run(global: GlobalArgs) -> Result<Exit, Report> {
    let cluster = cluster::require(global)?;
    let (rm, config) = (&cluster.rm, &cluster.config);
    let asked = preflight::gather(rm, config, &cluster.user, cluster.deadline());
    let has = block_on(cluster.call(asked))?;
    if global.json {
        for queue in &has.queues {
            terminal::print_json(&object(queue))?;
        }
        return Ok(Exit::Success);
    }
    let paint = Paint::of(global.use_color(), &io::stdout());
    let head = ["QUEUE", "STATE", "SUBMIT", "LABEL", "CAPACITY", "MAX"];
    let mut rows = Vec::new();
    for queue in &has.queues {
        for (n, (label, share)) in queue.shares.iter().enumerate() {
            // A label that the queue cannot use says nothing.
            if !label.is_empty() && share.most <= 0.0 {
                continue;
            }
            let first = |text: String| if n == 0 { text } else { String::new() };
            let state = first(queue.state.to_lowercase());
            let yours = match queue.open_to_user {
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
                first(yours.to_owned()).into(),
                label.as_str().into(),
                percent(share.own).into(),
                percent(share.most).into(),
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
            let share = serde_json::json!({ "own": share.own, "most": share.most });
            (label.as_str(), share)
        })
        .collect();
    serde_json::json!({
        "queue": queue.path,
        "state": queue.state,
        "leaf": queue.is_leaf(),
        "open_to_you": queue.open_to_user,
        "labels": queue.labels,
        "label": queue.label,
        "shares": shares,
    })
}
