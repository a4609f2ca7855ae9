//! A new master takes over.

use super::script::check;
use expect_test::expect;

#[test]
fn a_recovered_master_keeps_live_containers_and_replaces_lost_ones() {
    check(
        "
        timeouts heartbeat=10s
        role worker 3
        running worker 2
        granted c3 worker
        recovered c1 c3 c9
        states
        resumed c1
        asks
        +60s
        asks
        states",
        expect![[r#"
            running: worker:0 in c1, worker:1 in c2 in round 1, of 3 worker
            launch c3 worker:2
            · a new master recovered 3 containers
            · worker:1 was lost with its container on `n1` (attempt 1); retrying
            release c2
            · worker:2 was lost with its container on `n1` (attempt 1); retrying
            release c3
            release c9
            worker:0 running, worker:1 stopping, worker:2 requested
            asks: 1 × worker (1 GiB, 1 vcore)
            [1m]
            asks: 2 × worker (1 GiB, 1 vcore)
            worker:0 running, worker:1 requested, worker:2 requested"#]],
    );
}

#[test]
fn a_timeout_that_expired_without_a_master_is_not_charged() {
    check(
        "
        timeouts start=10s
        role worker 1
        up c1 worker
        without-master 10m
        recovered c1
        states
        started c1
        states",
        expect![[r#"
            · the job started
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 1 worker
            [10m]
            · a new master recovered 1 container
            worker:0 starting
            · worker:0 runs on `n1` (attempt 1)
            worker:0 running"#]],
    );
}

#[test]
fn an_agent_without_a_report_after_recovery_is_lost_and_not_counted() {
    check(
        "
        timeouts heartbeat=30s
        role worker 2
        nodes 4
        up c1 worker
        up c2 worker n2
        started c1
        started c2
        recovered c1 c2
        ended c1 completed 1
        +30s
        asks",
        expect![[r#"
            · the job started
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 2 worker
            launch c2 worker:1
            tell c2: run worker:1 in round 1, attempt 1, of 2 worker
            · worker:0 runs on `n1` (attempt 1)
            · worker:1 runs on `n2` (attempt 1)
            · a new master recovered 2 containers
            · worker:0 was lost with its container on `n1` (attempt 1); retrying
            [30s]
            · worker:1 was lost with its container on `n2` (attempt 1); retrying
            release c2
            asks: 1 × worker (1 GiB, 1 vcore)"#]],
    );
}

#[test]
fn a_release_lost_with_the_old_master_is_repeated() {
    check(
        "
        timeouts heartbeat=10s
        role worker 1 limit=1
        running
        missed c1
        +10s
        recovered c1",
        expect![[r#"
            running: worker:0 in c1 in round 1, of 1 worker
            [10s]
            · worker:0 sent no heartbeat for 10s on `n1` (attempt 1); retrying
            release c1
            · a new master recovered 1 container
            release c1"#]],
    );
}

#[test]
fn a_gang_is_complete_again_when_its_agents_report() {
    check(
        "
        gang
        role worker 2 scope=job
        running
        recovered c1 c2
        resumed c1
        resumed c2
        +10m
        states",
        expect![[r#"
            running: worker:0 in c1, worker:1 in c2 in round 1, of 2 worker at 2 of 2 addresses
            · a new master recovered 2 containers
            [10m]
            worker:0 running, worker:1 running"#]],
    );
}

#[test]
fn a_recovered_master_of_a_finished_job_releases_leftovers() {
    check(
        "
        role worker 1
        up c1 worker
        exited c1 0
        uploaded c1
        recovered c1",
        expect![[r#"
            · the job started
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 1 worker
            tell c1: stop and upload
            release c1
            · worker:0 succeeded on `n1` (attempt 1)
            · the job is ending: succeeded
            · the job succeeded
            finish: succeeded
            release c1"#]],
    );
}
