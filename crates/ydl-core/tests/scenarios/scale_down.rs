//! Tasks that leave an elastic role: finished and surplus ones.

use super::script::check;
use expect_test::expect;

#[test]
fn finished_tasks_are_not_interrupted_and_missing_tasks_are_not_waited_for() {
    check(
        "
        gang settle=5s
        role worker 1..3 scope=job
        up c1 worker
        up c2 worker
        +5s
        started c1
        started c2
        exited c1 0
        uploaded c1
        up c3 worker
        +5s
        exited c2 0
        uploaded c2",
        expect![[r#"
            · the job started
            launch c1 worker:0
            launch c2 worker:1
            [5s]
            · round 1 started with 2 tasks
            tell c1: run worker:0 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
            tell c2: run worker:1 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
            · worker:0 runs on `n1` (attempt 1)
            · worker:1 runs on `n1` (attempt 1)
            tell c1: stop and upload
            release c1
            · worker:0 succeeded on `n1` (attempt 1)
            launch c3 worker:2
            [10s]
            tell c2: stop and upload
            release c2
            · worker:1 succeeded on `n1` (attempt 1)
            · the job is ending: succeeded
            release c3
            · the job succeeded
            finish: succeeded"#]],
    );
}

#[test]
fn scaling_down_an_elastic_role_removes_missing_tasks_first() {
    check(
        "
        gang settle=5s
        role worker 1..4 scope=job
        up c1 worker
        up c2 worker
        up c3 worker
        +5s
        started c1
        started c2
        started c3
        ended c2 preempted
        ready c1
        ready c3
        scale worker 3
        scale worker 2
        states
        scale worker 5
        scale worker 1
        states
        ready c1
        exited c3 sig15 round=3
        scale worker 3
        asks",
        expect![[r#"
            · the job started
            launch c1 worker:0
            launch c2 worker:1
            launch c3 worker:2
            [5s]
            · round 1 started with 3 tasks
            tell c1: run worker:0 in round 1, attempt 1, of 3 worker at 3 of 3 addresses
            tell c2: run worker:1 in round 1, attempt 1, of 3 worker at 3 of 3 addresses
            tell c3: run worker:2 in round 1, attempt 1, of 3 worker at 3 of 3 addresses
            · worker:0 runs on `n1` (attempt 1)
            · worker:1 runs on `n1` (attempt 1)
            · worker:2 runs on `n1` (attempt 1)
            · worker:1 was preempted by the cluster on `n1` (attempt 1); retrying
            · round 3 restarts with 4 tasks: worker:1 ended
            · worker:0 is stopped (attempt 1)
            tell c1: wait as worker:0 for round 3
            · worker:2 is stopped (attempt 1)
            tell c3: wait as worker:2 for round 3
            · round 3 started with 2 tasks
            tell c1: run worker:0 as rank 0 in round 3, attempt 2, of 2 worker [0, 2] at 2 of 2 addresses
            tell c3: run worker:2 as rank 1 in round 3, attempt 2, of 2 worker [0, 2] at 2 of 2 addresses
            · role `worker` scaled from 4 to 3
            · role `worker` scaled from 3 to 2
            worker:0 starting, worker:2 starting
            · role `worker` scaled from 2 to 1
            · worker:2 is stopped (attempt 2)
            tell c3: stop and upload
            · round 5 restarts with 1 task: worker:2 left
            · worker:0 is stopped (attempt 2)
            tell c1: wait as worker:0 for round 5
            worker:0 restarting, worker:2 stopping
            · round 5 started with 1 task
            tell c1: run worker:0 in round 5, attempt 3, of 1 worker at 1 of 1 addresses
            · role `worker` scaled from 1 to 3
            asks: 1 × worker (1 GiB, 1 vcore)"#]],
    );
}

#[test]
fn two_elastic_roles_restart_with_the_remaining_tasks_of_both() {
    check(
        "
        gang settle=5s
        role actor 1..2 scope=job
        role learner 1..2 scope=job
        up c1 actor n1
        up c2 actor n2
        up c3 learner n1
        up c4 learner n2
        started c1
        started c2
        started c3
        started c4
        ended c2 lost, c4 lost
        uploaded c2
        uploaded c4
        ready c1
        ready c3
        reason",
        expect![[r#"
            · the job started
            launch c1 actor:0
            launch c2 actor:1
            launch c3 learner:0
            launch c4 learner:1
            · round 1 started with 4 tasks
            tell c1: run actor:0 in round 1, attempt 1, of 2 actor at 2 of 2 addresses, 2 learner at 2 of 2 addresses
            tell c2: run actor:1 in round 1, attempt 1, of 2 actor at 2 of 2 addresses, 2 learner at 2 of 2 addresses
            tell c3: run learner:0 in round 1, attempt 1, of 2 actor at 2 of 2 addresses, 2 learner at 2 of 2 addresses
            tell c4: run learner:1 in round 1, attempt 1, of 2 actor at 2 of 2 addresses, 2 learner at 2 of 2 addresses
            · actor:0 runs on `n1` (attempt 1)
            · actor:1 runs on `n2` (attempt 1)
            · learner:0 runs on `n1` (attempt 1)
            · learner:1 runs on `n2` (attempt 1)
            · actor:1 was lost with its container on `n2` (attempt 1); retrying
            tell c2: stop
            · round 2 restarts with 4 tasks: actor:1 ended
            · actor:0 is stopped (attempt 1)
            tell c1: wait as actor:0 for round 2
            · learner:0 is stopped (attempt 1)
            tell c3: wait as learner:0 for round 2
            · learner:1 is stopped (attempt 1)
            tell c4: stop
            · learner:1 was lost with its container on `n2` (attempt 2); retrying
            tell c4: stop
            release c2
            release c4
            · round 2 started with 2 tasks
            tell c1: run actor:0 in round 2, attempt 2, of 1 actor at 1 of 1 addresses, 1 learner at 1 of 1 addresses
            tell c3: run learner:0 in round 2, attempt 2, of 1 actor at 1 of 1 addresses, 1 learner at 1 of 1 addresses
            reason: 0 tasks running; `actor` continues with 1 of 2; `learner` continues with 1 of 2; waiting: 1 × `actor` for a container, 1 × `actor` for its program to start, 1 × `learner` for a container, 1 × `learner` for its program to start"#]],
    );
}

#[test]
fn newcomers_of_one_role_do_not_interrupt_a_finished_role() {
    check(
        "
        gang settle=5s
        role worker 1..2 scope=job
        role chief 1 scope=job
        up c1 worker
        up c2 chief
        +5s
        started c1
        started c2
        exited c2 0
        uploaded c2
        up c3 worker
        +5s
        states
        exited c1 0
        uploaded c1",
        expect![[r#"
            · the job started
            launch c1 worker:0
            launch c2 chief:0
            [5s]
            · round 1 started with 2 tasks
            tell c1: run worker:0 in round 1, attempt 1, of 1 worker at 1 of 1 addresses, 1 chief at 1 of 1 addresses
            tell c2: run chief:0 in round 1, attempt 1, of 1 worker at 1 of 1 addresses, 1 chief at 1 of 1 addresses
            · worker:0 runs on `n1` (attempt 1)
            · chief:0 runs on `n1` (attempt 1)
            tell c2: stop and upload
            release c2
            · chief:0 succeeded on `n1` (attempt 1)
            launch c3 worker:1
            [10s]
            worker:0 running, worker:1 ready, chief:0 succeeded
            tell c1: stop and upload
            release c1
            · worker:0 succeeded on `n1` (attempt 1)
            · the job is ending: succeeded
            release c3
            · the job succeeded
            finish: succeeded"#]],
    );
}

#[test]
fn a_round_waits_for_the_programs_of_dropped_tasks() {
    check(
        "
        gang settle=5s
        outputs
        timeouts grace=10s stop=5s upload=60s
        role worker 1..3 scope=job
        running
        scale worker 2
        ready c1
        ready c2
        +1s
        states
        exited c3 sig15
        scale worker 1
        ready c1
        states
        +75s
        +75s",
        expect![[r#"
            running: worker:0 in c1, worker:1 in c2, worker:2 in c3 in round 1, of 3 worker at 3 of 3 addresses
            · role `worker` scaled from 3 to 2
            · worker:2 is stopped (attempt 1)
            tell c3: stop and upload
            · round 2 restarts with 2 tasks: worker:2 left
            · worker:0 is stopped (attempt 1)
            tell c1: wait as worker:0 for round 2
            · worker:1 is stopped (attempt 1)
            tell c2: wait as worker:1 for round 2
            [1s]
            worker:0 ready, worker:1 ready, worker:2 stopping
            · round 2 started with 2 tasks
            tell c1: run worker:0 in round 2, attempt 2, of 2 worker at 2 of 2 addresses
            tell c2: run worker:1 in round 2, attempt 2, of 2 worker at 2 of 2 addresses
            · role `worker` scaled from 2 to 1
            · worker:1 is stopped (attempt 2)
            tell c2: stop and upload
            · round 3 restarts with 1 task: worker:1 left
            · worker:0 is stopped (attempt 2)
            tell c1: wait as worker:0 for round 3
            worker:0 ready, worker:1 stopping, worker:2 stopping
            [1m 16s]
            release c3
            release c2
            [2m 31s]
            · round 3 started with 1 task
            tell c1: run worker:0 in round 3, attempt 3, of 1 worker at 1 of 1 addresses"#]],
    );
}
