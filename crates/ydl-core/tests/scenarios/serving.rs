//! Serving roles: replicas, their routes, updates and sizes.

use super::script::check;
use expect_test::expect;

#[test]
fn a_replica_gets_requests_while_its_probe_succeeds() {
    check(
        "
        role server 1..2:2 serves
        running
        routes
        served c1
        routes
        served c1
        routes
        unserved c1
        served c1
        routes
        exited c1 1
        routes",
        expect![[r#"
            running: server:0 in c1, server:1 in c2 in round 1, of 2 server
            routes 0: none
            routes 1: c1 (revision 1, weight 1)
            routes 1: c1 (revision 1, weight 1)
            routes 2: none
            · server:0 exited with code 1 on `n1` (attempt 1); retrying
            tell c1: stop
            routes 2: none"#]],
    );
}

#[test]
fn a_surplus_replica_is_drained_before_it_is_stopped() {
    check(
        "
        role server 1..3:3 serves drain=30s
        running
        served c1
        served c2
        served c3
        scaled server 2 server:1
        routes
        order c2
        drained c2 3
        drained c2 4
        routes
        uploaded c2
        scale server 1
        +30s
        routes
        scale server 4
        scalable server 4",
        expect![[r#"
            running: server:0 in c1, server:1 in c2, server:2 in c3 in round 1, of 3 server
            · role `server` scaled from 3 to 2: little to do
            · server:1 finishes its requests (attempt 1)
            routes 4: c1 (revision 1, weight 1), c2 drains, c3 (revision 1, weight 1)
            order c2: run server:1 in round 1, attempt 1, of 3 server
            · server:1 is stopped (attempt 1)
            tell c2: stop and upload
            routes 5: c1 (revision 1, weight 1), c3 (revision 1, weight 1)
            release c2
            · role `server` scaled from 2 to 1
            · server:2 finishes its requests (attempt 1)
            [30s]
            · server:2 is stopped (attempt 1)
            tell c3: stop and upload
            routes 7: c1 (revision 1, weight 1)
            server to 4: role `server` has between 1 and 3 tasks, not 4"#]],
    );
}

#[test]
fn a_replica_that_loads_is_not_removed() {
    check(
        "
        role server 1..3:3 serves
        running
        served c1
        served c2
        scale server 2
        served c3
        routes",
        expect![[r#"
            running: server:0 in c1, server:1 in c2, server:2 in c3 in round 1, of 3 server
            · role `server` scaled from 3 to 2
            · server:2 finishes its requests (attempt 1)
            routes 3: c1 (revision 1, weight 1), c2 (revision 1, weight 1), c3 drains"#]],
    );
}

#[test]
fn an_update_is_watched_and_replaces_one_replica_after_the_other() {
    check(
        "
        role server 1..2:2 serves watch=2m drain=10s
        running
        served c1
        served c2
        update server 2
        updatable server 3
        revisions server
        up c3 server
        started c3
        served c3
        routes
        +1m
        revisions server
        +1m
        routes
        drained c2 5
        uploaded c2
        up c4 server
        started c4
        served c4
        drained c1 7
        uploaded c1
        revisions server
        updatable server 3",
        expect![[r#"
            running: server:0 in c1, server:1 in c2 in round 1, of 2 server
            · role `server` is updated to revision 2
            server to revision 3: an update of role `server` is in progress
            1 wants 2 and has 2, 2 serve; 2 wants 1 and has 1, 0 serve
            launch c3 server:2
            tell c3: run server:2 in round 1, attempt 1, of 2 server
            · server:2 runs on `n1` (attempt 1)
            routes 3: c1 (revision 1, weight 1), c2 (revision 1, weight 1), c3 (revision 2, weight 1)
            [1m]
            1 wants 2 and has 2, 2 serve; 2 wants 1 and has 1, 1 serve
            [2m]
            · revision 2 of role `server` is promoted
            · server:1 finishes its requests (attempt 1)
            routes 4: c1 (revision 1, weight 1), c2 drains, c3 (revision 2, weight 1)
            · server:1 is stopped (attempt 1)
            tell c2: stop and upload
            release c2
            launch c4 server:3
            tell c4: run server:3 in round 1, attempt 1, of 2 server
            · server:3 runs on `n1` (attempt 1)
            · server:0 finishes its requests (attempt 1)
            · server:0 is stopped (attempt 1)
            tell c1: stop and upload
            release c1
            2 wants 2 and has 2, 2 serve
            server to revision 3: yes"#]],
    );
}

#[test]
fn a_revision_that_does_not_serve_is_rolled_back() {
    check(
        "
        role server 1..2:2 serves within=5m
        running
        served c1
        served c2
        update server 2
        up c3 server
        started c3
        +5m
        uploaded c3
        revisions server
        undo server",
        expect![[r#"
            running: server:0 in c1, server:1 in c2 in round 1, of 2 server
            · role `server` is updated to revision 2
            launch c3 server:2
            tell c3: run server:2 in round 1, attempt 1, of 2 server
            · server:2 runs on `n1` (attempt 1)
            [5m]
            · server:2 did not serve within 5m on `n1` (attempt 1); retrying
            release c3
            · revision 2 of role `server` is rolled back: server:2 did not serve within 5m
            1 wants 2 and has 2, 2 serve"#]],
    );
}

#[test]
fn a_revision_that_crashes_is_rolled_back() {
    check(
        "
        role server 1..1 serves limit=1
        running
        served c1
        update server 2
        up c2 server
        exited c2 1
        uploaded c2
        up c3 server
        exited c3 1
        uploaded c3
        revisions server
        asks",
        expect![[r#"
            running: server:0 in c1 in round 1, of 1 server
            · role `server` is updated to revision 2
            launch c2 server:1
            tell c2: run server:1 in round 1, attempt 1, of 1 server
            · server:1 exited with code 1 on `n1` (attempt 1); retrying
            tell c2: stop
            release c2
            launch c3 server:1
            tell c3: run server:1 in round 1, attempt 2, of 1 server
            · server:1 exited with code 1 on `n1` (attempt 2); retrying
            tell c3: stop
            · revision 2 of role `server` is rolled back: server:1 exited with code 1
            release c3
            1 wants 1 and has 1, 1 serve
            asks: nothing"#]],
    );
}

#[test]
fn a_revision_that_is_judged_bad_is_rolled_back() {
    check(
        "
        role server 1..1 serves watch=2m
        running
        served c1
        update server 2
        up c2 server
        started c2
        served c2
        judge server 1 bad
        judge server 2 bad
        routes
        drained c2 3",
        expect![[r#"
            running: server:0 in c1 in round 1, of 1 server
            · role `server` is updated to revision 2
            launch c2 server:1
            tell c2: run server:1 in round 1, attempt 1, of 1 server
            · server:1 runs on `n1` (attempt 1)
            · revision 2 of role `server` is rolled back: it was judged bad
            · server:1 finishes its requests (attempt 1)
            routes 3: c1 (revision 1, weight 1), c2 drains
            · server:1 is stopped (attempt 1)
            tell c2: stop and upload"#]],
    );
}

#[test]
fn a_canary_gets_its_share_until_it_is_judged() {
    check(
        "
        role server 1..3:3 serves
        running
        served c1
        served c2
        served c3
        update server 2 canary=10
        up c4 server
        started c4
        served c4
        routes
        +10m
        revisions server
        judge server 2 good
        undo server
        routes",
        expect![[r#"
            running: server:0 in c1, server:1 in c2, server:2 in c3 in round 1, of 3 server
            · role `server` is updated to revision 2, a canary with 10% of the requests
            launch c4 server:3
            tell c4: run server:3 in round 1, attempt 1, of 3 server
            · server:3 runs on `n1` (attempt 1)
            routes 4: c1 (revision 1, weight 90), c2 (revision 1, weight 90), c3 (revision 1, weight 90), c4 (revision 2, weight 30)
            [10m]
            1 wants 3 and has 3, 3 serve; 2 wants 1 and has 1, 1 serve
            · revision 2 of role `server` is promoted
            · server:2 finishes its requests (attempt 1)
            · revision 2 of role `server` is rolled back: undone on request
            routes 6: c1 (revision 1, weight 1), c2 (revision 1, weight 1), c3 drains, c4 (revision 2, weight 0)"#]],
    );
}

#[test]
fn an_update_without_surge_makes_room_first() {
    check(
        "
        role server 1..2:2 serves surge=0 unavailable=1 watch=10s
        running
        served c1
        served c2
        update server 2
        drained c2 3
        uploaded c2
        up c3 server
        started c3
        served c3
        +10s
        drained c1 6
        uploaded c1
        up c4 server
        started c4
        served c4
        revisions server",
        expect![[r#"
            running: server:0 in c1, server:1 in c2 in round 1, of 2 server
            · role `server` is updated to revision 2
            · server:1 finishes its requests (attempt 1)
            · server:1 is stopped (attempt 1)
            tell c2: stop and upload
            release c2
            launch c3 server:2
            tell c3: run server:2 in round 1, attempt 1, of 2 server
            · server:2 runs on `n1` (attempt 1)
            [10s]
            · revision 2 of role `server` is promoted
            · server:0 finishes its requests (attempt 1)
            · server:0 is stopped (attempt 1)
            tell c1: stop and upload
            release c1
            launch c4 server:1
            tell c4: run server:1 in round 1, attempt 2, of 2 server
            · server:1 runs on `n1` (attempt 2)
            2 wants 2 and has 2, 2 serve"#]],
    );
}

#[test]
fn a_replica_is_replaced_before_its_node_is_drained() {
    check(
        "
        role server 1..1 serves drain=10s
        running
        served c1
        node-draining 1h c1
        routes
        up c2 server
        started c2
        served c2
        routes
        drained c1 3
        uploaded c1",
        expect![[r#"
            running: server:0 in c1 in round 1, of 1 server
            routes 1: c1 (revision 1, weight 1)
            launch c2 server:1
            tell c2: run server:1 in round 1, attempt 1, of 1 server
            · server:1 runs on `n1` (attempt 1)
            · server:0 finishes its requests (attempt 1)
            routes 2: c1 drains, c2 (revision 1, weight 1)
            · server:0 is stopped (attempt 1)
            tell c1: stop and upload
            release c1"#]],
    );
    check(
        "
        role server 1..1 serves drain=10s
        running
        served c1
        node-draining 1m c1
        +50s
        +10s",
        expect![[r#"
            running: server:0 in c1 in round 1, of 1 server
            [50s]
            · server:0 finishes its requests (attempt 1)
            [1m]
            · server:0 is stopped (attempt 1)
            tell c1: stop and upload"#]],
    );
}

#[test]
fn a_warned_replica_is_drained_at_once() {
    check(
        "
        role server 1..1 serves drain=10s
        running
        served c1
        preemption-warned c1
        asks
        ended c1 preempted",
        expect![[r#"
            running: server:0 in c1 in round 1, of 1 server
            · server:0 finishes its requests (attempt 1)
            asks: 1 × server (1 GiB, 1 vcore)
            · server:0 was preempted by the cluster on `n1` (attempt 1)"#]],
    );
}

#[test]
fn a_silent_replica_is_replaced_before_its_program_has_ended() {
    check(
        "
        role server 1..1 serves
        running
        served c1
        missed c1
        +1m
        asks
        routes
        up c2 server
        ended c1 lost
        states",
        expect![[r#"
            running: server:0 in c1 in round 1, of 1 server
            [1m]
            · server:0 sent no heartbeat for 1m on `n1` (attempt 1); retrying
            release c1
            asks: 1 × server (1 GiB, 1 vcore)
            routes 2: none
            launch c2 server:1
            tell c2: run server:1 in round 1, attempt 1, of 1 server
            server:0 stopping, server:1 starting"#]],
    );
}

#[test]
fn a_request_starts_the_first_replica() {
    check(
        "
        role server 0..2:1 serves
        running
        served c1
        scaled server 0 server:0
        drained c1 2
        uploaded c1
        reason
        wanted server
        wanted server
        asks",
        expect![[r#"
            running: server:0 in c1 in round 1, of 1 server
            · role `server` scaled from 1 to 0: little to do
            · server:0 finishes its requests (attempt 1)
            · server:0 is stopped (attempt 1)
            tell c1: stop and upload
            release c1
            reason: 0 tasks running; `server` waits for a request
            · role `server` scaled from 0 to 1: a request arrived
            asks: 1 × server (1 GiB, 1 vcore)"#]],
    );
}

#[test]
fn a_service_that_has_served_survives_crash_loops() {
    check(
        "
        role server 1..1 serves limit=0
        running
        exited c1 1",
        expect![[r#"
            running: server:0 in c1 in round 1, of 1 server
            · server:0 exited with code 1 on `n1` (attempt 1); the job fails
            tell c1: stop and upload
            · the job is ending: failed: server:0 exited with code 1 on `n1` (attempt 1)"#]],
    );
    check(
        "
        role server 1..1 serves limit=0 backoff=1s..1m
        running
        served c1
        exited c1 0
        uploaded c1
        +1m
        asks",
        expect![[r#"
            running: server:0 in c1 in round 1, of 1 server
            · server:0 exited with code 0 on `n1` (attempt 1); retrying in 1m
            tell c1: stop
            release c1
            [1m]
            asks: 1 × server (1 GiB, 1 vcore)"#]],
    );
}

#[test]
fn waits_of_a_service_restart_with_a_new_master() {
    check(
        "
        role server 1..1 serves drain=30s watch=1m
        running
        served c1
        update server 2
        up c2 server
        started c2
        served c2
        +50s
        without-master 1h
        recovered c1 c2
        resumed c1
        resumed c2
        +50s
        +10s
        +20s
        without-master 1h
        recovered c1 c2
        resumed c1
        resumed c2
        routes
        +29s
        +1s",
        expect![[r#"
            running: server:0 in c1 in round 1, of 1 server
            · role `server` is updated to revision 2
            launch c2 server:1
            tell c2: run server:1 in round 1, attempt 1, of 1 server
            · server:1 runs on `n1` (attempt 1)
            [1h 50s]
            · a new master recovered 2 containers
            [1h 1m]
            · revision 2 of role `server` is promoted
            · server:0 finishes its requests (attempt 1)
            [2h 2m]
            · a new master recovered 2 containers
            routes 3: c1 drains, c2 (revision 2, weight 1)
            [2h 2m]
            · server:0 is stopped (attempt 1)
            tell c1: stop and upload"#]],
    );
}

#[test]
fn replicas_are_not_stopped_singly() {
    check(
        "
        role server 1..2:2 serves
        running
        stop server:0
        add server
        states",
        expect![[r#"
            running: server:0 in c1, server:1 in c2 in round 1, of 2 server
            server:0 running, server:1 running"#]],
    );
}
