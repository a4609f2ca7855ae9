//! Resized gangs: admission of new tasks, and selection of the tasks to remove.

use super::script::check;
use expect_test::expect;

#[test]
fn a_gang_is_interrupted_only_when_all_newcomers_are_ready() {
    check(
        "
        gang
        role worker 2 scope=job
        running
        scale worker 4
        asks
        up c3 worker
        states
        reason
        round
        up c4 worker
        round
        ready c1
        ready c2
        ready c3
        ready c4",
        expect![[r#"
            running: worker:0 in c1, worker:1 in c2 in round 1, of 2 worker at 2 of 2 addresses
            · role `worker` scaled from 2 to 4
            asks: 2 × worker (1 GiB, 1 vcore)
            launch c3 worker:2
            worker:0 running, worker:1 running, worker:2 ready, worker:3 requested
            reason: 1 of 2 tasks ready, not yet worker:3; 2 tasks running; waiting: 1 × `worker` for a container
            round 1
            launch c4 worker:3
            · round 3 restarts with 4 tasks: worker:2 joined
            · worker:0 is stopped (attempt 1)
            tell c1: wait as worker:0 for round 3
            · worker:1 is stopped (attempt 1)
            tell c2: wait as worker:1 for round 3
            tell c3: wait as worker:2 for round 3
            tell c4: wait as worker:3 for round 3
            round 3
            · round 3 started with 4 tasks
            tell c1: run worker:0 in round 3, attempt 2, of 4 worker at 4 of 4 addresses
            tell c2: run worker:1 in round 3, attempt 2, of 4 worker at 4 of 4 addresses
            tell c3: run worker:2 in round 3, attempt 1, of 4 worker at 4 of 4 addresses
            tell c4: run worker:3 in round 3, attempt 1, of 4 worker at 4 of 4 addresses"#]],
    );
}

#[test]
fn a_gang_continues_without_newcomers_that_get_no_containers() {
    check(
        "
        gang hold=10s retries=1 backoff=5s
        role worker 1 scope=job
        running
        scale worker 3
        up c2 worker
        +10s
        +5s
        up c3 worker
        +10s
        asks
        states",
        expect![[r#"
            running: worker:0 in c1 in round 1, of 1 worker at 1 of 1 addresses
            · role `worker` scaled from 1 to 3
            launch c2 worker:1
            [10s]
            · released its containers (try 1); asking again in 5s: 2 of 3 containers granted after 10s; missing: 1 × `worker` (1 GiB, 1 vcore)
            release c2
            [15s]
            launch c3 worker:1
            [25s]
            · role `worker` scaled from 3 to 1: 2 of 3 containers granted after 10s; missing: 1 × `worker` (1 GiB, 1 vcore)
            release c3
            asks: nothing
            worker:0 running"#]],
    );
}

#[test]
fn a_pending_gang_grows_at_once() {
    check(
        "
        gang
        role worker 1 scope=job
        granted c1 worker
        scale worker 2
        ready c1
        up c2 worker",
        expect![[r#"
            · the job started
            launch c1 worker:0
            · role `worker` scaled from 1 to 2
            launch c2 worker:1
            · round 1 started with 2 tasks
            tell c1: run worker:0 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
            tell c2: run worker:1 in round 1, attempt 1, of 2 worker at 2 of 2 addresses"#]],
    );
}

#[test]
fn a_pending_gang_that_is_scaled_down_starts_with_the_ready_tasks() {
    check(
        "
        gang
        role worker 3 scope=job
        up c1 worker
        up c2 worker
        scale worker 2
        asks",
        expect![[r#"
            · the job started
            launch c1 worker:0
            launch c2 worker:1
            · role `worker` scaled from 3 to 2
            · round 1 started with 2 tasks
            tell c1: run worker:0 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
            tell c2: run worker:1 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
            asks: nothing"#]],
    );
}

#[test]
fn a_gang_that_is_scaled_down_starts_a_new_round() {
    check(
        "
        gang
        role worker 3 scope=job
        running
        scale worker 2
        ready c1
        ready c2
        uploaded c3",
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
            release c3
            · round 2 started with 2 tasks
            tell c1: run worker:0 in round 2, attempt 2, of 2 worker at 2 of 2 addresses
            tell c2: run worker:1 in round 2, attempt 2, of 2 worker at 2 of 2 addresses"#]],
    );
}

#[test]
fn a_round_that_starts_while_newcomers_are_pending_excludes_them() {
    check(
        "
        gang
        role worker 1 scope=job
        role server 1 scope=role limit=1 service
        running
        scale worker 2
        exited c2 1
        uploaded c2
        up c3 server",
        expect![[r#"
            running: worker:0 in c1, server:0 in c2 in round 1, of 1 worker at 1 of 1 addresses, 1 server at 1 of 1 addresses
            · role `worker` scaled from 1 to 2
            · server:0 exited with code 1 on `n1` (attempt 1); retrying
            tell c2: stop
            · round 3 restarts with 1 task: server:0 ended
            release c2
            launch c3 server:0
            · round 3 started with 1 task
            tell c3: run server:0 in round 3, attempt 2, of 1 worker at 1 of 1 addresses, 1 server at 1 of 1 addresses"#]],
    );
}

#[test]
fn newcomers_join_the_next_round_of_the_job() {
    check(
        "
        gang
        role worker 2 scope=job limit=1
        running
        scale worker 3
        exited c1 1
        uploaded c1
        ready c2
        up c3 worker
        states
        up c4 worker",
        expect![[r#"
            running: worker:0 in c1, worker:1 in c2 in round 1, of 2 worker at 2 of 2 addresses
            · role `worker` scaled from 2 to 3
            · worker:0 exited with code 1 on `n1` (attempt 1); retrying
            tell c1: stop
            · round 3 restarts with 3 tasks: worker:0 ended
            · worker:1 is stopped (attempt 1)
            tell c2: wait as worker:1 for round 3
            release c1
            launch c3 worker:0
            worker:0 ready, worker:1 ready, worker:2 requested
            launch c4 worker:2
            · round 3 started with 3 tasks
            tell c3: run worker:0 in round 3, attempt 2, of 3 worker at 3 of 3 addresses
            tell c2: run worker:1 in round 3, attempt 2, of 3 worker at 3 of 3 addresses
            tell c4: run worker:2 in round 3, attempt 1, of 3 worker at 3 of 3 addresses"#]],
    );
}

#[test]
fn newcomers_without_containers_are_removed_with_later_newcomers() {
    check(
        "
        gang hold=10m
        timeouts allocation=60s
        role worker 1
        running
        scale worker 2
        +30s
        scale worker 3
        +30s
        asks
        deadline",
        expect![[r#"
            running: worker:0 in c1 in round 1, of 1 worker at 1 of 1 addresses
            · role `worker` scaled from 1 to 2
            [30s]
            · role `worker` scaled from 2 to 3
            [1m]
            · role `worker` scaled from 3 to 1: 1 of 3 containers granted after 1m; missing: 2 × `worker` (1 GiB, 1 vcore)
            asks: nothing
            next deadline: none"#]],
    );
}
