//! Timeouts of agents that download inputs.

use super::script::check;
use expect_test::expect;

#[test]
fn a_download_may_exceed_the_join_timeout_up_to_the_fetch_timeout() {
    check(
        "
        timeouts join=20s fetch=60s
        inputs
        role worker 1
        granted c1 worker
        launched c1
        +19s
        resumed c1
        +60s
        states
        +1s
        asks",
        expect![[r#"
            · the job started
            launch c1 worker:0
            [1m 19s]
            worker:0 launching
            [1m 20s]
            · worker:0 was not ready 1m 20s after its container started on `n1` (attempt 1); retrying
            release c1
            asks: 1 × worker (1 GiB, 1 vcore)"#]],
    );
}

#[test]
fn a_heartbeat_timeout_applies_during_a_download() {
    check(
        "
        timeouts join=20s fetch=1h heartbeat=30s
        inputs
        role worker 1
        nodes 2
        granted c1 worker
        resumed c1
        launched c1
        +5m
        missed c1
        +29s
        resumed c1
        missed c1
        +29s
        states
        +1s
        asks",
        expect![[r#"
            · the job started
            launch c1 worker:0
            [5m 58s]
            worker:0 launching
            [5m 59s]
            · worker:0 sent no heartbeat for 30s on `n1` (attempt 1); retrying
            · node `n1` is excluded: worker:0 sent no heartbeat for 30s
            release c1
            asks: 1 × worker (1 GiB, 1 vcore), not on n1"#]],
    );
}

#[test]
fn a_recovered_master_gives_unreported_agents_the_join_timeout() {
    check(
        "
        timeouts join=20s fetch=60s heartbeat=10s
        inputs
        role worker 1
        granted c1 worker
        launched c1
        resumed c1
        +60s
        recovered c1
        +19s
        resumed c1
        +60s
        states
        ready c1",
        expect![[r#"
            · the job started
            launch c1 worker:0
            [1m]
            · a new master recovered 1 container
            [2m 19s]
            worker:0 launching
            tell c1: run worker:0 in round 1, attempt 1, of 1 worker"#]],
    );
}

#[test]
fn the_fetch_timeout_does_not_apply_to_an_agent_without_a_report() {
    check(
        "
        timeouts join=20s fetch=6h
        inputs
        role worker 1
        granted c1 worker
        launched c1
        +19s
        states
        +1s
        asks",
        expect![[r#"
            · the job started
            launch c1 worker:0
            [19s]
            worker:0 launching
            [20s]
            · worker:0 was not ready 20s after its container started on `n1` (attempt 1); retrying
            release c1
            asks: 1 × worker (1 GiB, 1 vcore)"#]],
    );
}

#[test]
fn a_repeated_download_has_its_timeout_after_the_program_stopped() {
    let job = |stopped: &str| {
        format!(
            "
        timeouts join=20s fetch=1h grace=10s stop=20s
        inputs
        gang
        role worker 2 scope=job limit=1
        running
        exited c2 1
        uploaded c2
        {stopped}
        up c3 worker
        +29s
        states
        +1s
        states"
        )
    };
    check(
        &job("exited c1 1 round=1"),
        expect![[r#"
            running: worker:0 in c1, worker:1 in c2 in round 1, of 2 worker at 2 of 2 addresses
            · worker:1 exited with code 1 on `n1` (attempt 1); retrying
            tell c2: stop
            · round 2 restarts with 2 tasks: worker:1 ended
            · worker:0 is stopped (attempt 1)
            tell c1: wait as worker:0 for round 2
            release c2
            launch c3 worker:1
            [29s]
            worker:0 restarting, worker:1 ready
            [30s]
            worker:0 restarting, worker:1 ready"#]],
    );
    check(
        &job(""),
        expect![[r#"
            running: worker:0 in c1, worker:1 in c2 in round 1, of 2 worker at 2 of 2 addresses
            · worker:1 exited with code 1 on `n1` (attempt 1); retrying
            tell c2: stop
            · round 2 restarts with 2 tasks: worker:1 ended
            · worker:0 is stopped (attempt 1)
            tell c1: wait as worker:0 for round 2
            release c2
            launch c3 worker:1
            [29s]
            worker:0 restarting, worker:1 ready
            [30s]
            · worker:0 did not stop within 30s on `n1` (attempt 2); the job fails
            release c1
            · the job is ending: failed: worker:0 did not stop within 30s on `n1` (attempt 2)
            release c3
            · the job failed: worker:0 did not stop within 30s on `n1` (attempt 2)
            finish: failed: worker:0 did not stop within 30s on `n1` (attempt 2)
            worker:0 failed, worker:1 stopped"#]],
    );
}
