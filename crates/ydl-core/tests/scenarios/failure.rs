//! Restart scopes after a failed attempt.

use super::script::check;
use expect_test::expect;

#[test]
fn a_failed_task_restarts_alone_with_scope_task() {
    check(
        "
        role worker 2 limit=1
        up c1 worker
        up c2 worker n2
        started c1
        started c2
        exited c2 sig9
        order c2
        uploaded c2
        asks
        up c3 worker",
        expect![[r#"
            · the job started
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 2 worker
            launch c2 worker:1
            tell c2: run worker:1 in round 1, attempt 1, of 2 worker
            · worker:0 runs on `n1` (attempt 1)
            · worker:1 runs on `n2` (attempt 1)
            · worker:1 was killed by SIGKILL on `n2` (attempt 1); retrying
            tell c2: stop
            order c2: stop
            release c2
            asks: 1 × worker (1 GiB, 1 vcore)
            launch c3 worker:1
            tell c3: run worker:1 in round 1, attempt 2, of 2 worker"#]],
    );
}

#[test]
fn a_failed_task_restarts_its_role_with_scope_role() {
    check(
        "
        gang
        role worker 2 scope=role limit=1
        role server 1 service scope=role
        running
        exited c2 1
        states
        ready c1
        uploaded c2
        up c4 worker",
        expect![[r#"
            running: worker:0 in c1, worker:1 in c2, server:0 in c3 in round 1, of 2 worker at 2 of 2 addresses, 1 server at 1 of 1 addresses
            · worker:1 exited with code 1 on `n1` (attempt 1); retrying
            tell c2: stop
            · round 2 restarts with 2 tasks: worker:1 ended
            · worker:0 is stopped (attempt 1)
            tell c1: wait as worker:0 for round 2
            worker:0 restarting, worker:1 stopping, server:0 running
            release c2
            launch c4 worker:1
            · round 2 started with 2 tasks
            tell c1: run worker:0 in round 2, attempt 2, of 2 worker at 2 of 2 addresses, 1 server at 1 of 1 addresses
            tell c4: run worker:1 in round 2, attempt 2, of 2 worker at 2 of 2 addresses, 1 server at 1 of 1 addresses"#]],
    );
}

#[test]
fn a_failed_task_restarts_the_job_with_scope_job() {
    check(
        "
        gang
        role worker 2 scope=job limit=1
        role server 1 service scope=job
        running
        exited c2 sig11
        ready c1
        ready c3
        uploaded c2
        up c4 worker",
        expect![[r#"
            running: worker:0 in c1, worker:1 in c2, server:0 in c3 in round 1, of 2 worker at 2 of 2 addresses, 1 server at 1 of 1 addresses
            · worker:1 was killed by SIGSEGV on `n1` (attempt 1); retrying
            tell c2: stop
            · round 2 restarts with 3 tasks: worker:1 ended
            · worker:0 is stopped (attempt 1)
            tell c1: wait as worker:0 for round 2
            · server:0 is stopped (attempt 1)
            tell c3: wait as server:0 for round 2
            release c2
            launch c4 worker:1
            · round 2 started with 3 tasks
            tell c1: run worker:0 in round 2, attempt 2, of 2 worker at 2 of 2 addresses, 1 server at 1 of 1 addresses
            tell c4: run worker:1 in round 2, attempt 2, of 2 worker at 2 of 2 addresses, 1 server at 1 of 1 addresses
            tell c3: run server:0 in round 2, attempt 2, of 2 worker at 2 of 2 addresses, 1 server at 1 of 1 addresses"#]],
    );
}

#[test]
fn a_successful_worker_runs_again_in_a_new_round() {
    check(
        "
        gang
        role worker 2 scope=job limit=1
        running
        exited c1 0
        uploaded c1
        states
        exited c2 1
        uploaded c2
        asks
        states",
        expect![[r#"
            running: worker:0 in c1, worker:1 in c2 in round 1, of 2 worker at 2 of 2 addresses
            tell c1: stop and upload
            release c1
            · worker:0 succeeded on `n1` (attempt 1)
            worker:0 succeeded, worker:1 running
            · worker:1 exited with code 1 on `n1` (attempt 1); retrying
            tell c2: stop
            · round 2 restarts with 2 tasks: worker:1 ended
            release c2
            asks: 2 × worker (1 GiB, 1 vcore)
            worker:0 requested, worker:1 requested"#]],
    );
}

#[test]
fn a_task_that_never_ran_does_not_restart_running_tasks() {
    check(
        "
        role worker 2 scope=role limit=1
        running worker 1
        granted c2 worker
        launch-failed c2 no disk
        states",
        expect![[r#"
            running: worker:0 in c1 in round 1, of 2 worker
            launch c2 worker:1
            · worker:1 could not run on its node: no disk on `n1` (attempt 1); retrying
            release c2
            worker:0 running, worker:1 requested"#]],
    );
}

#[test]
fn a_port_taken_by_another_process_restarts_the_round_and_uses_up_no_restart() {
    check(
        "
        gang
        role worker 2 scope=task limit=0
        running
        exited c1 1 port=20001
        uploaded c1
        exited c2 sig15 round=1",
        expect![[r#"
            running: worker:0 in c1, worker:1 in c2 in round 1, of 2 worker at 2 of 2 addresses
            · worker:0 failed because another process took its port 20001 on `n1` (attempt 1); retrying
            tell c1: stop
            · round 2 restarts with 2 tasks: worker:0 ended
            · worker:1 is stopped (attempt 1)
            tell c2: wait as worker:1 for round 2
            release c1"#]],
    );
}

#[test]
fn a_newcomer_whose_round_changed_before_it_joined_uses_up_no_restart() {
    check(
        "
        gang settle=1s told
        role worker 1..2:1 scope=job limit=0
        running
        scale worker 2
        up c2 worker
        +1s
        started c2
        exited c2 1 outdated
        uploaded c2
        +1m
        asks",
        expect![[r#"
            running: worker:0 in c1 in round 1, of 1 worker at 1 of 1 addresses
            · role `worker` scaled from 1 to 2
            launch c2 worker:1
            · round 1 continues with 2 tasks
            changed: 2 worker at 2 of 2 addresses
            tell c2: run worker:1 in round 2, attempt 1, of 2 worker at 2 of 2 addresses
            [1s]
            · worker:1 runs on `n1` (attempt 1)
            · worker:1 was too late to join its round on `n1` (attempt 1); retrying
            tell c2: stop
            · round 1 continues with 1 task
            changed: 1 worker at 1 of 1 addresses
            release c2
            [1m 1s]
            asks: 1 × worker (1 GiB, 1 vcore)"#]],
    );
}
