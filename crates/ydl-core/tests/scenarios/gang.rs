//! Gangs that cannot be had.

use super::script::check;
use expect_test::expect;

#[test]
fn an_incomplete_gang_releases_backs_off_retries_and_fails_with_the_missing_containers() {
    check(
        "
        gang hold=30s retries=1 backoff=5s
        role worker 2 scope=job
        role server 1 service scope=job
        up c1 worker
        granted c2 server
        reason
        +30s
        asks
        reason
        +5s
        asks
        up c3 worker
        +30s",
        expect![[r#"
            · the job started
            launch c1 worker:0
            launch c2 server:0
            reason: 1 of 3 tasks ready, not yet worker:1, server:0; waiting: 1 × `worker` for a container, 1 × `server` for its agent
            [30s]
            · released its containers (try 1); asking again in 5s: 2 of 3 containers granted after 30s; missing: 1 × `worker` (1 GiB, 1 vcore)
            release c1
            release c2
            asks: nothing
            reason: 0 of 3 tasks ready; waiting: 2 × `worker` to retry, 1 × `server` to retry
            [35s]
            asks: 2 × worker (1 GiB, 1 vcore), 1 × server (1 GiB, 1 vcore)
            launch c3 worker:0
            [1m 5s]
            · the job is ending: failed: 1 of 3 containers granted after 30s; missing: 1 × `worker` (1 GiB, 1 vcore), 1 × `server` (1 GiB, 1 vcore)
            release c3
            · the job failed: 1 of 3 containers granted after 30s; missing: 1 × `worker` (1 GiB, 1 vcore), 1 × `server` (1 GiB, 1 vcore)
            finish: failed: 1 of 3 containers granted after 30s; missing: 1 × `worker` (1 GiB, 1 vcore), 1 × `server` (1 GiB, 1 vcore)"#]],
    );
}

#[test]
fn a_gang_without_containers_fails_at_the_allocation_timeout() {
    check(
        "
        gang
        timeouts allocation=60s
        role worker 2
        +59s
        +1s",
        expect![[r#"
            [59s]
            · the job started
            [1m]
            · the job is ending: failed: 0 of 2 containers granted after 1m; missing: 2 × `worker` (1 GiB, 1 vcore)
            · the job failed: 0 of 2 containers granted after 1m; missing: 2 × `worker` (1 GiB, 1 vcore)
            finish: failed: 0 of 2 containers granted after 1m; missing: 2 × `worker` (1 GiB, 1 vcore)"#]],
    );
}

#[test]
fn a_round_starts_with_fresh_retries() {
    check(
        "
        gang hold=30s retries=1 backoff=5s
        role worker 2 scope=job limit=1
        up c1 worker
        +30s
        +5s
        up c2 worker
        up c3 worker
        started c2
        started c3
        exited c2 1
        uploaded c2
        ready c3
        +30s
        asks",
        expect![[r#"
            · the job started
            launch c1 worker:0
            [30s]
            · released its containers (try 1); asking again in 5s: 1 of 2 containers granted after 30s; missing: 1 × `worker` (1 GiB, 1 vcore)
            release c1
            [35s]
            launch c2 worker:0
            launch c3 worker:1
            · round 1 started with 2 tasks
            tell c2: run worker:0 in round 1, attempt 2, of 2 worker at 2 of 2 addresses
            tell c3: run worker:1 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
            · worker:0 runs on `n1` (attempt 2)
            · worker:1 runs on `n1` (attempt 1)
            · worker:0 exited with code 1 on `n1` (attempt 2); retrying
            tell c2: stop
            · round 2 restarts with 2 tasks: worker:0 ended
            · worker:1 is stopped (attempt 1)
            tell c3: wait as worker:1 for round 2
            release c2
            [1m 5s]
            · released its containers (try 1); asking again in 5s: 1 of 2 containers granted after 30s; missing: 1 × `worker` (1 GiB, 1 vcore)
            release c3
            asks: nothing"#]],
    );
}

#[test]
fn the_backoff_does_not_use_up_the_hold_time() {
    check(
        "
        gang hold=10s retries=0
        role worker 2 scope=job limit=1 backoff=60s
        running
        exited c1 1
        uploaded c1
        ready c2
        +59s
        states
        +1s
        asks",
        expect![[r#"
            running: worker:0 in c1, worker:1 in c2 in round 1, of 2 worker at 2 of 2 addresses
            · worker:0 exited with code 1 on `n1` (attempt 1); retrying in 1m
            tell c1: stop
            · round 2 restarts with 2 tasks: worker:0 ended
            · worker:1 is stopped (attempt 1)
            tell c2: wait as worker:1 for round 2
            release c1
            [59s]
            worker:0 backing-off, worker:1 ready
            [1m]
            asks: 1 × worker (1 GiB, 1 vcore)"#]],
    );
}

#[test]
fn a_single_restart_in_a_gang_has_the_allocation_timeout() {
    check(
        "
        gang
        timeouts allocation=60s
        role worker 2 scope=task limit=1
        running
        exited c1 1
        uploaded c1
        +60s
        uploaded c2",
        expect![[r#"
            running: worker:0 in c1, worker:1 in c2 in round 1, of 2 worker at 2 of 2 addresses
            · worker:0 exited with code 1 on `n1` (attempt 1); retrying
            tell c1: stop
            release c1
            [1m]
            · the job is ending: failed: 1 of 2 containers granted after 1m; missing: 1 × `worker` (1 GiB, 1 vcore)
            · worker:1 is stopped (attempt 1)
            tell c2: stop and upload
            release c2
            · the job failed: 1 of 2 containers granted after 1m; missing: 1 × `worker` (1 GiB, 1 vcore)
            finish: failed: 1 of 2 containers granted after 1m; missing: 1 × `worker` (1 GiB, 1 vcore)"#]],
    );
}

#[test]
fn a_single_restart_in_a_gang_gets_the_addresses_of_its_peers() {
    check(
        "
        gang
        role worker 2 scope=task limit=1
        running
        exited c1 1
        uploaded c1
        up c3 worker",
        expect![[r#"
            running: worker:0 in c1, worker:1 in c2 in round 1, of 2 worker at 2 of 2 addresses
            · worker:0 exited with code 1 on `n1` (attempt 1); retrying
            tell c1: stop
            release c1
            launch c3 worker:0
            tell c3: run worker:0 in round 1, attempt 2, of 2 worker at 2 of 2 addresses"#]],
    );
}

#[test]
fn a_round_waits_until_all_peers_have_addresses() {
    check(
        "
        gang
        role worker 1 scope=role limit=1
        role server 1 scope=role limit=1 service
        running
        exited c1 1
        exited c2 1
        uploaded c1
        uploaded c2
        up c3 worker
        states
        up c4 server",
        expect![[r#"
            running: worker:0 in c1, server:0 in c2 in round 1, of 1 worker at 1 of 1 addresses, 1 server at 1 of 1 addresses
            · worker:0 exited with code 1 on `n1` (attempt 1); retrying
            tell c1: stop
            · round 2 restarts with 1 task: worker:0 ended
            · server:0 exited with code 1 on `n1` (attempt 1); retrying
            tell c2: stop
            · round 3 restarts with 1 task: server:0 ended
            release c1
            release c2
            launch c3 worker:0
            worker:0 ready, server:0 requested
            launch c4 server:0
            · round 2 started with 1 task
            tell c3: run worker:0 in round 2, attempt 2, of 1 worker at 1 of 1 addresses, 1 server at 1 of 1 addresses
            · round 3 started with 1 task
            tell c4: run server:0 in round 3, attempt 2, of 1 worker at 1 of 1 addresses, 1 server at 1 of 1 addresses"#]],
    );
}
