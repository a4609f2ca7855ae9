//! Elastic roles whose remaining tasks keep running and are notified of changes.

use super::script::check;
use expect_test::expect;

#[test]
fn notified_tasks_keep_running() {
    check(
        "
        gang settle=5s told
        role worker 2..4:3 scope=job
        running
        ended c2 preempted
        asks
        up c4 worker
        started c4
        round
        scale worker 2
        uploaded c3
        ended c1 preempted
        reason
        up c5 worker
        exited c4 0
        uploaded c4
        exited c5 0
        uploaded c5",
        expect![[r#"
            running: worker:0 in c1, worker:1 in c2, worker:2 in c3 in round 1, of 3 worker at 3 of 3 addresses
            · worker:1 was preempted by the cluster on `n1` (attempt 1); retrying
            · round 1 continues with 2 tasks
            changed: 2 worker [0, 2] at 2 of 2 addresses
            asks: 1 × worker (1 GiB, 1 vcore)
            launch c4 worker:1
            · round 1 continues with 3 tasks
            changed: 3 worker [0, 2, 1] at 3 of 3 addresses
            tell c4: run worker:1 as rank 2 in round 2, attempt 2, of 3 worker [0, 2, 1] at 3 of 3 addresses
            · worker:1 runs on `n1` (attempt 2)
            round 1
            · role `worker` scaled from 3 to 2
            · worker:2 is stopped (attempt 1)
            tell c3: stop and upload
            · round 1 continues with 2 tasks
            changed: 2 worker at 2 of 2 addresses
            release c3
            · worker:0 was preempted by the cluster on `n1` (attempt 1); retrying
            reason: 1 task running; `worker` needs 1 more of worker:0; waiting: 1 × `worker` for a container
            launch c5 worker:0
            · round 1 continues with 2 tasks
            changed: 2 worker [1, 0] at 2 of 2 addresses
            tell c5: run worker:0 as rank 1 in round 3, attempt 2, of 2 worker [1, 0] at 2 of 2 addresses
            tell c4: stop and upload
            changed: 1 worker at 1 of 1 addresses
            release c4
            · worker:1 succeeded on `n1` (attempt 2)
            tell c5: stop and upload
            release c5
            · worker:0 succeeded on `n1` (attempt 2)
            · the job is ending: succeeded
            · the job succeeded
            finish: succeeded"#]],
    );
}

#[test]
fn notified_tasks_restart_when_a_successful_task_loses_its_outputs() {
    let job = |end: &str| {
        format!(
            "
        gang settle=5s told
        outputs
        role worker 1..2 scope=job limit=1
        running
        exited c1 0
        {end}
        states"
        )
    };
    check(
        &job("uploaded c1 the disk is full"),
        expect![[r#"
            running: worker:0 in c1, worker:1 in c2 in round 1, of 2 worker at 2 of 2 addresses
            tell c1: stop and upload
            changed: 1 worker [1] at 1 of 1 addresses
            · worker:0 succeeded, but its outputs were not uploaded: the disk is full on `n1` (attempt 1); retrying
            release c1
            · round 2 restarts with 2 tasks: worker:0 ended
            · worker:1 is stopped (attempt 1)
            tell c2: wait as worker:1 for round 2
            worker:0 requested, worker:1 restarting"#]],
    );
    check(
        &job("ended c1 preempted"),
        expect![[r#"
            running: worker:0 in c1, worker:1 in c2 in round 1, of 2 worker at 2 of 2 addresses
            tell c1: stop and upload
            changed: 1 worker [1] at 1 of 1 addresses
            · worker:0 was preempted by the cluster on `n1` (attempt 1); retrying
            · round 2 restarts with 2 tasks: worker:0 ended
            · worker:1 is stopped (attempt 1)
            tell c2: wait as worker:1 for round 2
            worker:0 requested, worker:1 restarting"#]],
    );
}

#[test]
fn a_notified_role_keeps_running_tasks_when_scaled_down() {
    check(
        "
        gang settle=5s told
        role worker 1..5 scope=job
        up c1 worker
        up c2 worker
        up c3 worker
        up c4 worker
        +5s
        started c1
        started c2
        started c3
        started c4
        ended c1 preempted, c2 preempted
        up c5 worker
        up c6 worker
        states
        scale worker 2
        states",
        expect![[r#"
            · the job started
            launch c1 worker:0
            launch c2 worker:1
            launch c3 worker:2
            launch c4 worker:3
            [5s]
            · round 1 started with 4 tasks
            tell c1: run worker:0 in round 1, attempt 1, of 4 worker at 4 of 4 addresses
            tell c2: run worker:1 in round 1, attempt 1, of 4 worker at 4 of 4 addresses
            tell c3: run worker:2 in round 1, attempt 1, of 4 worker at 4 of 4 addresses
            tell c4: run worker:3 in round 1, attempt 1, of 4 worker at 4 of 4 addresses
            · worker:0 runs on `n1` (attempt 1)
            · worker:1 runs on `n1` (attempt 1)
            · worker:2 runs on `n1` (attempt 1)
            · worker:3 runs on `n1` (attempt 1)
            · worker:0 was preempted by the cluster on `n1` (attempt 1); retrying
            · round 1 continues with 3 tasks
            changed: 3 worker [1, 2, 3] at 3 of 3 addresses
            · worker:1 was preempted by the cluster on `n1` (attempt 1); retrying
            · round 1 continues with 2 tasks
            changed: 2 worker [2, 3] at 2 of 2 addresses
            launch c5 worker:0
            launch c6 worker:1
            worker:0 ready, worker:1 ready, worker:2 running, worker:3 running, worker:4 requested
            · role `worker` scaled from 5 to 2
            release c6
            release c5
            worker:2 running, worker:3 running"#]],
    );
}

#[test]
fn a_notified_role_below_its_minimum_after_scaling_down_has_a_timeout() {
    check(
        "
        gang settle=5s hold=10m told
        timeouts allocation=60s
        role worker 2..4 scope=job
        running
        ended c2 preempted, c3 preempted, c4 preempted
        deadline
        scale worker 3
        deadline
        +60s",
        expect![[r#"
            running: worker:0 in c1, worker:1 in c2, worker:2 in c3, worker:3 in c4 in round 1, of 4 worker at 4 of 4 addresses
            · worker:1 was preempted by the cluster on `n1` (attempt 1); retrying
            · round 1 continues with 3 tasks
            changed: 3 worker [0, 2, 3] at 3 of 3 addresses
            · worker:2 was preempted by the cluster on `n1` (attempt 1); retrying
            · round 1 continues with 2 tasks
            changed: 2 worker [0, 3] at 2 of 2 addresses
            · worker:3 was preempted by the cluster on `n1` (attempt 1); retrying
            next deadline: 1m
            · role `worker` scaled from 4 to 3
            next deadline: 1m
            [1m]
            · the job is ending: failed: 1 of 3 containers granted after 1m; missing: 2 × `worker` (1 GiB, 1 vcore)
            · worker:0 is stopped (attempt 1)
            tell c1: stop and upload"#]],
    );
}

#[test]
fn a_finished_notified_role_lets_other_roles_restart_below_its_minimum() {
    check(
        "
        gang settle=5s told
        role worker 3..3 scope=job
        role server 1 scope=role
        running
        exited c1 0
        uploaded c1
        ended c2 preempted
        exited c3 0
        uploaded c3
        ended c4 preempted
        up c5 server
        started c5
        exited c5 0
        uploaded c5",
        expect![[r#"
            running: worker:0 in c1, worker:1 in c2, worker:2 in c3, server:0 in c4 in round 1, of 3 worker at 3 of 3 addresses, 1 server at 1 of 1 addresses
            tell c1: stop and upload
            changed: 2 worker [1, 2] at 2 of 2 addresses, 1 server at 1 of 1 addresses
            release c1
            · worker:0 succeeded on `n1` (attempt 1)
            · worker:1 was preempted by the cluster on `n1` (attempt 1); retrying
            · round 1 continues with 2 tasks
            changed: 1 worker [2] at 1 of 1 addresses, 1 server at 1 of 1 addresses
            tell c3: stop and upload
            release c3
            · worker:2 succeeded on `n1` (attempt 1)
            · server:0 was preempted by the cluster on `n1` (attempt 1); retrying
            · round 3 restarts with 1 task: server:0 ended
            launch c5 server:0
            · round 3 started with 1 task
            tell c5: run server:0 as rank 2 in round 3, attempt 2, of 2 worker [0, 2] at 2 of 2 addresses, 1 server at 1 of 1 addresses
            · server:0 runs on `n1` (attempt 2)
            tell c5: stop and upload
            release c5
            · server:0 succeeded on `n1` (attempt 2)
            · the job is ending: succeeded
            · the job succeeded
            finish: succeeded"#]],
    );
}

#[test]
fn after_a_success_the_remaining_tasks_wait_for_no_newcomers() {
    let job = |more: &str| {
        format!(
            "
        gang settle=5s told
        timeouts allocation=60s
        role worker 3..3 scope=job
        running
        {more}
        deadline
        up c4 worker
        states
        exited c3 0
        uploaded c3"
        )
    };
    check(
        &job("exited c1 0\nuploaded c1\nended c2 preempted"),
        expect![[r#"
            running: worker:0 in c1, worker:1 in c2, worker:2 in c3 in round 1, of 3 worker at 3 of 3 addresses
            tell c1: stop and upload
            changed: 2 worker [1, 2] at 2 of 2 addresses
            release c1
            · worker:0 succeeded on `n1` (attempt 1)
            · worker:1 was preempted by the cluster on `n1` (attempt 1); retrying
            · round 1 continues with 1 task
            changed: 1 worker [2] at 1 of 1 addresses
            next deadline: none
            launch c4 worker:1
            worker:0 succeeded, worker:1 ready, worker:2 running
            tell c3: stop and upload
            release c3
            · worker:2 succeeded on `n1` (attempt 1)
            · the job is ending: succeeded
            release c4
            · the job succeeded
            finish: succeeded"#]],
    );
    // Or the other way round: they have waited, and need not any longer.
    check(
        &job("ended c2 preempted\ndeadline\nexited c1 0\nuploaded c1"),
        expect![[r#"
            running: worker:0 in c1, worker:1 in c2, worker:2 in c3 in round 1, of 3 worker at 3 of 3 addresses
            · worker:1 was preempted by the cluster on `n1` (attempt 1); retrying
            next deadline: 1m
            tell c1: stop and upload
            changed: 1 worker [2] at 1 of 1 addresses
            release c1
            · worker:0 succeeded on `n1` (attempt 1)
            next deadline: none
            launch c4 worker:1
            worker:0 succeeded, worker:1 ready, worker:2 running
            tell c3: stop and upload
            release c3
            · worker:2 succeeded on `n1` (attempt 1)
            · the job is ending: succeeded
            release c4
            · the job succeeded
            finish: succeeded"#]],
    );
}
