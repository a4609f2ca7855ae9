//! Restart limits, backoff and the reported causes.

use super::script::check;
use expect_test::expect;

#[test]
fn a_failure_beyond_the_limit_fails_the_job_and_the_cause_names_task_signal_and_node() {
    check(
        "
        gang
        role worker 2 scope=job limit=1
        up c1 worker n1
        up c2 worker n2
        started c1
        started c2
        exited c1 1
        uploaded c1
        ready c2
        up c3 worker n3
        started c2
        started c3
        exited c2 sig9
        uploaded c3
        uploaded c2
        reason",
        expect![[r#"
            · the job started
            launch c1 worker:0
            launch c2 worker:1
            · round 1 started with 2 tasks
            tell c1: run worker:0 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
            tell c2: run worker:1 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
            · worker:0 runs on `n1` (attempt 1)
            · worker:1 runs on `n2` (attempt 1)
            · worker:0 exited with code 1 on `n1` (attempt 1); retrying
            tell c1: stop
            · round 2 restarts with 2 tasks: worker:0 ended
            · worker:1 is stopped (attempt 1)
            tell c2: wait as worker:1 for round 2
            release c1
            launch c3 worker:0
            · round 2 started with 2 tasks
            tell c3: run worker:0 in round 2, attempt 2, of 2 worker at 2 of 2 addresses
            tell c2: run worker:1 in round 2, attempt 2, of 2 worker at 2 of 2 addresses
            · worker:1 runs on `n2` (attempt 2)
            · worker:0 runs on `n3` (attempt 2)
            · worker:1 was killed by SIGKILL on `n2` (attempt 2); the job fails
            tell c2: stop and upload
            · the job is ending: failed: worker:1 was killed by SIGKILL on `n2` (attempt 2)
            · worker:0 is stopped (attempt 2)
            tell c3: stop and upload
            release c3
            release c2
            · the job failed: worker:1 was killed by SIGKILL on `n2` (attempt 2)
            finish: failed: worker:1 was killed by SIGKILL on `n2` (attempt 2)
            reason: the job failed: worker:1 was killed by SIGKILL on `n2` (attempt 2)"#]],
    );
}

#[test]
fn a_program_that_cannot_be_started_fails_the_job_with_the_reason() {
    check(
        "
        role worker 1
        up c1 worker
        exited c1 not-started
        uploaded c1",
        expect![[r#"
            · the job started
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 1 worker
            · worker:0 could not be started: `trian.py` was not found on `n1` (attempt 1); the job fails
            tell c1: stop and upload
            · the job is ending: failed: worker:0 could not be started: `trian.py` was not found on `n1` (attempt 1)
            release c1
            · the job failed: worker:0 could not be started: `trian.py` was not found on `n1` (attempt 1)
            finish: failed: worker:0 could not be started: `trian.py` was not found on `n1` (attempt 1)"#]],
    );
}

#[test]
fn tolerated_failures_do_not_fail_the_job() {
    check(
        "
        role worker 3 tolerate=1
        up c1 worker
        up c2 worker
        up c3 worker
        exited c1 1
        uploaded c1
        exited c2 0
        uploaded c2
        states
        exited c3 0
        uploaded c3",
        expect![[r#"
            · the job started
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 3 worker
            launch c2 worker:1
            tell c2: run worker:1 in round 1, attempt 1, of 3 worker
            launch c3 worker:2
            tell c3: run worker:2 in round 1, attempt 1, of 3 worker
            · worker:0 exited with code 1 on `n1` (attempt 1); the job continues without it
            tell c1: stop and upload
            release c1
            tell c2: stop and upload
            release c2
            · worker:1 succeeded on `n1` (attempt 1)
            worker:0 failed, worker:1 succeeded, worker:2 starting
            tell c3: stop and upload
            release c3
            · worker:2 succeeded on `n1` (attempt 1)
            · the job is ending: succeeded
            · the job succeeded
            finish: succeeded"#]],
    );
}

#[test]
fn one_failure_more_than_tolerated_fails_the_job() {
    check(
        "
        role worker 3 tolerate=1
        up c1 worker
        up c2 worker
        up c3 worker
        exited c1 1
        exited c2 1
        uploaded c1
        uploaded c2
        uploaded c3",
        expect![[r#"
            · the job started
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 3 worker
            launch c2 worker:1
            tell c2: run worker:1 in round 1, attempt 1, of 3 worker
            launch c3 worker:2
            tell c3: run worker:2 in round 1, attempt 1, of 3 worker
            · worker:0 exited with code 1 on `n1` (attempt 1); the job continues without it
            tell c1: stop and upload
            · worker:1 exited with code 1 on `n1` (attempt 1); the job fails
            tell c2: stop and upload
            · the job is ending: failed: worker:1 exited with code 1 on `n1` (attempt 1)
            · worker:2 is stopped (attempt 1)
            tell c3: stop and upload
            release c1
            release c2
            release c3
            · the job failed: worker:1 exited with code 1 on `n1` (attempt 1)
            finish: failed: worker:1 exited with code 1 on `n1` (attempt 1)"#]],
    );
}

#[test]
fn failures_outside_the_window_are_not_counted() {
    check(
        "
        role worker 1 limit=1 window=60s
        up c1 worker
        exited c1 1
        uploaded c1
        up c2 worker
        +70s
        exited c2 1
        uploaded c2
        up c3 worker
        +10s
        exited c3 1",
        expect![[r#"
            · the job started
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 1 worker
            · worker:0 exited with code 1 on `n1` (attempt 1); retrying
            tell c1: stop
            release c1
            launch c2 worker:0
            tell c2: run worker:0 in round 1, attempt 2, of 1 worker
            [1m 10s]
            · worker:0 exited with code 1 on `n1` (attempt 2); retrying
            tell c2: stop
            release c2
            launch c3 worker:0
            tell c3: run worker:0 in round 1, attempt 3, of 1 worker
            [1m 20s]
            · worker:0 exited with code 1 on `n1` (attempt 3); the job fails
            tell c3: stop and upload
            · the job is ending: failed: worker:0 exited with code 1 on `n1` (attempt 3)"#]],
    );
}

#[test]
fn the_restart_backoff_doubles_up_to_its_maximum() {
    check(
        "
        role worker 1 limit=9 backoff=2s..5s
        up c1 worker
        exited c1 1
        uploaded c1
        asks
        +2s
        asks
        up c2 worker
        exited c2 1
        uploaded c2
        deadline
        +4s
        up c3 worker
        exited c3 1
        uploaded c3
        deadline",
        expect![[r#"
            · the job started
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 1 worker
            · worker:0 exited with code 1 on `n1` (attempt 1); retrying in 2s
            tell c1: stop
            release c1
            asks: nothing
            [2s]
            asks: 1 × worker (1 GiB, 1 vcore)
            launch c2 worker:0
            tell c2: run worker:0 in round 1, attempt 2, of 1 worker
            · worker:0 exited with code 1 on `n1` (attempt 2); retrying in 4s
            tell c2: stop
            release c2
            next deadline: 6s
            [6s]
            launch c3 worker:0
            tell c3: run worker:0 in round 1, attempt 3, of 1 worker
            · worker:0 exited with code 1 on `n1` (attempt 3); retrying in 5s
            tell c3: stop
            release c3
            next deadline: 11s"#]],
    );
}
