//! `ydl nodes`: lists the cluster's nodes with their total and free resources.

use crate::{
    cli::{self, GlobalArgs},
    client::{cluster, master_client::block_on, preflight::Amount},
    terminal::{self, Cell, Paint},
};
use std::{collections::BTreeSet, io};
use yarn_native::types::{NodeReport, NodeState};
use ydl_core::spec::Memory;
use ydl_os::report::{Exit, Report};

/// Prints the table.
pub(crate) fn run(args: cli::NodesArgs, global: GlobalArgs) -> Result<Exit, Report> {
    let cluster = cluster::require(global)?;
    let query = cluster.rm.nodes(&[], cluster.deadline());
    let mut nodes = block_on(cluster.call(query))?;
    let all = nodes.len();
    if !args.all {
        nodes.retain(|node| is_in_service(node.state));
    }
    nodes.sort_by(|a, b| (&a.id.host, a.id.port).cmp(&(&b.id.host, b.id.port)));
    if global.json {
        for node in &nodes {
            terminal::print_json(&object(node))?;
        }
        return Ok(Exit::Success);
    }
    if nodes.is_empty() {
        terminal::message("the cluster has no nodes in service");
    } else {
        let paint = Paint::of(global.use_color(), &io::stdout());
        terminal::print(table(&nodes, paint).join("\n") + "\n")?;
    }
    if all > nodes.len() {
        terminal::message(format!("… and {} out of service: `ydl nodes --all`", all - nodes.len()));
    }
    Ok(Exit::Success)
}

fn is_in_service(state: NodeState) -> bool {
    !matches!(state, NodeState::Lost | NodeState::Shutdown | NodeState::Decommissioned)
}

fn table(nodes: &[NodeReport], paint: Paint) -> Vec<String> {
    let kinds: BTreeSet<&String> = nodes.iter().flat_map(|n| n.capability.others.keys()).collect();
    let mut head = vec!["NODE", "STATE", "LABEL", "MEMORY", "FREE", "VCORES", "FREE"];
    for kind in &kinds {
        head.extend([short_name(kind), "FREE"]);
    }
    head.extend(["CONTAINERS", "RACK", "NOTE"]);
    let rows = nodes.iter().map(|node| {
        let (all, free) = amounts(node);
        let mut cells: Vec<Cell> = vec![
            node.id.to_string().into(),
            Cell::painted(&node.state.to_string().to_lowercase(), |word| match word {
                "running" => word.to_owned(),
                _ => paint.red(word),
            }),
            node.labels.join(",").into(),
            Memory(all.memory_mib).to_string().into(),
            Memory(free.memory_mib).to_string().into(),
            all.vcores.to_string().into(),
            free.vcores.to_string().into(),
        ];
        for kind in &kinds {
            cells.push(all.other(kind).to_string().into());
            cells.push(free.other(kind).to_string().into());
        }
        cells.push(node.containers.to_string().into());
        cells.push(node.rack.as_str().into());
        cells.push(node.health.lines().next().unwrap_or_default().into());
        cells
    });
    terminal::table(&head, rows.collect(), None)
}

/// Returns the name of a resource type without its namespace: `gpu` of `yarn.io/gpu`.
fn short_name(kind: &str) -> &str {
    kind.rsplit('/').next().unwrap_or(kind)
}

fn amounts(node: &NodeReport) -> (Amount, Amount) {
    let all = Amount::from(&node.capability);
    let mut free = all.clone();
    free.subtract(&Amount::from(&node.used));
    (all, free)
}

fn object(node: &NodeReport) -> serde_json::Value {
    let (all, free) = amounts(node);
    let amount = |amount: &Amount| {
        serde_json::json!({
            "memory_mib": amount.memory_mib, "vcores": amount.vcores, "other": amount.others,
        })
    };
    let attributes: std::collections::BTreeMap<_, _> = node
        .attributes
        .iter()
        .map(|attribute| (attribute.name.to_string(), attribute.value.as_str()))
        .collect();
    serde_json::json!({
        "node": node.id.to_string(),
        "state": node.state.to_string(),
        "labels": node.labels,
        "attributes": attributes,
        "rack": node.rack,
        "all": amount(&all),
        "free": amount(&free),
        "containers": node.containers,
        "health": node.health,
        "page": node.http_address,
    })
}
