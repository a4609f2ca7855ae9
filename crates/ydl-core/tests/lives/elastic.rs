//! Roles whose tasks come and go.

use super::script::check;
use expect_test::expect;

#[test]
fn a_round_begins_with_enough_when_nothing_has_changed_for_a_while_and_goes_on_with_more() {
    check(
        "
        gang settle=5s
        role worker 2..4 scope=job
        up c1 worker
        +5s
        up c2 worker
        +4s
        why
        +1s
        asks
        why
        started c1
        started c2
        up c3 worker
        +4s
        up c4 worker
        ready c1
        ready c2",
        expect![[r#"
            · the job began
            launch c1 worker:0
            [5s]
            launch c2 worker:1
            [9s]
            why: 2 of 4 tasks ready; `worker` begins with 2 unless more come within 5s; waiting: 2 × `worker` for a container
            [10s]
            · round 1 began with 2 tasks
            tell c1: run worker:0 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
            tell c2: run worker:1 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
            asks: 2 × worker (1 GiB, 1 vcore)
            why: 2 tasks running; `worker` goes on with 2 of 4; waiting: 2 × `worker` for a container
            · worker:0 runs on `n1` (attempt 1)
            · worker:1 runs on `n1` (attempt 1)
            launch c3 worker:2
            [14s]
            launch c4 worker:3
            · round 3 gathers 4 tasks because of worker:2
            · worker:0 is stopped (attempt 1)
            tell c1: wait as worker:0 for round 3
            · worker:1 is stopped (attempt 1)
            tell c2: wait as worker:1 for round 3
            tell c3: wait as worker:2 for round 3
            tell c4: wait as worker:3 for round 3
            · round 3 began with 4 tasks
            tell c1: run worker:0 in round 3, attempt 2, of 4 worker at 4 of 4 addresses
            tell c2: run worker:1 in round 3, attempt 2, of 4 worker at 4 of 4 addresses
            tell c3: run worker:2 in round 3, attempt 1, of 4 worker at 4 of 4 addresses
            tell c4: run worker:3 in round 3, attempt 1, of 4 worker at 4 of 4 addresses"#]],
    );
}

#[test]
fn newcomers_are_let_in_when_nothing_has_changed_for_a_while() {
    check(
        "
        gang settle=5s
        role worker 1..3:1 scope=job
        up c1 worker
        started c1
        scale worker 3
        up c2 worker
        +4s
        +1s
        ready c1
        why
        asks",
        expect![[r#"
            · the job began
            launch c1 worker:0
            · round 1 began with 1 task
            tell c1: run worker:0 in round 1, attempt 1, of 1 worker at 1 of 1 addresses
            · worker:0 runs on `n1` (attempt 1)
            · role `worker` goes from 1 to 3
            launch c2 worker:1
            [5s]
            · round 3 gathers 3 tasks because of worker:1
            · worker:0 is stopped (attempt 1)
            tell c1: wait as worker:0 for round 3
            tell c2: wait as worker:1 for round 3
            · round 3 began with 2 tasks
            tell c1: run worker:0 in round 3, attempt 2, of 2 worker at 2 of 2 addresses
            tell c2: run worker:1 in round 3, attempt 1, of 2 worker at 2 of 2 addresses
            why: 2 tasks running; `worker` goes on with 2 of 3; waiting: 1 × `worker` for a container
            asks: 1 × worker (1 GiB, 1 vcore)"#]],
    );
}

#[test]
fn a_lost_one_is_done_without_at_once_and_joins_later() {
    check(
        "
        gang settle=5s
        role worker 2..3 scope=job
        up c1 worker
        up c2 worker
        up c3 worker
        started c1
        started c2
        started c3
        ended c2 preempted
        asks
        ready c1
        ready c3
        started c1
        started c3
        why
        up c4 worker
        ready c1
        ready c3",
        expect![[r#"
            · the job began
            launch c1 worker:0
            launch c2 worker:1
            launch c3 worker:2
            · round 1 began with 3 tasks
            tell c1: run worker:0 in round 1, attempt 1, of 3 worker at 3 of 3 addresses
            tell c2: run worker:1 in round 1, attempt 1, of 3 worker at 3 of 3 addresses
            tell c3: run worker:2 in round 1, attempt 1, of 3 worker at 3 of 3 addresses
            · worker:0 runs on `n1` (attempt 1)
            · worker:1 runs on `n1` (attempt 1)
            · worker:2 runs on `n1` (attempt 1)
            · worker:1 was preempted by the cluster on `n1` (attempt 1); it starts again
            · round 2 gathers 3 tasks because of worker:1
            · worker:0 is stopped (attempt 1)
            tell c1: wait as worker:0 for round 2
            · worker:2 is stopped (attempt 1)
            tell c3: wait as worker:2 for round 2
            asks: 1 × worker (1 GiB, 1 vcore)
            · round 2 began with 2 tasks
            tell c1: run worker:0 as rank 0 in round 2, attempt 2, of 2 worker [0, 2] at 2 of 2 addresses
            tell c3: run worker:2 as rank 1 in round 2, attempt 2, of 2 worker [0, 2] at 2 of 2 addresses
            · worker:0 runs on `n1` (attempt 2)
            · worker:2 runs on `n1` (attempt 2)
            why: 2 tasks running; `worker` goes on with 2 of 3; waiting: 1 × `worker` for a container
            launch c4 worker:1
            · round 4 gathers 3 tasks because of worker:1
            · worker:0 is stopped (attempt 2)
            tell c1: wait as worker:0 for round 4
            tell c4: wait as worker:1 for round 4
            · worker:2 is stopped (attempt 2)
            tell c3: wait as worker:2 for round 4
            · round 4 began with 3 tasks
            tell c1: run worker:0 in round 4, attempt 3, of 3 worker at 3 of 3 addresses
            tell c4: run worker:1 in round 4, attempt 2, of 3 worker at 3 of 3 addresses
            tell c3: run worker:2 in round 4, attempt 3, of 3 worker at 3 of 3 addresses"#]],
    );
}

#[test]
fn with_too_few_left_the_round_waits_for_its_least_and_says_who_is_missing() {
    check(
        "
        gang settle=5s
        role worker 2..3 scope=job
        deadlines allocation=60s
        up c1 worker
        up c2 worker
        up c3 worker
        started c1
        started c2
        started c3
        ended c1 preempted, c2 preempted
        ready c3
        why
        deadline
        up c4 worker
        +5s",
        expect![[r#"
            · the job began
            launch c1 worker:0
            launch c2 worker:1
            launch c3 worker:2
            · round 1 began with 3 tasks
            tell c1: run worker:0 in round 1, attempt 1, of 3 worker at 3 of 3 addresses
            tell c2: run worker:1 in round 1, attempt 1, of 3 worker at 3 of 3 addresses
            tell c3: run worker:2 in round 1, attempt 1, of 3 worker at 3 of 3 addresses
            · worker:0 runs on `n1` (attempt 1)
            · worker:1 runs on `n1` (attempt 1)
            · worker:2 runs on `n1` (attempt 1)
            · worker:0 was preempted by the cluster on `n1` (attempt 1); it starts again
            · round 2 gathers 3 tasks because of worker:0
            · worker:1 is stopped (attempt 1)
            tell c2: stop
            · worker:2 is stopped (attempt 1)
            tell c3: wait as worker:2 for round 2
            · worker:1 was preempted by the cluster on `n1` (attempt 2); it starts again
            why: 1 of 3 tasks ready; `worker` needs 1 more of worker:0, worker:1; waiting: 2 × `worker` for a container
            next deadline: 30s
            launch c4 worker:0
            [5s]
            · round 2 began with 2 tasks
            tell c4: run worker:0 as rank 0 in round 2, attempt 2, of 2 worker [0, 2] at 2 of 2 addresses
            tell c3: run worker:2 as rank 1 in round 2, attempt 2, of 2 worker [0, 2] at 2 of 2 addresses"#]],
    );
}

#[test]
fn with_too_few_for_too_long_the_job_fails() {
    check(
        "
        gang settle=5s hold=10m
        role worker 2..3 scope=job
        deadlines allocation=60s
        up c1 worker
        +60s",
        expect![[r#"
            · the job began
            launch c1 worker:0
            [1m]
            · the job is ending: failed: 1 of 3 containers were there after 1m; missing: 2 × `worker` (1 GiB, 1 vcore)
            release c1
            · the job failed: 1 of 3 containers were there after 1m; missing: 2 × `worker` (1 GiB, 1 vcore)
            finish: failed: 1 of 3 containers were there after 1m; missing: 2 × `worker` (1 GiB, 1 vcore)"#]],
    );
}

#[test]
fn a_round_does_not_begin_beside_a_program_that_may_still_run() {
    check(
        "
        gang settle=1s
        deadlines silence=10s grace=1s stop=2s
        role worker 1..2 scope=job
        up c1 worker
        up c2 worker
        started c1
        started c2
        quiet c2
        +10s
        ready c1
        why
        +3s",
        expect![[r#"
            · the job began
            launch c1 worker:0
            launch c2 worker:1
            · round 1 began with 2 tasks
            tell c1: run worker:0 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
            tell c2: run worker:1 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
            · worker:0 runs on `n1` (attempt 1)
            · worker:1 runs on `n1` (attempt 1)
            [10s]
            · worker:1 was not heard of for 10s on `n1` (attempt 1); it starts again
            release c2
            · round 2 gathers 2 tasks because of worker:1
            · worker:0 is stopped (attempt 1)
            tell c1: wait as worker:0 for round 2
            why: 1 of 2 tasks ready; `worker` begins with 1 unless more come within 1s; waiting: 1 × `worker` to be saved and stopped
            [13s]
            · round 2 began with 1 task
            tell c1: run worker:0 in round 2, attempt 2, of 1 worker at 1 of 1 addresses"#]],
    );
}

#[test]
fn those_who_are_done_are_not_interrupted_and_those_who_never_came_are_not_waited_for() {
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
        saved c1
        up c3 worker
        +5s
        exited c2 0
        saved c2",
        expect![[r#"
            · the job began
            launch c1 worker:0
            launch c2 worker:1
            [5s]
            · round 1 began with 2 tasks
            tell c1: run worker:0 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
            tell c2: run worker:1 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
            · worker:0 runs on `n1` (attempt 1)
            · worker:1 runs on `n1` (attempt 1)
            tell c1: stop and save
            release c1
            · worker:0 succeeded on `n1` (attempt 1)
            launch c3 worker:2
            [10s]
            tell c2: stop and save
            release c2
            · worker:1 succeeded on `n1` (attempt 1)
            · the job is ending: succeeded
            release c3
            · the job succeeded
            finish: succeeded"#]],
    );
}

#[test]
fn an_elastic_role_that_shrinks_lets_those_go_first_who_are_not_there() {
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
        scale worker 3
        asks",
        expect![[r#"
            · the job began
            launch c1 worker:0
            launch c2 worker:1
            launch c3 worker:2
            [5s]
            · round 1 began with 3 tasks
            tell c1: run worker:0 in round 1, attempt 1, of 3 worker at 3 of 3 addresses
            tell c2: run worker:1 in round 1, attempt 1, of 3 worker at 3 of 3 addresses
            tell c3: run worker:2 in round 1, attempt 1, of 3 worker at 3 of 3 addresses
            · worker:0 runs on `n1` (attempt 1)
            · worker:1 runs on `n1` (attempt 1)
            · worker:2 runs on `n1` (attempt 1)
            · worker:1 was preempted by the cluster on `n1` (attempt 1); it starts again
            · round 3 gathers 4 tasks because of worker:1
            · worker:0 is stopped (attempt 1)
            tell c1: wait as worker:0 for round 3
            · worker:2 is stopped (attempt 1)
            tell c3: wait as worker:2 for round 3
            · round 3 began with 2 tasks
            tell c1: run worker:0 as rank 0 in round 3, attempt 2, of 2 worker [0, 2] at 2 of 2 addresses
            tell c3: run worker:2 as rank 1 in round 3, attempt 2, of 2 worker [0, 2] at 2 of 2 addresses
            · role `worker` goes from 4 to 3
            · role `worker` goes from 3 to 2
            worker:0 starting, worker:2 starting
            · role `worker` goes from 2 to 1
            · worker:2 is stopped (attempt 2)
            tell c3: stop and save
            · round 5 gathers 1 task because of worker:0
            · worker:0 is stopped (attempt 2)
            tell c1: wait as worker:0 for round 5
            worker:0 rewinding, worker:2 stopping
            · round 5 began with 1 task
            tell c1: run worker:0 in round 5, attempt 3, of 1 worker at 1 of 1 addresses
            · role `worker` goes from 1 to 3
            asks: 1 × worker (1 GiB, 1 vcore)"#]],
    );
}

#[test]
fn a_program_that_fails_uses_up_a_restart_and_the_others_go_on() {
    check(
        "
        gang settle=5s
        role worker 1..2 scope=job limit=1
        up c1 worker
        up c2 worker
        started c1
        started c2
        exited c1 1
        exited c2 1
        ready c2
        saved c1
        up c3 worker
        ready c2
        exited c2 1",
        expect![[r#"
            · the job began
            launch c1 worker:0
            launch c2 worker:1
            · round 1 began with 2 tasks
            tell c1: run worker:0 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
            tell c2: run worker:1 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
            · worker:0 runs on `n1` (attempt 1)
            · worker:1 runs on `n1` (attempt 1)
            · worker:0 exited with code 1 on `n1` (attempt 1); it starts again
            tell c1: stop
            · round 2 gathers 2 tasks because of worker:0
            · worker:1 is stopped (attempt 1)
            tell c2: wait as worker:1 for round 2
            · round 2 began with 1 task
            tell c2: run worker:1 as rank 0 in round 2, attempt 2, of 1 worker [1] at 1 of 1 addresses
            release c1
            launch c3 worker:0
            · round 4 gathers 2 tasks because of worker:0
            tell c3: wait as worker:0 for round 4
            · worker:1 is stopped (attempt 2)
            tell c2: wait as worker:1 for round 4
            · round 4 began with 2 tasks
            tell c3: run worker:0 in round 4, attempt 2, of 2 worker at 2 of 2 addresses
            tell c2: run worker:1 in round 4, attempt 3, of 2 worker at 2 of 2 addresses
            · worker:1 exited with code 1 on `n1` (attempt 3); the job fails
            tell c2: stop and save
            · the job is ending: failed: worker:1 exited with code 1 on `n1` (attempt 3)
            · worker:0 is stopped (attempt 2)
            tell c3: stop and save"#]],
    );
}

#[test]
fn who_dies_of_a_peer_that_the_cluster_takes_is_not_blamed() {
    check(
        "
        gang settle=5s
        role worker 1..2 scope=job
        up c1 worker
        up c2 worker
        started c1
        started c2
        exited c1 sig15 container
        exited c2 1 round=1
        ended c1 preempted
        ready c2",
        expect![[r#"
            · the job began
            launch c1 worker:0
            launch c2 worker:1
            · round 1 began with 2 tasks
            tell c1: run worker:0 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
            tell c2: run worker:1 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
            · worker:0 runs on `n1` (attempt 1)
            · worker:1 runs on `n1` (attempt 1)
            · round 2 gathers 2 tasks because of worker:0
            · worker:1 is stopped (attempt 1)
            tell c2: wait as worker:1 for round 2
            · worker:0 was preempted by the cluster on `n1` (attempt 1); it starts again
            · round 2 began with 1 task
            tell c2: run worker:1 as rank 0 in round 2, attempt 2, of 1 worker [1] at 1 of 1 addresses"#]],
    );
}

#[test]
fn those_who_can_be_told_run_on() {
    check(
        "
        gang settle=5s told
        role worker 2..4:3 scope=job
        up c1 worker
        up c2 worker
        up c3 worker
        started c1
        started c2
        started c3
        ended c2 preempted
        asks
        up c4 worker
        started c4
        scale worker 2
        saved c3
        ended c1 preempted
        why
        up c5 worker
        exited c4 0
        saved c4
        exited c5 0
        saved c5",
        expect![[r#"
            · the job began
            launch c1 worker:0
            launch c2 worker:1
            launch c3 worker:2
            · round 1 began with 3 tasks
            tell c1: run worker:0 in round 1, attempt 1, of 3 worker at 3 of 3 addresses
            tell c2: run worker:1 in round 1, attempt 1, of 3 worker at 3 of 3 addresses
            tell c3: run worker:2 in round 1, attempt 1, of 3 worker at 3 of 3 addresses
            · worker:0 runs on `n1` (attempt 1)
            · worker:1 runs on `n1` (attempt 1)
            · worker:2 runs on `n1` (attempt 1)
            · worker:1 was preempted by the cluster on `n1` (attempt 1); it starts again
            · round 1 goes on with 2 tasks
            changed: 2 worker [0, 2] at 2 of 2 addresses
            asks: 1 × worker (1 GiB, 1 vcore)
            launch c4 worker:1
            · round 1 goes on with 3 tasks
            changed: 3 worker [0, 2, 1] at 3 of 3 addresses
            tell c4: run worker:1 as rank 2 in round 2, attempt 2, of 3 worker [0, 2, 1] at 3 of 3 addresses
            · worker:1 runs on `n1` (attempt 2)
            · role `worker` goes from 3 to 2
            · worker:2 is stopped (attempt 1)
            tell c3: stop and save
            · round 1 goes on with 2 tasks
            changed: 2 worker at 2 of 2 addresses
            release c3
            · worker:0 was preempted by the cluster on `n1` (attempt 1); it starts again
            why: 1 task running; `worker` needs 1 more of worker:0; waiting: 1 × `worker` for a container
            launch c5 worker:0
            · round 1 goes on with 2 tasks
            changed: 2 worker [1, 0] at 2 of 2 addresses
            tell c5: run worker:0 as rank 1 in round 3, attempt 2, of 2 worker [1, 0] at 2 of 2 addresses
            tell c4: stop and save
            release c4
            · worker:1 succeeded on `n1` (attempt 2)
            tell c5: stop and save
            release c5
            · worker:0 succeeded on `n1` (attempt 2)
            · the job is ending: succeeded
            · the job succeeded
            finish: succeeded"#]],
    );
}

#[test]
fn a_master_that_recovers_waits_anew_before_it_interrupts_anybody() {
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
        heard c1
        heard c2
        +4s
        states
        +1s",
        expect![[r#"
            · the job began
            launch c1 worker:0
            [5s]
            · round 1 began with 1 task
            tell c1: run worker:0 in round 1, attempt 1, of 1 worker at 1 of 1 addresses
            · worker:0 runs on `n1` (attempt 1)
            launch c2 worker:1
            [9s]
            · a new master took over 2 containers
            [13s]
            worker:0 running, worker:1 ready, worker:2 asked
            [14s]
            · round 3 gathers 3 tasks because of worker:1
            · worker:0 is stopped (attempt 1)
            tell c1: wait as worker:0 for round 3
            tell c2: wait as worker:1 for round 3"#]],
    );
}

#[test]
fn who_failed_before_it_was_known_that_the_cluster_took_a_peer_has_used_up_nothing() {
    check(
        "
        gang settle=5s
        role worker 1..2 scope=job limit=1
        up c1 worker
        up c2 worker
        started c1
        started c2
        exited c1 1
        saved c1
        ended c2 preempted
        up c3 worker
        up c4 worker
        started c3
        started c4
        exited c3 1
        saved c3
        ready c4
        exited c4 1",
        expect![[r#"
            · the job began
            launch c1 worker:0
            launch c2 worker:1
            · round 1 began with 2 tasks
            tell c1: run worker:0 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
            tell c2: run worker:1 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
            · worker:0 runs on `n1` (attempt 1)
            · worker:1 runs on `n1` (attempt 1)
            · worker:0 exited with code 1 on `n1` (attempt 1); it starts again
            tell c1: stop
            · round 2 gathers 2 tasks because of worker:0
            · worker:1 is stopped (attempt 1)
            tell c2: wait as worker:1 for round 2
            release c1
            · worker:1 was preempted by the cluster on `n1` (attempt 2); it starts again
            launch c3 worker:0
            launch c4 worker:1
            · round 2 began with 2 tasks
            tell c3: run worker:0 in round 2, attempt 2, of 2 worker at 2 of 2 addresses
            tell c4: run worker:1 in round 2, attempt 3, of 2 worker at 2 of 2 addresses
            · worker:0 runs on `n1` (attempt 2)
            · worker:1 runs on `n1` (attempt 3)
            · worker:0 exited with code 1 on `n1` (attempt 2); it starts again
            tell c3: stop
            · round 3 gathers 2 tasks because of worker:0
            · worker:1 is stopped (attempt 3)
            tell c4: wait as worker:1 for round 3
            release c3
            · round 3 began with 1 task
            tell c4: run worker:1 as rank 0 in round 3, attempt 4, of 1 worker [1] at 1 of 1 addresses
            · worker:1 exited with code 1 on `n1` (attempt 4); the job fails
            tell c4: stop and save
            · the job is ending: failed: worker:1 exited with code 1 on `n1` (attempt 4)"#]],
    );
}
