//! Orders in scenario output.

use ydl_core::{Cluster, Order};

/// Formats an order.
pub fn format_order(order: &Order) -> String {
    match order {
        Order::Wait { round, task, .. } => format!("wait as {task} for round {round}"),
        Order::Run(run) => {
            let rank = match run.cluster.roles.iter().all(|it| it.indexes.is_empty()) {
                true => String::new(),
                false => format!(" as rank {}", run.cluster.rank(&run.task)),
            };
            let own = run.env.iter().map(|(name, value)| format!(" with {name}={value}"));
            let own: String = own.collect();
            format!(
                "run {}{rank} in round {}, attempt {}, of {}{own}",
                run.task,
                run.round,
                run.attempt,
                members(&run.cluster)
            )
        }
        Order::Stop { upload: true, .. } => "stop and upload".into(),
        Order::Stop { upload: false, .. } => "stop".into(),
    }
}

/// Formats the members of a round by role.
pub fn members(cluster: &Cluster) -> String {
    let known = |hosts: usize, all: u32| {
        if hosts == 0 { String::new() } else { format!(" at {hosts} of {all} addresses") }
    };
    let sizes = cluster.roles.iter().map(|it| {
        let hosts = it.endpoints.iter().filter(|it| !it.host.is_empty()).count();
        let which = match it.indexes.is_empty() {
            true => String::new(),
            false => format!(" {:?}", it.indexes),
        };
        let known = known(hosts, it.instances);
        format!("{} {}{which}{known}", it.instances, it.role)
    });
    sizes.collect::<Vec<_>>().join(", ")
}
