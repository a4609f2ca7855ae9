//! Keys of the capacity scheduler.

use super::ConfigContext;
use crate::{
    options::{Queue, Scheduling},
    site::Site,
};

pub(super) fn common(context: &ConfigContext<'_>, site: &mut Site) {
    let options = context.options;
    let scheduler =
        "org.apache.hadoop.yarn.server.resourcemanager.scheduler.capacity.CapacityScheduler";
    site.yarn("yarn.resourcemanager.scheduler.class", scheduler);
    // The default calculator counts memory only and would overcommit cores and GPUs.
    let calculator = "org.apache.hadoop.yarn.util.resource.DominantResourceCalculator";
    site.queues("resource-calculator", calculator);
    site.queues("maximum-am-resource-percent", "0.9");
    match options.scheduling {
        Scheduling::VersionDefault => {}
        Scheduling::OnHeartbeat => site.queues("schedule-asynchronously.enable", false),
        Scheduling::Continuous => site.queues("schedule-asynchronously.enable", true),
    }

    let names: Vec<_> = options.queues.iter().map(|queue| queue.name.as_str()).collect();
    site.queues("root.queues", names.join(","));
    for queue in &options.queues {
        let key = |name: &str| format!("root.{}.{name}", queue.name);
        site.queues(&key("capacity"), queue.percent);
        site.queues(&key("maximum-capacity"), 100);
        // One user may use the whole queue, and more while other queues are idle.
        site.queues(&key("user-limit-factor"), 100);
    }
    labels(context, site);
}

/// Sets the keys of node labels. Queues that may request a label share it equally.
fn labels(context: &ConfigContext<'_>, site: &mut Site) {
    let options = context.options;
    for queue in options.queues.iter().filter(|_| !options.labels.is_empty()) {
        let mine = options.labels.iter().map(|label| label.name.as_str());
        let mine: Vec<_> =
            mine.filter(|label| label_queues(context, label).contains(&queue)).collect();
        // A blank means no label. Without the key a queue would inherit its parent's labels, and a
        // request for a label would wait forever instead of being rejected.
        let mine = if mine.is_empty() { " ".to_owned() } else { mine.join(",") };
        site.queues(&format!("root.{}.accessible-node-labels", queue.name), mine);
    }
    for label in options.labels.iter().map(|label| label.name.as_str()) {
        site.queues("root.accessible-node-labels", "*");
        site.queues(&format!("root.accessible-node-labels.{label}.capacity"), 100);
        let queues = label_queues(context, label);
        for (index, queue) in queues.iter().enumerate() {
            let key = format!("root.{}.accessible-node-labels.{label}", queue.name);
            // Integer percentages that add up to 100.
            let count = queues.len();
            let percent = 100 * (index + 1) / count - 100 * index / count;
            site.queues(&format!("{key}.capacity"), percent);
            site.queues(&format!("{key}.maximum-capacity"), 100);
        }
    }
}

fn label_queues<'a>(context: &ConfigContext<'a>, label: &str) -> Vec<&'a Queue> {
    let queues = &context.options.queues;
    let named: Vec<_> = queues.iter().filter(|q| q.labels.iter().any(|l| l == label)).collect();
    if named.is_empty() { queues.iter().collect() } else { named }
}
