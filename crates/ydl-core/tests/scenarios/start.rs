//! Start of jobs, and events without effect.

use super::script::check;
use expect_test::expect;

#[test]
fn a_gang_starts_when_all_tasks_are_ready() {
    check(
        "
        gang
        role worker 2 scope=job
        role server 1 service scope=job
        asks
        reason
        granted c1 worker
        launched c1
        ready c1
        granted c2 worker
        granted c3 server
        asks
        ready c2
        reason
        ready c3
        started c1
        started c2
        started c3
        reason",
        expect![[r#"
            · the job started
            asks: 2 × worker (1 GiB, 1 vcore), 1 × server (1 GiB, 1 vcore)
            reason: 0 of 3 tasks ready; waiting: 2 × `worker` for a container, 1 × `server` for a container
            launch c1 worker:0
            launch c2 worker:1
            launch c3 server:0
            asks: nothing
            reason: 2 of 3 tasks ready, not yet server:0; waiting: 1 × `server` for its agent
            · round 1 started with 3 tasks
            tell c1: run worker:0 in round 1, attempt 1, of 2 worker at 2 of 2 addresses, 1 server at 1 of 1 addresses
            tell c2: run worker:1 in round 1, attempt 1, of 2 worker at 2 of 2 addresses, 1 server at 1 of 1 addresses
            tell c3: run server:0 in round 1, attempt 1, of 2 worker at 2 of 2 addresses, 1 server at 1 of 1 addresses
            · worker:0 runs on `n1` (attempt 1)
            · worker:1 runs on `n1` (attempt 1)
            · server:0 runs on `n1` (attempt 1)
            reason: 3 tasks running"#]],
    );
}

#[test]
fn missing_tasks_are_named_when_programs_find_each_other() {
    for framework in ["jax", "lightgbm", "tensorflow"] {
        check(
            &format!(
                "
                framework {framework}
                gang
                role worker 3 scope=job limit=1
                role evaluator 1 scope=task limit=1
                up c1 worker
                up c2 worker
                reason
                up c3 worker
                reason
                up c4 evaluator
                started c1
                reason
                started c2
                reason
                started c3
                reason
                started c4
                exited c4 1
                reason"
            ),
            expect![[r#"
                · the job started
                launch c1 worker:0
                launch c2 worker:1
                reason: 2 of 4 tasks ready, not yet worker:2, evaluator:0; waiting: 1 × `worker` for a container, 1 × `evaluator` for a container
                launch c3 worker:2
                reason: 3 of 4 tasks ready, not yet evaluator:0; waiting: 1 × `evaluator` for a container
                launch c4 evaluator:0
                · round 1 started with 4 tasks
                tell c1: run worker:0 in round 1, attempt 1, of 3 worker at 3 of 3 addresses, 1 evaluator at 1 of 1 addresses
                tell c2: run worker:1 in round 1, attempt 1, of 3 worker at 3 of 3 addresses, 1 evaluator at 1 of 1 addresses
                tell c3: run worker:2 in round 1, attempt 1, of 3 worker at 3 of 3 addresses, 1 evaluator at 1 of 1 addresses
                tell c4: run evaluator:0 in round 1, attempt 1, of 3 worker at 3 of 3 addresses, 1 evaluator at 1 of 1 addresses
                · worker:0 runs on `n1` (attempt 1)
                reason: 1 task running; programs may wait for worker:1, worker:2, which have not started; waiting: 2 × `worker` for its program to start, 1 × `evaluator` for its program to start
                · worker:1 runs on `n1` (attempt 1)
                reason: 2 tasks running; programs may wait for worker:2, which has not started; waiting: 1 × `worker` for its program to start, 1 × `evaluator` for its program to start
                · worker:2 runs on `n1` (attempt 1)
                reason: 3 tasks running; waiting: 1 × `evaluator` for its program to start
                · evaluator:0 runs on `n1` (attempt 1)
                · evaluator:0 exited with code 1 on `n1` (attempt 1); retrying
                tell c4: stop
                reason: 3 tasks running; waiting: 1 × `evaluator` to upload and stop"#]],
        );
    }
    // If the master serves the rendezvous, it knows which tasks have joined.
    check(
        "
        framework pytorch
        gang
        role worker 2 scope=job
        up c1 worker
        reason
        up c2 worker
        started c1
        reason",
        expect![[r#"
            · the job started
            launch c1 worker:0
            reason: 1 of 2 tasks ready, not yet worker:1; waiting: 1 × `worker` for a container
            launch c2 worker:1
            · round 1 started with 2 tasks
            tell c1: run worker:0 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
            tell c2: run worker:1 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
            · worker:0 runs on `n1` (attempt 1)
            reason: 1 task running; waiting: 1 × `worker` for its program to start"#]],
    );
}

#[test]
fn tasks_of_a_job_without_a_gang_start_independently() {
    check(
        "
        role worker 2
        up c1 worker
        started c1
        up c2 worker",
        expect![[r#"
            · the job started
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 2 worker
            · worker:0 runs on `n1` (attempt 1)
            launch c2 worker:1
            tell c2: run worker:1 in round 1, attempt 1, of 2 worker"#]],
    );
}

#[test]
fn a_surplus_grant_is_released() {
    check(
        "
        role worker 1
        granted c1 worker
        granted c2 worker
        granted c3 boss",
        expect![[r#"
            · the job started
            launch c1 worker:0
            release c2
            release c3"#]],
    );
}

#[test]
fn a_repeated_grant_changes_nothing() {
    check(
        "
        role worker 2
        granted c1 worker
        granted c1 worker
        asks",
        expect![[r#"
            · the job started
            launch c1 worker:0
            asks: 1 × worker (1 GiB, 1 vcore)"#]],
    );
}

#[test]
fn a_repeated_surplus_grant_is_not_used() {
    check(
        "
        role worker 1 limit=1
        granted c1 worker
        granted c2 worker
        launched c1
        ended c1 fault disk
        granted c2 worker
        asks",
        expect![[r#"
            · the job started
            launch c1 worker:0
            release c2
            · worker:0 could not run on its node: disk on `n1` (attempt 1); retrying
            asks: 1 × worker (1 GiB, 1 vcore)"#]],
    );
}

#[test]
fn a_grant_that_is_too_small_is_released() {
    check(
        "
        role worker 1
        granted c1 worker n1 512",
        expect![[r#"
            · the job started
            release c1"#]],
    );
}

#[test]
fn an_agent_may_be_ready_before_its_launch_is_confirmed() {
    check(
        "
        role worker 1
        granted c1 worker
        ready c1
        launched c1
        started c1",
        expect![[r#"
            · the job started
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 1 worker
            · worker:0 runs on `n1` (attempt 1)"#]],
    );
}

#[test]
fn a_late_exit_from_an_earlier_round_changes_nothing() {
    check(
        "
        gang
        role worker 2 scope=job limit=1
        up c1 worker
        up c2 worker
        started c1
        started c2
        exited c1 1
        ready c2
        uploaded c1
        up c3 worker
        started c2
        exited c2 1 round=1
        states",
        expect![[r#"
            · the job started
            launch c1 worker:0
            launch c2 worker:1
            · round 1 started with 2 tasks
            tell c1: run worker:0 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
            tell c2: run worker:1 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
            · worker:0 runs on `n1` (attempt 1)
            · worker:1 runs on `n1` (attempt 1)
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
            · worker:1 runs on `n1` (attempt 2)
            worker:0 starting, worker:1 running"#]],
    );
}

#[test]
fn an_agent_ready_for_an_earlier_round_is_not_ready() {
    check(
        "
        gang
        role worker 2 scope=job limit=1
        up c1 worker
        up c2 worker
        exited c1 1
        ready c2 1
        uploaded c1
        up c3 worker
        ready c2 1
        states
        ready c2",
        expect![[r#"
            · the job started
            launch c1 worker:0
            launch c2 worker:1
            · round 1 started with 2 tasks
            tell c1: run worker:0 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
            tell c2: run worker:1 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
            · worker:0 exited with code 1 on `n1` (attempt 1); retrying
            tell c1: stop
            · round 2 restarts with 2 tasks: worker:0 ended
            · worker:1 is stopped (attempt 1)
            tell c2: wait as worker:1 for round 2
            release c1
            launch c3 worker:0
            worker:0 ready, worker:1 restarting
            · round 2 started with 2 tasks
            tell c3: run worker:0 in round 2, attempt 2, of 2 worker at 2 of 2 addresses
            tell c2: run worker:1 in round 2, attempt 2, of 2 worker at 2 of 2 addresses"#]],
    );
}

#[test]
fn a_message_from_a_container_no_longer_held_changes_nothing() {
    check(
        "
        role worker 1 limit=2
        up c1 worker
        started c1
        exited c1 1
        uploaded c1
        up c2 worker
        started c2
        exited c1 0 round=1
        uploaded c1
        ended c1 completed 0
        ready c1 1
        setup-failed c1 no ports
        states
        order c1",
        expect![[r#"
            · the job started
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 1 worker
            · worker:0 runs on `n1` (attempt 1)
            · worker:0 exited with code 1 on `n1` (attempt 1); retrying
            tell c1: stop
            release c1
            launch c2 worker:0
            tell c2: run worker:0 in round 1, attempt 2, of 1 worker
            · worker:0 runs on `n1` (attempt 2)
            worker:0 running
            order c1: stop"#]],
    );
}

#[test]
fn a_clock_that_runs_backwards_is_ignored() {
    check(
        "
        timeouts join=10s
        role worker 1 limit=1
        +60s
        granted c1 worker
        launched c1
        -59s
        +5s
        states
        +66s",
        expect![[r#"
            [1m]
            · the job started
            launch c1 worker:0
            [6s]
            worker:0 launching
            [1m 12s]
            · worker:0 was not ready 12s after its container started on `n1` (attempt 1); retrying
            release c1"#]],
    );
}
