//! Agents whose heartbeats are missed.

use super::script::check;
use expect_test::expect;

#[test]
fn a_heartbeat_timeout_is_attributed_to_the_node_and_a_resumed_heartbeat_is_not() {
    check(
        "
        timeouts heartbeat=30s
        role worker 1
        nodes 2
        running
        missed c1
        +29s
        resumed c1
        +5s
        missed c1
        +29s
        states
        +1s
        ended c1 released
        asks",
        expect![[r#"
            · the job started
            running: worker:0 in c1 in round 1, of 1 worker
            [1m 3s]
            worker:0 running
            [1m 4s]
            · worker:0 sent no heartbeat for 30s on `n1` (attempt 1); retrying
            · node `n1` is excluded: worker:0 sent no heartbeat for 30s
            release c1
            asks: 1 × worker (1 GiB, 1 vcore), not on n1"#]],
    );
}

#[test]
fn repeated_heartbeat_timeouts_fail_the_task() {
    check(
        "
        timeouts heartbeat=10s
        role worker 1
        running
        missed c1
        +10s
        ended c1 released
        up c2 worker
        started c2
        missed c2
        +10s
        ended c2 released
        up c3 worker
        started c3
        missed c3
        +10s
        ended c3 released
        up c4 worker
        started c4
        missed c4
        +10s
        ended c4 released
        up c5 worker
        started c5
        missed c5
        +10s
        ended c5 released
        up c6 worker
        started c6
        missed c6
        +10s
        ended c6 released",
        expect![[r#"
            running: worker:0 in c1 in round 1, of 1 worker
            [10s]
            · worker:0 sent no heartbeat for 10s on `n1` (attempt 1); retrying
            release c1
            launch c2 worker:0
            tell c2: run worker:0 in round 1, attempt 2, of 1 worker
            · worker:0 runs on `n1` (attempt 2)
            [20s]
            · worker:0 sent no heartbeat for 10s on `n1` (attempt 2); retrying
            release c2
            launch c3 worker:0
            tell c3: run worker:0 in round 1, attempt 3, of 1 worker
            · worker:0 runs on `n1` (attempt 3)
            [30s]
            · worker:0 sent no heartbeat for 10s on `n1` (attempt 3); retrying
            release c3
            launch c4 worker:0
            tell c4: run worker:0 in round 1, attempt 4, of 1 worker
            · worker:0 runs on `n1` (attempt 4)
            [40s]
            · worker:0 sent no heartbeat for 10s on `n1` (attempt 4); retrying
            release c4
            launch c5 worker:0
            tell c5: run worker:0 in round 1, attempt 5, of 1 worker
            · worker:0 runs on `n1` (attempt 5)
            [50s]
            · worker:0 sent no heartbeat for 10s on `n1` (attempt 5); retrying
            release c5
            launch c6 worker:0
            tell c6: run worker:0 in round 1, attempt 6, of 1 worker
            · worker:0 runs on `n1` (attempt 6)
            [1m]
            · worker:0 sent no heartbeat for 10s on `n1` (attempt 6); the job fails
            release c6
            · the job is ending: failed: worker:0 sent no heartbeat for 10s on `n1` (attempt 6)
            · the job failed: worker:0 sent no heartbeat for 10s on `n1` (attempt 6)
            finish: failed: worker:0 sent no heartbeat for 10s on `n1` (attempt 6)"#]],
    );
}

#[test]
fn consecutive_node_faults_are_counted() {
    let missed = "
        up C worker
        started C
        missed C
        +10s
        ended C released";
    let failed = "
        up C worker
        exited C 1
        uploaded C";
    let mut script = String::from("timeouts heartbeat=10s\nrole worker 1 limit=1");
    for (n, attempt) in [missed, missed, missed, failed, missed, missed, missed].iter().enumerate()
    {
        script += &attempt.replace('C', &format!("c{n}"));
    }
    check(
        &(script + "\nstates"),
        expect![[r#"
        · the job started
        launch c0 worker:0
        tell c0: run worker:0 in round 1, attempt 1, of 1 worker
        · worker:0 runs on `n1` (attempt 1)
        [10s]
        · worker:0 sent no heartbeat for 10s on `n1` (attempt 1); retrying
        release c0
        launch c1 worker:0
        tell c1: run worker:0 in round 1, attempt 2, of 1 worker
        · worker:0 runs on `n1` (attempt 2)
        [20s]
        · worker:0 sent no heartbeat for 10s on `n1` (attempt 2); retrying
        release c1
        launch c2 worker:0
        tell c2: run worker:0 in round 1, attempt 3, of 1 worker
        · worker:0 runs on `n1` (attempt 3)
        [30s]
        · worker:0 sent no heartbeat for 10s on `n1` (attempt 3); retrying
        release c2
        launch c3 worker:0
        tell c3: run worker:0 in round 1, attempt 4, of 1 worker
        · worker:0 exited with code 1 on `n1` (attempt 4); retrying
        tell c3: stop
        release c3
        launch c4 worker:0
        tell c4: run worker:0 in round 1, attempt 5, of 1 worker
        · worker:0 runs on `n1` (attempt 5)
        [40s]
        · worker:0 sent no heartbeat for 10s on `n1` (attempt 5); retrying
        release c4
        launch c5 worker:0
        tell c5: run worker:0 in round 1, attempt 6, of 1 worker
        · worker:0 runs on `n1` (attempt 6)
        [50s]
        · worker:0 sent no heartbeat for 10s on `n1` (attempt 6); retrying
        release c5
        launch c6 worker:0
        tell c6: run worker:0 in round 1, attempt 7, of 1 worker
        · worker:0 runs on `n1` (attempt 7)
        [1m]
        · worker:0 sent no heartbeat for 10s on `n1` (attempt 7); retrying
        release c6
        worker:0 requested"#]],
    );
}

#[test]
fn a_silent_agent_that_does_not_stop_is_a_heartbeat_timeout() {
    check(
        "
        gang
        timeouts grace=5s stop=5s heartbeat=60s
        role worker 2 scope=job limit=1
        up c1 worker
        up c2 worker n2
        started c1
        started c2
        missed c2
        +5s
        exited c1 1
        uploaded c1
        +10s
        states",
        expect![[r#"
            · the job started
            launch c1 worker:0
            launch c2 worker:1
            · round 1 started with 2 tasks
            tell c1: run worker:0 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
            tell c2: run worker:1 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
            · worker:0 runs on `n1` (attempt 1)
            · worker:1 runs on `n2` (attempt 1)
            [5s]
            · worker:0 exited with code 1 on `n1` (attempt 1); retrying
            tell c1: stop
            · round 2 restarts with 2 tasks: worker:0 ended
            · worker:1 is stopped (attempt 1)
            tell c2: wait as worker:1 for round 2
            release c1
            [15s]
            · worker:1 sent no heartbeat for 15s on `n2` (attempt 2); retrying
            release c2
            worker:0 requested, worker:1 stopping"#]],
    );
}

#[test]
fn outputs_lost_with_a_silent_agent_are_produced_again() {
    check(
        "
        timeouts grace=5s stop=5s upload=10s heartbeat=60s
        outputs
        role worker 1
        running
        exited c1 0
        missed c1
        +20s
        ended c1 released
        asks",
        expect![[r#"
            running: worker:0 in c1 in round 1, of 1 worker
            tell c1: stop and upload
            [20s]
            · worker:0 sent no heartbeat for 20s on `n1` (attempt 1); retrying
            release c1
            asks: 1 × worker (1 GiB, 1 vcore)"#]],
    );
}
