//! Elastic roles: tasks are added and removed, and each change starts a new round.

use super::script::check;
use expect_test::expect;

#[test]
fn a_round_starts_with_its_minimum_after_the_settle_time_and_restarts_with_more() {
    check(
        "
        gang settle=5s
        role worker 2..4 scope=job
        up c1 worker
        +5s
        up c2 worker
        +4s
        reason
        +1s
        asks
        reason
        started c1
        started c2
        up c3 worker
        +4s
        up c4 worker
        ready c1
        ready c2",
        expect![[r#"
            · the job started
            launch c1 worker:0
            [5s]
            launch c2 worker:1
            [9s]
            reason: 2 of 4 tasks ready; `worker` starts with 2 unless more join within 5s; waiting: 2 × `worker` for a container
            [10s]
            · round 1 started with 2 tasks
            tell c1: run worker:0 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
            tell c2: run worker:1 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
            asks: 2 × worker (1 GiB, 1 vcore)
            reason: 0 tasks running; `worker` continues with 2 of 4; waiting: 2 × `worker` for a container, 2 × `worker` for its program to start
            · worker:0 runs on `n1` (attempt 1)
            · worker:1 runs on `n1` (attempt 1)
            launch c3 worker:2
            [14s]
            launch c4 worker:3
            · round 3 restarts with 4 tasks: worker:2 joined
            · worker:0 is stopped (attempt 1)
            tell c1: wait as worker:0 for round 3
            · worker:1 is stopped (attempt 1)
            tell c2: wait as worker:1 for round 3
            tell c3: wait as worker:2 for round 3
            tell c4: wait as worker:3 for round 3
            · round 3 started with 4 tasks
            tell c1: run worker:0 in round 3, attempt 2, of 4 worker at 4 of 4 addresses
            tell c2: run worker:1 in round 3, attempt 2, of 4 worker at 4 of 4 addresses
            tell c3: run worker:2 in round 3, attempt 1, of 4 worker at 4 of 4 addresses
            tell c4: run worker:3 in round 3, attempt 1, of 4 worker at 4 of 4 addresses"#]],
    );
}

#[test]
fn newcomers_are_admitted_after_the_settle_time() {
    check(
        "
        gang settle=5s
        role worker 1..3:1 scope=job
        running
        scale worker 3
        up c2 worker
        +4s
        +1s
        ready c1
        reason
        asks",
        expect![[r#"
            running: worker:0 in c1 in round 1, of 1 worker at 1 of 1 addresses
            · role `worker` scaled from 1 to 3
            launch c2 worker:1
            [5s]
            · round 3 restarts with 3 tasks: worker:1 joined
            · worker:0 is stopped (attempt 1)
            tell c1: wait as worker:0 for round 3
            tell c2: wait as worker:1 for round 3
            · round 3 started with 2 tasks
            tell c1: run worker:0 in round 3, attempt 2, of 2 worker at 2 of 2 addresses
            tell c2: run worker:1 in round 3, attempt 1, of 2 worker at 2 of 2 addresses
            reason: 0 tasks running; `worker` continues with 2 of 3; waiting: 1 × `worker` for a container, 2 × `worker` for its program to start
            asks: 1 × worker (1 GiB, 1 vcore)"#]],
    );
}

#[test]
fn a_round_continues_without_a_lost_task_that_joins_later() {
    check(
        "
        gang settle=5s
        role worker 2..3 scope=job
        running
        ended c2 preempted
        asks
        ready c1
        ready c3
        started c1
        started c3
        reason
        up c4 worker
        ready c1
        ready c3",
        expect![[r#"
            running: worker:0 in c1, worker:1 in c2, worker:2 in c3 in round 1, of 3 worker at 3 of 3 addresses
            · worker:1 was preempted by the cluster on `n1` (attempt 1); retrying
            · round 2 restarts with 3 tasks: worker:1 ended
            · worker:0 is stopped (attempt 1)
            tell c1: wait as worker:0 for round 2
            · worker:2 is stopped (attempt 1)
            tell c3: wait as worker:2 for round 2
            asks: 1 × worker (1 GiB, 1 vcore)
            · round 2 started with 2 tasks
            tell c1: run worker:0 as rank 0 in round 2, attempt 2, of 2 worker [0, 2] at 2 of 2 addresses
            tell c3: run worker:2 as rank 1 in round 2, attempt 2, of 2 worker [0, 2] at 2 of 2 addresses
            · worker:0 runs on `n1` (attempt 2)
            · worker:2 runs on `n1` (attempt 2)
            reason: 2 tasks running; `worker` continues with 2 of 3; waiting: 1 × `worker` for a container
            launch c4 worker:1
            · round 4 restarts with 3 tasks: worker:1 joined
            · worker:0 is stopped (attempt 2)
            tell c1: wait as worker:0 for round 4
            tell c4: wait as worker:1 for round 4
            · worker:2 is stopped (attempt 2)
            tell c3: wait as worker:2 for round 4
            · round 4 started with 3 tasks
            tell c1: run worker:0 in round 4, attempt 3, of 3 worker at 3 of 3 addresses
            tell c4: run worker:1 in round 4, attempt 2, of 3 worker at 3 of 3 addresses
            tell c3: run worker:2 in round 4, attempt 3, of 3 worker at 3 of 3 addresses"#]],
    );
}

#[test]
fn a_round_below_its_minimum_waits_and_names_the_missing_tasks() {
    check(
        "
        gang settle=5s
        role worker 2..3 scope=job
        timeouts allocation=60s
        running
        ended c1 preempted, c2 preempted
        ready c3
        reason
        deadline
        up c4 worker
        +5s",
        expect![[r#"
            running: worker:0 in c1, worker:1 in c2, worker:2 in c3 in round 1, of 3 worker at 3 of 3 addresses
            · worker:0 was preempted by the cluster on `n1` (attempt 1); retrying
            · round 2 restarts with 3 tasks: worker:0 ended
            · worker:1 is stopped (attempt 1)
            tell c2: stop
            · worker:2 is stopped (attempt 1)
            tell c3: wait as worker:2 for round 2
            · worker:1 was preempted by the cluster on `n1` (attempt 2); retrying
            reason: 1 of 3 tasks ready; `worker` needs 1 more of worker:0, worker:1; waiting: 2 × `worker` for a container
            next deadline: 30s
            launch c4 worker:0
            [5s]
            · round 2 started with 2 tasks
            tell c4: run worker:0 as rank 0 in round 2, attempt 2, of 2 worker [0, 2] at 2 of 2 addresses
            tell c3: run worker:2 as rank 1 in round 2, attempt 2, of 2 worker [0, 2] at 2 of 2 addresses"#]],
    );
}

#[test]
fn a_round_below_its_minimum_fails_the_job_by_timeout() {
    check(
        "
        gang settle=5s hold=10m
        role worker 2..3 scope=job
        timeouts allocation=60s
        up c1 worker
        +60s",
        expect![[r#"
            · the job started
            launch c1 worker:0
            [1m]
            · the job is ending: failed: 1 of 3 containers granted after 1m; missing: 2 × `worker` (1 GiB, 1 vcore)
            release c1
            · the job failed: 1 of 3 containers granted after 1m; missing: 2 × `worker` (1 GiB, 1 vcore)
            finish: failed: 1 of 3 containers granted after 1m; missing: 2 × `worker` (1 GiB, 1 vcore)"#]],
    );
}

#[test]
fn a_round_does_not_start_while_an_old_program_may_run() {
    check(
        "
        gang settle=1s
        timeouts heartbeat=10s grace=1s stop=2s
        role worker 1..2 scope=job
        running
        missed c2
        +10s
        ready c1
        reason
        +3s",
        expect![[r#"
            running: worker:0 in c1, worker:1 in c2 in round 1, of 2 worker at 2 of 2 addresses
            [10s]
            · worker:1 sent no heartbeat for 10s on `n1` (attempt 1); retrying
            release c2
            · round 2 restarts with 2 tasks: worker:1 ended
            · worker:0 is stopped (attempt 1)
            tell c1: wait as worker:0 for round 2
            reason: 1 of 2 tasks ready; `worker` starts with 1 unless more join within 1s; waiting: 1 × `worker` to upload and stop
            [13s]
            · round 2 started with 1 task
            tell c1: run worker:0 in round 2, attempt 2, of 1 worker at 1 of 1 addresses"#]],
    );
}

#[test]
fn a_recovered_master_restarts_the_settle_time() {
    check(
        "
        gang settle=5s
        role worker 1..3 scope=job
        up c1 worker
        +5s
        started c1
        up c2 worker
        +4s
        recovered c1 c2
        resumed c1
        resumed c2
        +4s
        states
        +1s",
        expect![[r#"
            · the job started
            launch c1 worker:0
            [5s]
            · round 1 started with 1 task
            tell c1: run worker:0 in round 1, attempt 1, of 1 worker at 1 of 1 addresses
            · worker:0 runs on `n1` (attempt 1)
            launch c2 worker:1
            [9s]
            · a new master recovered 2 containers
            [13s]
            worker:0 running, worker:1 ready, worker:2 requested
            [14s]
            · round 3 restarts with 3 tasks: worker:1 joined
            · worker:0 is stopped (attempt 1)
            tell c1: wait as worker:0 for round 3
            tell c2: wait as worker:1 for round 3"#]],
    );
}
