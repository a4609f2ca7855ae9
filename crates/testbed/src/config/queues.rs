//! The capacity scheduler.

use super::Plan;
use crate::{
    options::{Queue, Scheduling},
    site::Site,
};

pub(super) fn common(plan: &Plan<'_>, site: &mut Site) {
    let options = plan.options;
    let scheduler =
        "org.apache.hadoop.yarn.server.resourcemanager.scheduler.capacity.CapacityScheduler";
    site.yarn("yarn.resourcemanager.scheduler.class", scheduler);
    // The default counts memory alone, and would hand out cores and GPUs that are not there.
    let calculator = "org.apache.hadoop.yarn.util.resource.DominantResourceCalculator";
    site.queues("resource-calculator", calculator);
    site.queues("maximum-am-resource-percent", "0.9");
    match options.scheduling {
        Scheduling::AsShipped => {}
        Scheduling::OnHeartbeat => site.queues("schedule-asynchronously.enable", false),
        Scheduling::Continuous => site.queues("schedule-asynchronously.enable", true),
    }

    let names: Vec<_> = options.queues.iter().map(|queue| queue.name.as_str()).collect();
    site.queues("root.queues", names.join(","));
    for queue in &options.queues {
        let key = |name: &str| format!("root.{}.{name}", queue.name);
        site.queues(&key("capacity"), queue.percent);
        site.queues(&key("maximum-capacity"), 100);
        // One user may take the whole of a queue, and more while nobody else wants it.
        site.queues(&key("user-limit-factor"), 100);
    }
    labels(plan, site);
}

/// The queues that may ask for a label share it equally.
fn labels(plan: &Plan<'_>, site: &mut Site) {
    let options = plan.options;
    for queue in options.queues.iter().filter(|_| !options.labels.is_empty()) {
        let mine = options.labels.iter().map(|label| label.name.as_str());
        let mine: Vec<_> = mine.filter(|label| sharers(plan, label).contains(&queue)).collect();
        // One blank means none; without the key a queue would inherit its parent's, and an ask for
        // a label would wait for ever instead of being refused.
        let mine = if mine.is_empty() { " ".to_owned() } else { mine.join(",") };
        site.queues(&format!("root.{}.accessible-node-labels", queue.name), mine);
    }
    for label in options.labels.iter().map(|label| label.name.as_str()) {
        site.queues("root.accessible-node-labels", "*");
        site.queues(&format!("root.accessible-node-labels.{label}.capacity"), 100);
        let sharers = sharers(plan, label);
        for (index, queue) in sharers.iter().enumerate() {
            let key = format!("root.{}.accessible-node-labels.{label}", queue.name);
            // Whole percents that make 100 together.
            let count = sharers.len();
            let percent = 100 * (index + 1) / count - 100 * index / count;
            site.queues(&format!("{key}.capacity"), percent);
            site.queues(&format!("{key}.maximum-capacity"), 100);
        }
    }
}

fn sharers<'a>(plan: &Plan<'a>, label: &str) -> Vec<&'a Queue> {
    let queues = &plan.options.queues;
    let named: Vec<_> = queues.iter().filter(|q| q.labels.iter().any(|l| l == label)).collect();
    if named.is_empty() { queues.iter().collect() } else { named }
}
