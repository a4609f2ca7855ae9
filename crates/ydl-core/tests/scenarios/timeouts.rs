//! Every wait has a deadline.

use super::script::check;
use expect_test::expect;

#[test]
fn a_job_without_a_gang_fails_without_any_container_at_the_allocation_timeout() {
    check(
        "
        timeouts allocation=60s
        role worker 2
        +30s
        up c1 worker
        +60s
        exited c1 0
        uploaded c1
        +59s
        +1s",
        expect![[r#"
            [30s]
            · the job started
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 2 worker
            [1m 30s]
            tell c1: stop and upload
            release c1
            · worker:0 succeeded on `n1` (attempt 1)
            [2m 30s]
            · the job is ending: failed: 0 of 2 containers granted after 1m; missing: 1 × `worker` (1 GiB, 1 vcore)
            · the job failed: 0 of 2 containers granted after 1m; missing: 1 × `worker` (1 GiB, 1 vcore)
            finish: failed: 0 of 2 containers granted after 1m; missing: 1 × `worker` (1 GiB, 1 vcore)"#]],
    );
}

#[test]
fn a_job_without_a_gang_does_not_wait_for_the_containers_of_its_services() {
    check(
        "
        timeouts allocation=60s
        role worker 1
        role server 1 service
        running server 1
        +60s
        uploaded c1",
        expect![[r#"
            running: server:0 in c1 in round 1, of 1 worker, 1 server
            [1m]
            · the job is ending: failed: 1 of 2 containers granted after 1m; missing: 1 × `worker` (1 GiB, 1 vcore)
            · server:0 is stopped (attempt 1)
            tell c1: stop and upload
            release c1
            · the job failed: 1 of 2 containers granted after 1m; missing: 1 × `worker` (1 GiB, 1 vcore)
            finish: failed: 1 of 2 containers granted after 1m; missing: 1 × `worker` (1 GiB, 1 vcore)"#]],
    );
}

#[test]
fn a_container_that_does_not_start_is_replaced() {
    check(
        "
        timeouts launch=20s
        role worker 1
        granted c1 worker
        +20s
        asks",
        expect![[r#"
            · the job started
            launch c1 worker:0
            [20s]
            · worker:0 had no container running after 20s on `n1` (attempt 1); retrying
            release c1
            asks: 1 × worker (1 GiB, 1 vcore)"#]],
    );
}

#[test]
fn an_agent_that_does_not_join_is_replaced() {
    check(
        "
        timeouts join=20s
        role worker 1
        granted c1 worker
        launched c1
        +20s
        asks",
        expect![[r#"
            · the job started
            launch c1 worker:0
            [20s]
            · worker:0 was not ready 20s after its container started on `n1` (attempt 1); retrying
            release c1
            asks: 1 × worker (1 GiB, 1 vcore)"#]],
    );
}

#[test]
fn a_program_that_does_not_start_is_a_failure() {
    check(
        "
        timeouts start=20s
        role worker 1
        up c1 worker
        +20s",
        expect![[r#"
            · the job started
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 1 worker
            [20s]
            · worker:0 did not start its program within 20s on `n1` (attempt 1); the job fails
            release c1
            · the job is ending: failed: worker:0 did not start its program within 20s on `n1` (attempt 1)
            · the job failed: worker:0 did not start its program within 20s on `n1` (attempt 1)
            finish: failed: worker:0 did not start its program within 20s on `n1` (attempt 1)"#]],
    );
}

#[test]
fn a_job_that_runs_too_long_fails() {
    check(
        "
        timeouts run=1h
        role worker 1
        running
        +59m
        +1m
        uploaded c1",
        expect![[r#"
            running: worker:0 in c1 in round 1, of 1 worker
            [1h]
            · the job is ending: failed: the job ran longer than its limit of 1h
            · worker:0 is stopped (attempt 1)
            tell c1: stop and upload
            release c1
            · the job failed: the job ran longer than its limit of 1h
            finish: failed: the job ran longer than its limit of 1h"#]],
    );
}

#[test]
fn an_agent_without_a_report_is_late_and_not_silent() {
    check(
        "
        timeouts heartbeat=10s join=60s
        role worker 1
        granted c1 worker
        launched c1
        missed c1
        +30s
        states",
        expect![[r#"
            · the job started
            launch c1 worker:0
            [30s]
            worker:0 launching"#]],
    );
}

#[test]
fn an_agent_that_does_not_stop_its_program_for_a_new_round_is_a_failure() {
    check(
        "
        gang
        timeouts grace=5s stop=5s heartbeat=10s
        role worker 2 scope=job limit=2
        running
        exited c1 1
        uploaded c1
        +10s
        states
        +20s
        asks",
        expect![[r#"
            running: worker:0 in c1, worker:1 in c2 in round 1, of 2 worker at 2 of 2 addresses
            · worker:0 exited with code 1 on `n1` (attempt 1); retrying
            tell c1: stop
            · round 2 restarts with 2 tasks: worker:0 ended
            · worker:1 is stopped (attempt 1)
            tell c2: wait as worker:1 for round 2
            release c1
            [10s]
            · worker:1 did not stop within 10s on `n1` (attempt 2); retrying
            release c2
            worker:0 requested, worker:1 stopping
            [30s]
            asks: 2 × worker (1 GiB, 1 vcore)"#]],
    );
}

#[test]
fn an_agent_that_does_not_exit_is_released() {
    check(
        "
        timeouts grace=5s stop=5s
        role worker 1
        running
        exited c1 0
        +10s",
        expect![[r#"
            running: worker:0 in c1 in round 1, of 1 worker
            tell c1: stop and upload
            [10s]
            release c1
            · worker:0 succeeded on `n1` (attempt 1)
            · the job is ending: succeeded
            · the job succeeded
            finish: succeeded"#]],
    );
}
