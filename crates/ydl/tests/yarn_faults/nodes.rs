//! Jobs of every framework on a real cluster that loses a node.

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
        // Each node has room for all masters.
        node_memory_mib: 32 << 10,
        node_vcores: 32,
        // Longer than heartbeats of a NodeManager are delayed on a busy machine.
        expiry: Duration::from_secs(20),
        ..Options::new(version())
    };
    // A longer timeout for masters: seven jobs start at once, perhaps on a small machine.
    let expiry = "yarn.am.liveness-monitor.expiry-interval-ms";
    shared(options.set(File::Yarn, expiry, "120000"))
}

/// A framework, the arguments of its example, and the output prefix whose values all workers share.
struct Training {
    framework: &'static str,
    arguments: &'static str,
    equal: &'static str,
}

const ALL: [Training; 7] = [
    training_of("tensorflow", "--epochs 12", "weights "),
    training_of("jax", "--epochs 12", "weights "),
    training_of("horovod", "--epochs 12", "weights "),
    training_of("pytorch", "--epochs 12", "weights "),
    training_of("mxnet", "--epochs 12", "test accuracy "),
    training_of("xgboost", "--rounds 10", "gain "),
    training_of("lightgbm", "--rounds 20", "gain "),
];

const fn training_of(
    framework: &'static str,
    arguments: &'static str,
    equal: &'static str,
) -> Training {
    Training { framework, arguments, equal }
}

impl Training {
    /// Submits a job with a worker on each node. Its first round does not end by itself.
    fn submit<'a>(&self, cluster: &'a Cluster) -> ClusterJob<'a> {
        let arguments = format!("{} $([ $YDL_ROUND -gt 1 ] || echo --pause 600)", self.arguments);
        let more = TrainingOptions {
            worker: "instances: 2, placement: {max_per_node: 1}",
            ..TrainingOptions::default()
        };
        let more = match self.framework {
            "mxnet" => {
                TrainingOptions { roles: ", server: {instances: 1, memory: 512 MiB}", ..more }
            }
            // LightGBM looks for its address among the interfaces, which do not have the addresses of the test bed's
            // nodes.
            "lightgbm" => TrainingOptions { job: "network: lo\n", ..more },
            _ => more,
        };
        submit_training(cluster, self.framework, &arguments, more)
    }

    /// Waits until the workers have their ranks.
    fn wait_for_ranks(&self, job: &ClusterJob) {
        let framework = self.framework;
        wait_for(&format!("{framework} in {}", job.describe()), || {
            let report = application(job.cluster, &job.id);
            let ended = report.final_status != FinalStatus::Undefined;
            assert!(!ended, "{framework}: {report:?}\n{:#?}", job.stored_history());
            let has_rank = |worker| printed(job, worker, 1).contains("rank ");
            (has_rank(0) && has_rank(1)).then_some(())
        });
    }

    /// Asserts that a later round succeeded with equal and accurate workers.
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
        let value_of = |worker, label| printed_value(job, worker, last, "2", label);
        assert_eq!(value_of(0, self.equal), value_of(1, self.equal), "{framework}");
        let accuracy: f64 = value_of(0, "test accuracy ").parse().expect("a number");
        assert!(accuracy > 0.9, "{framework}: {accuracy}");
    }
}

#[test]
fn every_framework_starts_another_round_after_a_lost_node() {
    let cluster = &*cluster();
    let jobs: Vec<_> = ALL.iter().map(|it| (it, it.submit(cluster))).collect();
    for (training, job) in &jobs {
        training.wait_for_ranks(job);
    }
    // The node is lost, and restarted later.
    let expect_ok = |outcome: Result<(), testbed::Error>| {
        outcome.unwrap_or_else(|failure| panic!("{failure}"));
    };
    expect_ok(cluster.kill("nm2"));
    expect_ok(cluster.wait_node("nm2", "LOST"));
    expect_ok(cluster.start_daemon("nm2"));
    for (training, job) in &jobs {
        training.check(job);
    }
}
