//! Roles that begin after others.

use super::script::check;
use expect_test::expect;

#[test]
fn a_role_asks_for_nothing_until_every_task_of_another_has_run() {
    check(
        "
        role server 2 service
        role worker 2 after=server
        asks
        reason
        up c1 server
        started c1
        granted c9 worker
        up c2 server
        asks
        reason
        started c2
        asks
        reason
        up c3 worker
        up c4 worker
        started c3
        started c4",
        expect![[r#"
            · the job started
            asks: 2 × server (1 GiB, 1 vcore)
            reason: 0 tasks running; waiting: 2 × `server` for a container, 2 × `worker` for `server` to run
            launch c1 server:0
            tell c1: run server:0 in round 1, attempt 1, of 2 server, 2 worker
            · server:0 runs on `n1` (attempt 1)
            release c9
            launch c2 server:1
            tell c2: run server:1 in round 1, attempt 1, of 2 server, 2 worker
            asks: nothing
            reason: 1 task running; waiting: 1 × `server` for its program to start, 2 × `worker` for `server` to run
            · server:1 runs on `n1` (attempt 1)
            asks: 2 × worker (1 GiB, 1 vcore)
            reason: 2 tasks running; waiting: 2 × `worker` for a container
            launch c3 worker:0
            tell c3: run worker:0 in round 1, attempt 1, of 2 server, 2 worker
            launch c4 worker:1
            tell c4: run worker:1 in round 1, attempt 1, of 2 server, 2 worker
            · worker:0 runs on `n1` (attempt 1)
            · worker:1 runs on `n1` (attempt 1)"#]],
    );
}

#[test]
fn a_failed_task_satisfies_dependencies_and_a_retried_task_waits_for_none() {
    check(
        "
        role server 2 limit=3 backoff=5s
        role worker 1 limit=3 after=server
        running server 1
        exited c1 1
        uploaded c1
        reason
        up c2 server
        started c2
        asks
        up c3 worker
        started c3
        ended c3 preempted
        asks",
        expect![[r#"
            running: server:0 in c1 in round 1, of 2 server, 1 worker
            · server:0 exited with code 1 on `n1` (attempt 1); retrying in 5s
            tell c1: stop
            release c1
            reason: 0 tasks running; waiting: 1 × `server` for a container, 1 × `server` to retry, 1 × `worker` for `server` to run
            launch c2 server:1
            tell c2: run server:1 in round 1, attempt 1, of 2 server, 1 worker
            · server:1 runs on `n1` (attempt 1)
            asks: 1 × worker (1 GiB, 1 vcore)
            launch c3 worker:0
            tell c3: run worker:0 in round 1, attempt 1, of 2 server, 1 worker
            · worker:0 runs on `n1` (attempt 1)
            · worker:0 was preempted by the cluster on `n1` (attempt 1); retrying
            asks: 1 × worker (1 GiB, 1 vcore)"#]],
    );
}

#[test]
fn a_chain_of_dependent_roles_starts_in_order_and_ends() {
    check(
        "
        role a 1
        role b 1 after=a
        role c 1 after=a,b
        asks
        up c1 a
        started c1
        asks
        exited c1 0
        uploaded c1
        up c2 b
        started c2
        asks
        exited c2 0
        uploaded c2
        up c3 c
        started c3
        exited c3 0
        uploaded c3",
        expect![[r#"
            · the job started
            asks: 1 × a (1 GiB, 1 vcore)
            launch c1 a:0
            tell c1: run a:0 in round 1, attempt 1, of 1 a, 1 b, 1 c
            · a:0 runs on `n1` (attempt 1)
            asks: 1 × b (1 GiB, 1 vcore)
            tell c1: stop and upload
            release c1
            · a:0 succeeded on `n1` (attempt 1)
            launch c2 b:0
            tell c2: run b:0 in round 1, attempt 1, of 1 a, 1 b, 1 c
            · b:0 runs on `n1` (attempt 1)
            asks: 1 × c (1 GiB, 1 vcore)
            tell c2: stop and upload
            release c2
            · b:0 succeeded on `n1` (attempt 1)
            launch c3 c:0
            tell c3: run c:0 in round 1, attempt 1, of 1 a, 1 b, 1 c
            · c:0 runs on `n1` (attempt 1)
            tell c3: stop and upload
            release c3
            · c:0 succeeded on `n1` (attempt 1)
            · the job is ending: succeeded
            · the job succeeded
            finish: succeeded"#]],
    );
}

#[test]
fn a_service_without_containers_fails_its_dependents_by_timeout() {
    check(
        "
        timeouts allocation=60s
        role server 2 service
        role worker 1 after=server
        running server 1
        +30s
        reason
        +61s",
        expect![[r#"
            running: server:0 in c1 in round 1, of 2 server, 1 worker
            [30s]
            reason: 1 task running; waiting: 1 × `server` for a container, 1 × `worker` for `server` to run
            [1m 31s]
            · the job is ending: failed: 1 of 3 containers granted after 1m 31s; missing: 1 × `server` (1 GiB, 1 vcore)
            · server:0 is stopped (attempt 1)
            tell c1: stop and upload"#]],
    );
}

#[test]
fn dependencies_hold_after_a_master_recovery() {
    check(
        "
        role server 1 service
        role worker 1 after=server
        up c1 server
        recovered c1
        asks
        started c1
        asks
        recovered c1
        asks",
        expect![[r#"
            · the job started
            launch c1 server:0
            tell c1: run server:0 in round 1, attempt 1, of 1 server, 1 worker
            · a new master recovered 1 container
            asks: nothing
            · server:0 runs on `n1` (attempt 1)
            asks: 1 × worker (1 GiB, 1 vcore)
            · a new master recovered 1 container
            asks: 1 × worker (1 GiB, 1 vcore)"#]],
    );
}

#[test]
fn a_running_service_does_not_extend_the_allocation_timeout() {
    check(
        "
        timeouts allocation=60s
        role chief 1 service
        role server 1 service
        role worker 1 after=chief,server
        running chief 1
        +60s",
        expect![[r#"
            running: chief:0 in c1 in round 1, of 1 chief, 1 server, 1 worker
            [1m]
            · the job is ending: failed: 1 of 3 containers granted after 1m; missing: 1 × `server` (1 GiB, 1 vcore)
            · chief:0 is stopped (attempt 1)
            tell c1: stop and upload"#]],
    );
}
