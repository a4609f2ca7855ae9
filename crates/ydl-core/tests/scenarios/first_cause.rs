//! The first cause among the failures of a job.

use super::script::check;
use expect_test::expect;

#[test]
fn an_error_of_a_program_precedes_the_loss_of_a_peer_that_was_reported_first() {
    check(
        "
        gang
        role chief 1 scope=job
        role worker 1 scope=job
        running
        exited c2 1 peer-loss
        exited c1 sig15 own-error
        uploaded c1
        uploaded c2",
        expect![[r#"
            running: chief:0 in c1, worker:0 in c2 in round 1, of 1 chief at 1 of 1 addresses, 1 worker at 1 of 1 addresses
            · worker:0 exited with code 1 on `n1` (attempt 1); the job fails
            tell c2: stop and upload
            · the job is ending: failed: worker:0 exited with code 1 on `n1` (attempt 1)
            · chief:0 is stopped (attempt 1)
            tell c1: stop and upload
            · the first cause: chief:0 exited with code 1 on `n1` (attempt 1)
            release c1
            release c2
            · the job failed: chief:0 exited with code 1 on `n1` (attempt 1)
            finish: failed: chief:0 exited with code 1 on `n1` (attempt 1)"#]],
    );
}

#[test]
fn of_equal_failures_the_program_that_ended_first_is_the_cause() {
    let job = |second: &str| {
        format!(
            "
            gang
            role worker 2 scope=job
            up c1 worker
            up c2 worker
            started c1
            started c2
            +10s
            exited c1 1 ran=9s
            exited c2 {second}
            uploaded c1
            uploaded c2"
        )
    };
    check(
        &job("3 ran=8s"),
        expect![[r#"
        · the job started
        launch c1 worker:0
        launch c2 worker:1
        · round 1 started with 2 tasks
        tell c1: run worker:0 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
        tell c2: run worker:1 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
        · worker:0 runs on `n1` (attempt 1)
        · worker:1 runs on `n1` (attempt 1)
        [10s]
        · worker:0 exited with code 1 on `n1` (attempt 1); the job fails
        tell c1: stop and upload
        · the job is ending: failed: worker:0 exited with code 1 on `n1` (attempt 1)
        · worker:1 is stopped (attempt 1)
        tell c2: stop and upload
        · the first cause: worker:1 exited with code 3 on `n1` (attempt 1)
        release c1
        release c2
        · the job failed: worker:1 exited with code 3 on `n1` (attempt 1)
        finish: failed: worker:1 exited with code 3 on `n1` (attempt 1)"#]],
    );
    check(
        &job("3 ran=10s"),
        expect![[r#"
        · the job started
        launch c1 worker:0
        launch c2 worker:1
        · round 1 started with 2 tasks
        tell c1: run worker:0 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
        tell c2: run worker:1 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
        · worker:0 runs on `n1` (attempt 1)
        · worker:1 runs on `n1` (attempt 1)
        [10s]
        · worker:0 exited with code 1 on `n1` (attempt 1); the job fails
        tell c1: stop and upload
        · the job is ending: failed: worker:0 exited with code 1 on `n1` (attempt 1)
        · worker:1 is stopped (attempt 1)
        tell c2: stop and upload
        release c1
        release c2
        · the job failed: worker:0 exited with code 1 on `n1` (attempt 1)
        finish: failed: worker:0 exited with code 1 on `n1` (attempt 1)"#]],
    );
}

#[test]
fn a_program_that_ends_because_it_is_stopped_is_no_cause() {
    check(
        "
        gang
        role worker 3 scope=job
        running
        exited c1 1 peer-loss
        exited c2 sig15
        exited c3 1 peer-loss
        uploaded c1
        uploaded c2
        uploaded c3",
        expect![[r#"
            running: worker:0 in c1, worker:1 in c2, worker:2 in c3 in round 1, of 3 worker at 3 of 3 addresses
            · worker:0 exited with code 1 on `n1` (attempt 1); the job fails
            tell c1: stop and upload
            · the job is ending: failed: worker:0 exited with code 1 on `n1` (attempt 1)
            · worker:1 is stopped (attempt 1)
            tell c2: stop and upload
            · worker:2 is stopped (attempt 1)
            tell c3: stop and upload
            release c1
            release c2
            release c3
            · the job failed: worker:0 exited with code 1 on `n1` (attempt 1)
            finish: failed: worker:0 exited with code 1 on `n1` (attempt 1)"#]],
    );
}

#[test]
fn a_memory_limit_that_is_reported_later_is_the_cause() {
    check(
        "
        gang
        role worker 2 scope=job
        running
        exited c1 1 peer-loss
        ended c2 memory 1100 1024
        uploaded c1",
        expect![[r#"
            running: worker:0 in c1, worker:1 in c2 in round 1, of 2 worker at 2 of 2 addresses
            · worker:0 exited with code 1 on `n1` (attempt 1); the job fails
            tell c1: stop and upload
            · the job is ending: failed: worker:0 exited with code 1 on `n1` (attempt 1)
            · worker:1 is stopped (attempt 1)
            tell c2: stop and upload
            · the first cause: worker:1 was killed: it used 1100 MiB of 1024 MiB memory on `n1` (attempt 1)
            release c1
            · the job failed: worker:1 was killed: it used 1100 MiB of 1024 MiB memory on `n1` (attempt 1)
            finish: failed: worker:1 was killed: it used 1100 MiB of 1024 MiB memory on `n1` (attempt 1)"#]],
    );
}

#[test]
fn a_kill_by_the_user_has_no_other_cause() {
    check(
        "
        gang
        role worker 2 scope=job
        running
        kill ada
        exited c1 1 own-error
        uploaded c1
        uploaded c2",
        expect![[r#"
            running: worker:0 in c1, worker:1 in c2 in round 1, of 2 worker at 2 of 2 addresses
            · the job is ending: killed by ada
            · worker:0 is stopped (attempt 1)
            tell c1: stop and upload
            · worker:1 is stopped (attempt 1)
            tell c2: stop and upload
            release c1
            release c2
            · the job was killed by ada
            finish: killed by ada"#]],
    );
}
