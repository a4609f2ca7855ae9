//! Sidecars: they take no resources the job needs and do not affect its result.

use super::script::check;
use expect_test::expect;

#[test]
fn sidecars_of_a_gang_ask_for_containers_only_after_its_start() {
    check(
        "
        gang hold=30s retries=1 backoff=5s
        role worker 2 scope=job
        role board 1 beside
        rendezvous
        asks
        reason
        up c1 worker
        granted c9 board
        +30s
        asks
        +5s
        up c2 worker
        up c3 worker
        asks",
        expect![[r#"
            · the job started
            asks: 2 × worker (1 GiB, 1 vcore)
            reason: 0 of 2 tasks ready; waiting: 2 × `worker` for a container, 1 × `board` for the job to start
            launch c1 worker:0
            release c9
            [30s]
            · released its containers (try 1); asking again in 5s: 1 of 3 containers granted after 30s; missing: 1 × `worker` (1 GiB, 1 vcore)
            release c1
            asks: nothing
            [35s]
            launch c2 worker:0
            launch c3 worker:1
            · round 1 started with 2 tasks
            began round 1: 2 worker at 2 of 2 addresses
            tell c2: run worker:0 in round 1, attempt 2, of 2 worker at 2 of 2 addresses
            tell c3: run worker:1 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
            asks: 1 × board (1 GiB, 1 vcore)"#]],
    );
    check(
        "
        role worker 1
        role board 1 beside
        asks
        up c1 worker
        asks",
        expect![[r#"
            · the job started
            asks: 1 × worker (1 GiB, 1 vcore)
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 1 worker
            asks: 1 × board (1 GiB, 1 vcore)"#]],
    );
    // There is nothing else to wait for, or it is waited for itself.
    check(
        "
        role board 1 beside
        asks
        up c1 board
        exited c1 0
        uploaded c1",
        expect![[r#"
            · the job started
            asks: 1 × board (1 GiB, 1 vcore)
            launch c1 board:0
            tell c1: run board:0 in round 1, attempt 1, of 
            tell c1: stop and upload
            release c1
            · board:0 succeeded on `n1` (attempt 1)
            · the job is ending: succeeded
            · the job succeeded
            finish: succeeded"#]],
    );
    check(
        "
        role board 1 beside
        role worker 1 after=board
        asks
        up c1 board
        started c1
        asks",
        expect![[r#"
            · the job started
            asks: 1 × board (1 GiB, 1 vcore)
            launch c1 board:0
            tell c1: run board:0 in round 1, attempt 1, of 1 worker
            · board:0 runs on `n1` (attempt 1)
            asks: 1 × worker (1 GiB, 1 vcore)"#]],
    );
}

#[test]
fn only_gang_tasks_start_a_round() {
    check(
        "
        gang
        role worker 2 scope=job
        role board 1 beside limit=3
        rendezvous
        up c1 worker
        up c2 worker
        started c1
        started c2
        scale worker 3
        up c3 board
        started c3
        exited c3 1
        uploaded c3
        up c4 board",
        expect![[r#"
            · the job started
            launch c1 worker:0
            launch c2 worker:1
            · round 1 started with 2 tasks
            began round 1: 2 worker at 2 of 2 addresses
            tell c1: run worker:0 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
            tell c2: run worker:1 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
            · worker:0 runs on `n1` (attempt 1)
            · worker:1 runs on `n1` (attempt 1)
            · role `worker` scaled from 2 to 3
            launch c3 board:0
            tell c3: run board:0 in round 1, attempt 1, of 3 worker
            · board:0 runs on `n1` (attempt 1)
            · board:0 exited with code 1 on `n1` (attempt 1); retrying
            tell c3: stop
            over: board:0 (attempt 1)
            release c3
            launch c4 board:0
            tell c4: run board:0 in round 1, attempt 2, of 3 worker"#]],
    );
}

#[test]
fn sidecars_of_services_do_not_keep_the_job_running() {
    check(
        "
        role web 1 service
        role board 1 beside
        running web 1
        up c2 board
        started c2
        exited c1 0
        uploaded c1
        uploaded c2",
        expect![[r#"
            running: web:0 in c1 in round 1, of 1 web
            launch c2 board:0
            tell c2: run board:0 in round 1, attempt 1, of 1 web
            · board:0 runs on `n1` (attempt 1)
            tell c1: stop and upload
            release c1
            · web:0 succeeded on `n1` (attempt 1)
            · the job is ending: succeeded
            · board:0 is stopped (attempt 1)
            tell c2: stop and upload
            release c2
            · the job succeeded
            finish: succeeded"#]],
    );
}

#[test]
fn sidecars_do_not_extend_the_allocation_timeout_of_services() {
    check(
        "
        timeouts allocation=60s
        role web 1 service limit=1
        role board 1 beside
        running web 1
        up c2 board
        started c2
        ended c1 preempted
        deadline
        +60s",
        expect![[r#"
            running: web:0 in c1 in round 1, of 1 web
            launch c2 board:0
            tell c2: run board:0 in round 1, attempt 1, of 1 web
            · board:0 runs on `n1` (attempt 1)
            · web:0 was preempted by the cluster on `n1` (attempt 1); retrying
            next deadline: 1m
            [1m]
            · the job is ending: failed: 1 of 2 containers granted after 1m; missing: 1 × `web` (1 GiB, 1 vcore)
            · board:0 is stopped (attempt 1)
            tell c2: stop and upload"#]],
    );
    // Missing sidecars do not fail the job.
    check(
        "
        timeouts allocation=60s
        role web 1 service limit=1
        role board 1 beside
        running web 1
        deadline",
        expect![[r#"
            running: web:0 in c1 in round 1, of 1 web
            next deadline: none"#]],
    );
}

#[test]
fn sidecars_neither_make_failures_suspect_nor_exonerate_them() {
    check(
        "
        gang settle=5s
        role worker 1..2 scope=job limit=0
        role board 1 beside
        up c1 worker
        +5s
        started c1
        up c2 board
        started c2
        exited c1 1
        uploaded c1",
        expect![[r#"
            · the job started
            launch c1 worker:0
            [5s]
            · round 1 started with 1 task
            tell c1: run worker:0 in round 1, attempt 1, of 1 worker at 1 of 1 addresses
            · worker:0 runs on `n1` (attempt 1)
            launch c2 board:0
            tell c2: run board:0 in round 1, attempt 1, of 2 worker
            · board:0 runs on `n1` (attempt 1)
            · worker:0 exited with code 1 on `n1` (attempt 1); the job fails
            tell c1: stop and upload
            · the job is ending: failed: worker:0 exited with code 1 on `n1` (attempt 1)
            · board:0 is stopped (attempt 1)
            tell c2: stop and upload
            release c1"#]],
    );
    check(
        "
        gang settle=5s
        role worker 1..2 scope=job limit=0
        role board 1 beside limit=3
        running worker 2
        up c3 board
        started c3
        exited c1 1
        uploaded c1
        ended c3 preempted
        reason
        ended c2 preempted
        states",
        expect![[r#"
            running: worker:0 in c1, worker:1 in c2 in round 1, of 2 worker at 2 of 2 addresses
            launch c3 board:0
            tell c3: run board:0 in round 1, attempt 1, of 2 worker
            · board:0 runs on `n1` (attempt 1)
            · worker:0 exited with code 1 on `n1` (attempt 1); the job fails unless a peer was lost
            tell c1: stop and upload
            release c1
            · board:0 was preempted by the cluster on `n1` (attempt 1); retrying
            reason: 1 task running; worker:0 exited with code 1 on `n1` (attempt 1), and the job fails unless a peer was lost; waiting: 1 × `board` for a container
            · worker:1 was preempted by the cluster on `n1` (attempt 1); retrying
            · round 2 restarts with 2 tasks: worker:1 ended
            worker:0 requested, worker:1 requested, board:0 requested"#]],
    );
}

#[test]
fn a_suspect_that_is_dropped_and_revived_is_counted_once() {
    check(
        "
        gang settle=5s
        role worker 2..4:3 scope=job limit=0
        running
        exited c3 1
        uploaded c3
        scale worker 2
        scale worker 3
        up c4 worker
        ended c2 preempted
        states
        ended c1 preempted
        up c5 worker
        up c6 worker
        states",
        expect![[r#"
            running: worker:0 in c1, worker:1 in c2, worker:2 in c3 in round 1, of 3 worker at 3 of 3 addresses
            · worker:2 exited with code 1 on `n1` (attempt 1); the job fails unless a peer was lost
            tell c3: stop and upload
            release c3
            · role `worker` scaled from 3 to 2
            · role `worker` scaled from 2 to 3
            launch c4 worker:2
            · worker:1 was preempted by the cluster on `n1` (attempt 1); retrying
            · round 3 restarts with 3 tasks: worker:1 ended
            · worker:0 is stopped (attempt 1)
            tell c1: wait as worker:0 for round 3
            tell c4: wait as worker:2 for round 3
            worker:0 restarting, worker:1 requested, worker:2 ready
            · worker:0 was preempted by the cluster on `n1` (attempt 2); retrying
            launch c5 worker:0
            launch c6 worker:1
            · round 3 started with 3 tasks
            tell c5: run worker:0 in round 3, attempt 3, of 3 worker at 3 of 3 addresses
            tell c6: run worker:1 in round 3, attempt 2, of 3 worker at 3 of 3 addresses
            tell c4: run worker:2 in round 3, attempt 2, of 3 worker at 3 of 3 addresses
            worker:0 starting, worker:1 starting, worker:2 starting"#]],
    );
}
