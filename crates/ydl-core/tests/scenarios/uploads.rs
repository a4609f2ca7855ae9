//! Outputs, without which there is no success.

use super::script::check;
use expect_test::expect;

#[test]
fn a_failed_upload_is_a_failure() {
    check(
        "
        outputs
        role worker 1
        running
        exited c1 0
        order c1
        uploaded c1 no space left on `/out`",
        expect![[r#"
            running: worker:0 in c1 in round 1, of 1 worker
            tell c1: stop and upload
            order c1: stop and upload
            · worker:0 succeeded, but its outputs were not uploaded: no space left on `/out` on `n1` (attempt 1); the job fails
            release c1
            · the job is ending: failed: worker:0 succeeded, but its outputs were not uploaded: no space left on `/out` on `n1` (attempt 1)
            · the job failed: worker:0 succeeded, but its outputs were not uploaded: no space left on `/out` on `n1` (attempt 1)
            finish: failed: worker:0 succeeded, but its outputs were not uploaded: no space left on `/out` on `n1` (attempt 1)"#]],
    );
}

#[test]
fn a_container_that_ends_before_its_upload_is_a_failure() {
    check(
        "
        outputs
        role worker 1 limit=1
        running
        exited c1 0
        ended c1 completed 137
        asks",
        expect![[r#"
            running: worker:0 in c1 in round 1, of 1 worker
            tell c1: stop and upload
            · worker:0 succeeded, but its outputs were not uploaded: the container ended first on `n1` (attempt 1); retrying
            asks: 1 × worker (1 GiB, 1 vcore)"#]],
    );
}

#[test]
fn a_container_preempted_before_its_upload_is_not_counted() {
    check(
        "
        outputs
        role worker 1
        running
        exited c1 0
        ended c1 preempted
        asks",
        expect![[r#"
            running: worker:0 in c1 in round 1, of 1 worker
            tell c1: stop and upload
            · worker:0 was preempted by the cluster on `n1` (attempt 1); retrying
            asks: 1 × worker (1 GiB, 1 vcore)"#]],
    );
}

#[test]
fn a_container_that_ends_after_success_without_outputs_is_a_success() {
    check(
        "
        role worker 1
        running
        exited c1 0
        ended c1 completed 0",
        expect![[r#"
            running: worker:0 in c1 in round 1, of 1 worker
            tell c1: stop and upload
            · worker:0 succeeded on `n1` (attempt 1)
            · the job is ending: succeeded
            · the job succeeded
            finish: succeeded"#]],
    );
}

#[test]
fn an_upload_timeout_is_a_failure() {
    check(
        "
        outputs
        timeouts grace=5s stop=5s upload=60s
        role worker 1
        running
        exited c1 0
        +69s
        +1s",
        expect![[r#"
            running: worker:0 in c1 in round 1, of 1 worker
            tell c1: stop and upload
            [1m 10s]
            · worker:0 succeeded, but its outputs were not uploaded: the upload timed out on `n1` (attempt 1); the job fails
            release c1
            · the job is ending: failed: worker:0 succeeded, but its outputs were not uploaded: the upload timed out on `n1` (attempt 1)
            · the job failed: worker:0 succeeded, but its outputs were not uploaded: the upload timed out on `n1` (attempt 1)
            finish: failed: worker:0 succeeded, but its outputs were not uploaded: the upload timed out on `n1` (attempt 1)"#]],
    );
}
