//! Jobs of every framework on a real cluster, one of whose nodes dies under all of them.

use std::time::Duration;
use testbed::{Cluster, File, Lease, Options};
use yarn_native::types::FinalStatus;
use ydl_testkit::yarn::{
    ClusterJob, application, digits, shared,
    training::{TrainingOptions, printed, printed_value, submit_training},
    version, wait_finished, wait_for,
};

fn cluster() -> Lease {
    let options = Options {
        nodes: 2,
        // Room for all on one of them, too: masters may all be there.
        node_memory_mib: 32 << 10,
        node_vcores: 32,
        // Longer than a busy machine keeps a NodeManager from its beats.
        expiry: Duration::from_secs(20),
        ..Options::new(version())
    };
    // Only nodes are missed that soon: seven jobs begin at once, on a machine that may be small.
    let patience = ("yarn.am.liveness-monitor.expiry-interval-ms", "120000");
    shared(options.set(File::Yarn, patience.0, patience.1))
}

/// A framework, the arguments of its example, and the words after which its workers say the same.
struct Training {
    framework: &'static str,
    arguments: &'static str,
    equal: &'static str,
}

const ALL: [Training; 7] = [
    of("tensorflow", "--epochs 12", "weights "),
    of("jax", "--epochs 12", "weights "),
    of("horovod", "--epochs 12", "weights "),
    of("pytorch", "--epochs 12", "weights "),
    of("mxnet", "--epochs 12", "test accuracy "),
    of("xgboost", "--rounds 10", "gain "),
    of("lightgbm", "--rounds 20", "gain "),
];

const fn of(framework: &'static str, arguments: &'static str, equal: &'static str) -> Training {
    Training { framework, arguments, equal }
}

impl Training {
    /// A worker on each node. The first round would last for ever.
    fn begin<'a>(&self, cluster: &'a Cluster) -> ClusterJob<'a> {
        let arguments = format!("{} $([ $YDL_ROUND -gt 1 ] || echo --pause 600)", self.arguments);
        let more = TrainingOptions {
            worker: "instances: 2, placement: {max_per_node: 1}",
            ..TrainingOptions::default()
        };
        let more = match self.framework {
            "mxnet" => {
                TrainingOptions { roles: ", server: {instances: 1, memory: 512 MiB}", ..more }
            }
            // It looks for itself among the machine's interfaces, and the test bed's nodes have other addresses.
            "lightgbm" => TrainingOptions { job: "network: lo\n", ..more },
            _ => more,
        };
        submit_training(cluster, self.framework, &arguments, more)
    }

    /// Its workers have met.
    fn wait_begun(&self, job: &ClusterJob) {
        let framework = self.framework;
        wait_for(&format!("{framework} in {}", job.describe()), || {
            let report = application(job.cluster, &job.id);
            let over = report.final_status != FinalStatus::Undefined;
            assert!(!over, "{framework}: {report:?}\n{:#?}", job.stored_history());
            let met = |worker| printed(job, worker, 1).contains("rank ");
            (met(0) && met(1)).then_some(())
        });
    }

    /// A later round has ended well: both have learned the same, and enough.
    fn check(&self, job: &ClusterJob) {
        let report = wait_finished(job.cluster, &job.id);
        let framework = self.framework;
        assert_eq!(
            report.final_status,
            FinalStatus::Succeeded,
            "{framework}: {report:?}\n{:#?}",
            job.stored_history()
        );
        digits::wait_cleaned_up(job.cluster, &job.id);
        let last = u32::try_from(job.count("round-started")).expect("a few");
        assert!(last > 1, "{framework}: {:#?}", job.stored_history());
        let of = |worker, word| printed_value(job, worker, last, "2", word);
        assert_eq!(of(0, self.equal), of(1, self.equal), "{framework}");
        let accuracy: f64 = of(0, "test accuracy ").parse().expect("a number");
        assert!(accuracy > 0.9, "{framework}: {accuracy}");
    }
}

#[test]
fn every_framework_begins_another_round_when_a_node_is_lost() {
    let cluster = &*cluster();
    let jobs: Vec<_> = ALL.iter().map(|it| (it, it.begin(cluster))).collect();
    for (training, job) in &jobs {
        training.wait_begun(job);
    }
    // It is missed, and comes back later.
    let must = |outcome: Result<(), testbed::Error>| {
        outcome.unwrap_or_else(|failure| panic!("{failure}"));
    };
    must(cluster.kill("nm2"));
    must(cluster.wait_node("nm2", "LOST"));
    must(cluster.start_daemon("nm2"));
    for (training, job) in &jobs {
        training.check(job);
    }
}
