//! Every wait has a deadline.

use super::script::check;
use expect_test::expect;

#[test]
fn a_job_without_a_gang_fails_when_it_has_no_container_at_all_for_the_allocation_deadline() {
    check(
        "
        deadlines allocation=60s
        role worker 2
        +30s
        up c1 worker
        +60s
        exited c1 0
        saved c1
        +59s
        +1s",
        expect![[r#"
            [30s]
            · the job began
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 2 worker
            [1m 30s]
            tell c1: stop and save
            release c1
            · worker:0 succeeded on `n1` (attempt 1)
            [2m 30s]
            · the job is ending: failed: 0 of 2 containers were there after 1m; missing: 1 × `worker` (1 GiB, 1 vcore)
            · the job failed: 0 of 2 containers were there after 1m; missing: 1 × `worker` (1 GiB, 1 vcore)
            finish: failed: 0 of 2 containers were there after 1m; missing: 1 × `worker` (1 GiB, 1 vcore)"#]],
    );
}

#[test]
fn a_job_without_a_gang_does_not_wait_for_the_containers_of_its_services() {
    check(
        "
        deadlines allocation=60s
        role worker 1
        role server 1 service
        up c1 server
        started c1
        +60s
        saved c1",
        expect![[r#"
            · the job began
            launch c1 server:0
            tell c1: run server:0 in round 1, attempt 1, of 1 worker, 1 server
            · server:0 runs on `n1` (attempt 1)
            [1m]
            · the job is ending: failed: 1 of 2 containers were there after 1m; missing: 1 × `worker` (1 GiB, 1 vcore)
            · server:0 is stopped (attempt 1)
            tell c1: stop and save
            release c1
            · the job failed: 1 of 2 containers were there after 1m; missing: 1 × `worker` (1 GiB, 1 vcore)
            finish: failed: 1 of 2 containers were there after 1m; missing: 1 × `worker` (1 GiB, 1 vcore)"#]],
    );
}

#[test]
fn a_container_that_does_not_start_is_replaced() {
    check(
        "
        deadlines launch=20s
        role worker 1
        granted c1 worker
        +20s
        asks",
        expect![[r#"
            · the job began
            launch c1 worker:0
            [20s]
            · worker:0 had no container running after 20s on `n1` (attempt 1); it starts again
            release c1
            asks: 1 × worker (1 GiB, 1 vcore)"#]],
    );
}

#[test]
fn an_agent_that_does_not_join_is_replaced() {
    check(
        "
        deadlines join=20s
        role worker 1
        granted c1 worker
        launched c1
        +20s
        asks",
        expect![[r#"
            · the job began
            launch c1 worker:0
            [20s]
            · worker:0 was not ready 20s after its container started on `n1` (attempt 1); it starts again
            release c1
            asks: 1 × worker (1 GiB, 1 vcore)"#]],
    );
}

#[test]
fn a_program_that_does_not_start_is_a_failure() {
    check(
        "
        deadlines start=20s
        role worker 1
        up c1 worker
        +20s",
        expect![[r#"
            · the job began
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 1 worker
            [20s]
            · worker:0 did not start its program within 20s on `n1` (attempt 1); the job fails
            release c1
            · the job is ending: failed: worker:0 did not start its program within 20s on `n1` (attempt 1)
            · the job failed: worker:0 did not start its program within 20s on `n1` (attempt 1)
            finish: failed: worker:0 did not start its program within 20s on `n1` (attempt 1)"#]],
    );
}

#[test]
fn a_job_that_runs_too_long_fails() {
    check(
        "
        deadlines run=1h
        role worker 1
        up c1 worker
        started c1
        +59m
        +1m
        saved c1",
        expect![[r#"
            · the job began
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 1 worker
            · worker:0 runs on `n1` (attempt 1)
            [1h]
            · the job is ending: failed: the job ran longer than its limit of 1h
            · worker:0 is stopped (attempt 1)
            tell c1: stop and save
            release c1
            · the job failed: the job ran longer than its limit of 1h
            finish: failed: the job ran longer than its limit of 1h"#]],
    );
}

#[test]
fn data_may_take_longer_than_an_agent_but_not_for_ever() {
    check(
        "
        deadlines join=20s fetch=60s
        inputs
        role worker 1
        granted c1 worker
        launched c1
        +19s
        heard c1
        +60s
        states
        +1s
        asks",
        expect![[r#"
            · the job began
            launch c1 worker:0
            [1m 19s]
            worker:0 launching
            [1m 20s]
            · worker:0 was not ready 1m 20s after its container started on `n1` (attempt 1); it starts again
            release c1
            asks: 1 × worker (1 GiB, 1 vcore)"#]],
    );
}

#[test]
fn an_agent_that_falls_silent_while_data_comes_is_not_waited_for() {
    check(
        "
        deadlines join=20s fetch=1h silence=30s
        inputs
        role worker 1
        nodes 2
        granted c1 worker
        heard c1
        launched c1
        +5m
        quiet c1
        +29s
        heard c1
        quiet c1
        +29s
        states
        +1s
        asks",
        expect![[r#"
            · the job began
            launch c1 worker:0
            [5m 58s]
            worker:0 launching
            [5m 59s]
            · worker:0 was not heard of for 30s on `n1` (attempt 1); it starts again
            · node `n1` is avoided for a while: worker:0 was not heard of for 30s
            release c1
            asks: 1 × worker (1 GiB, 1 vcore), not on n1"#]],
    );
}

#[test]
fn a_new_master_gives_agents_that_it_has_not_heard_their_time_to_join() {
    check(
        "
        deadlines join=20s fetch=60s silence=10s
        inputs
        role worker 1
        granted c1 worker
        launched c1
        heard c1
        +60s
        recovered c1
        +19s
        heard c1
        +60s
        states
        ready c1",
        expect![[r#"
            · the job began
            launch c1 worker:0
            [1m]
            · a new master took over 1 container
            [2m 19s]
            worker:0 launching
            tell c1: run worker:0 in round 1, attempt 1, of 1 worker"#]],
    );
}

#[test]
fn an_agent_that_was_never_heard_is_not_waited_for_as_long_as_data_may_take() {
    check(
        "
        deadlines join=20s fetch=6h
        inputs
        role worker 1
        granted c1 worker
        launched c1
        +19s
        states
        +1s
        asks",
        expect![[r#"
            · the job began
            launch c1 worker:0
            [19s]
            worker:0 launching
            [20s]
            · worker:0 was not ready 20s after its container started on `n1` (attempt 1); it starts again
            release c1
            asks: 1 × worker (1 GiB, 1 vcore)"#]],
    );
}

#[test]
fn data_that_comes_anew_has_its_time_once_the_program_has_stopped() {
    let job = |stopped: &str| {
        format!(
            "
        deadlines join=20s fetch=1h grace=10s stop=20s
        inputs
        gang
        role worker 2 scope=job limit=1
        up c1 worker
        up c2 worker
        started c1
        started c2
        exited c2 1
        saved c2
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
        · the job began
        launch c1 worker:0
        launch c2 worker:1
        · round 1 began with 2 tasks
        tell c1: run worker:0 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
        tell c2: run worker:1 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
        · worker:0 runs on `n1` (attempt 1)
        · worker:1 runs on `n1` (attempt 1)
        · worker:1 exited with code 1 on `n1` (attempt 1); it starts again
        tell c2: stop
        · round 2 gathers 2 tasks because of worker:1
        · worker:0 is stopped (attempt 1)
        tell c1: wait as worker:0 for round 2
        release c2
        launch c3 worker:1
        [29s]
        worker:0 rewinding, worker:1 ready
        [30s]
        worker:0 rewinding, worker:1 ready"#]],
    );
    check(
        &job(""),
        expect![[r#"
        · the job began
        launch c1 worker:0
        launch c2 worker:1
        · round 1 began with 2 tasks
        tell c1: run worker:0 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
        tell c2: run worker:1 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
        · worker:0 runs on `n1` (attempt 1)
        · worker:1 runs on `n1` (attempt 1)
        · worker:1 exited with code 1 on `n1` (attempt 1); it starts again
        tell c2: stop
        · round 2 gathers 2 tasks because of worker:1
        · worker:0 is stopped (attempt 1)
        tell c1: wait as worker:0 for round 2
        release c2
        launch c3 worker:1
        [29s]
        worker:0 rewinding, worker:1 ready
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

#[test]
fn a_silent_agent_is_laid_at_its_nodes_door_and_a_quiet_one_that_is_heard_is_not() {
    check(
        "
        deadlines silence=30s
        role worker 1
        nodes 2
        up c1 worker
        started c1
        quiet c1
        +29s
        heard c1
        +5s
        quiet c1
        +29s
        states
        +1s
        ended c1 released
        asks",
        expect![[r#"
            · the job began
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 1 worker
            · worker:0 runs on `n1` (attempt 1)
            [1m 3s]
            worker:0 running
            [1m 4s]
            · worker:0 was not heard of for 30s on `n1` (attempt 1); it starts again
            · node `n1` is avoided for a while: worker:0 was not heard of for 30s
            release c1
            asks: 1 × worker (1 GiB, 1 vcore), not on n1"#]],
    );
}

#[test]
fn a_program_that_silences_its_agent_every_time_fails_in_the_end() {
    check(
        "
        deadlines silence=10s
        role worker 1
        up c1 worker
        started c1
        quiet c1
        +10s
        ended c1 released
        up c2 worker
        started c2
        quiet c2
        +10s
        ended c2 released
        up c3 worker
        started c3
        quiet c3
        +10s
        ended c3 released
        up c4 worker
        started c4
        quiet c4
        +10s
        ended c4 released
        up c5 worker
        started c5
        quiet c5
        +10s
        ended c5 released
        up c6 worker
        started c6
        quiet c6
        +10s
        ended c6 released",
        expect![[r#"
            · the job began
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 1 worker
            · worker:0 runs on `n1` (attempt 1)
            [10s]
            · worker:0 was not heard of for 10s on `n1` (attempt 1); it starts again
            release c1
            launch c2 worker:0
            tell c2: run worker:0 in round 1, attempt 2, of 1 worker
            · worker:0 runs on `n1` (attempt 2)
            [20s]
            · worker:0 was not heard of for 10s on `n1` (attempt 2); it starts again
            release c2
            launch c3 worker:0
            tell c3: run worker:0 in round 1, attempt 3, of 1 worker
            · worker:0 runs on `n1` (attempt 3)
            [30s]
            · worker:0 was not heard of for 10s on `n1` (attempt 3); it starts again
            release c3
            launch c4 worker:0
            tell c4: run worker:0 in round 1, attempt 4, of 1 worker
            · worker:0 runs on `n1` (attempt 4)
            [40s]
            · worker:0 was not heard of for 10s on `n1` (attempt 4); it starts again
            release c4
            launch c5 worker:0
            tell c5: run worker:0 in round 1, attempt 5, of 1 worker
            · worker:0 runs on `n1` (attempt 5)
            [50s]
            · worker:0 was not heard of for 10s on `n1` (attempt 5); it starts again
            release c5
            launch c6 worker:0
            tell c6: run worker:0 in round 1, attempt 6, of 1 worker
            · worker:0 runs on `n1` (attempt 6)
            [1m]
            · worker:0 was not heard of for 10s on `n1` (attempt 6); the job fails
            release c6
            · the job is ending: failed: worker:0 was not heard of for 10s on `n1` (attempt 6)
            · the job failed: worker:0 was not heard of for 10s on `n1` (attempt 6)
            finish: failed: worker:0 was not heard of for 10s on `n1` (attempt 6)"#]],
    );
}

#[test]
fn attempts_that_end_through_their_nodes_are_counted_in_a_row() {
    let silent = "
        up C worker
        started C
        quiet C
        +10s
        ended C released";
    let fails = "
        up C worker
        exited C 1
        saved C";
    let mut script = String::from("deadlines silence=10s\nrole worker 1 limit=1");
    for (n, life) in [silent, silent, silent, fails, silent, silent, silent]
        .iter()
        .enumerate()
    {
        script += &life.replace('C', &format!("c{n}"));
    }
    check(
        &(script + "\nstates"),
        expect![[r#"
        · the job began
        launch c0 worker:0
        tell c0: run worker:0 in round 1, attempt 1, of 1 worker
        · worker:0 runs on `n1` (attempt 1)
        [10s]
        · worker:0 was not heard of for 10s on `n1` (attempt 1); it starts again
        release c0
        launch c1 worker:0
        tell c1: run worker:0 in round 1, attempt 2, of 1 worker
        · worker:0 runs on `n1` (attempt 2)
        [20s]
        · worker:0 was not heard of for 10s on `n1` (attempt 2); it starts again
        release c1
        launch c2 worker:0
        tell c2: run worker:0 in round 1, attempt 3, of 1 worker
        · worker:0 runs on `n1` (attempt 3)
        [30s]
        · worker:0 was not heard of for 10s on `n1` (attempt 3); it starts again
        release c2
        launch c3 worker:0
        tell c3: run worker:0 in round 1, attempt 4, of 1 worker
        · worker:0 exited with code 1 on `n1` (attempt 4); it starts again
        tell c3: stop
        release c3
        launch c4 worker:0
        tell c4: run worker:0 in round 1, attempt 5, of 1 worker
        · worker:0 runs on `n1` (attempt 5)
        [40s]
        · worker:0 was not heard of for 10s on `n1` (attempt 5); it starts again
        release c4
        launch c5 worker:0
        tell c5: run worker:0 in round 1, attempt 6, of 1 worker
        · worker:0 runs on `n1` (attempt 6)
        [50s]
        · worker:0 was not heard of for 10s on `n1` (attempt 6); it starts again
        release c5
        launch c6 worker:0
        tell c6: run worker:0 in round 1, attempt 7, of 1 worker
        · worker:0 runs on `n1` (attempt 7)
        [1m]
        · worker:0 was not heard of for 10s on `n1` (attempt 7); it starts again
        release c6
        worker:0 asked"#]],
    );
}

#[test]
fn an_agent_that_is_quiet_when_it_should_have_stopped_is_not_called_stubborn() {
    check(
        "
        gang
        deadlines grace=5s stop=5s silence=60s
        role worker 2 scope=job limit=1
        up c1 worker
        up c2 worker n2
        started c1
        started c2
        quiet c2
        +5s
        exited c1 1
        saved c1
        +10s
        states",
        expect![[r#"
            · the job began
            launch c1 worker:0
            launch c2 worker:1
            · round 1 began with 2 tasks
            tell c1: run worker:0 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
            tell c2: run worker:1 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
            · worker:0 runs on `n1` (attempt 1)
            · worker:1 runs on `n2` (attempt 1)
            [5s]
            · worker:0 exited with code 1 on `n1` (attempt 1); it starts again
            tell c1: stop
            · round 2 gathers 2 tasks because of worker:0
            · worker:1 is stopped (attempt 1)
            tell c2: wait as worker:1 for round 2
            release c1
            [15s]
            · worker:1 was not heard of for 15s on `n2` (attempt 2); it starts again
            release c2
            worker:0 asked, worker:1 stopping"#]],
    );
}

#[test]
fn outputs_that_are_lost_with_a_silent_agent_are_made_again() {
    check(
        "
        deadlines grace=5s stop=5s save=10s silence=60s
        outputs
        role worker 1
        up c1 worker
        started c1
        exited c1 0
        quiet c1
        +20s
        ended c1 released
        asks",
        expect![[r#"
            · the job began
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 1 worker
            · worker:0 runs on `n1` (attempt 1)
            tell c1: stop and save
            [20s]
            · worker:0 was not heard of for 20s on `n1` (attempt 1); it starts again
            release c1
            asks: 1 × worker (1 GiB, 1 vcore)"#]],
    );
}

#[test]
fn an_agent_that_was_never_heard_is_late_and_not_silent() {
    check(
        "
        deadlines silence=10s join=60s
        role worker 1
        granted c1 worker
        launched c1
        quiet c1
        +30s
        states",
        expect![[r#"
            · the job began
            launch c1 worker:0
            [30s]
            worker:0 launching"#]],
    );
}

#[test]
fn an_agent_that_does_not_stop_its_program_for_a_new_round_is_a_failure() {
    check(
        "
        gang
        deadlines grace=5s stop=5s silence=10s
        role worker 2 scope=job limit=2
        up c1 worker
        up c2 worker
        started c1
        started c2
        exited c1 1
        saved c1
        +10s
        states
        +20s
        asks",
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
            [10s]
            · worker:1 did not stop within 10s on `n1` (attempt 2); it starts again
            release c2
            worker:0 asked, worker:1 stopping
            [30s]
            asks: 2 × worker (1 GiB, 1 vcore)"#]],
    );
}

#[test]
fn an_agent_that_does_not_leave_is_given_back() {
    check(
        "
        deadlines grace=5s stop=5s
        role worker 1
        up c1 worker
        started c1
        exited c1 0
        +10s",
        expect![[r#"
            · the job began
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 1 worker
            · worker:0 runs on `n1` (attempt 1)
            tell c1: stop and save
            [10s]
            release c1
            · worker:0 succeeded on `n1` (attempt 1)
            · the job is ending: succeeded
            · the job succeeded
            finish: succeeded"#]],
    );
}

#[test]
fn outputs_that_take_too_long_are_a_failure() {
    check(
        "
        outputs
        deadlines grace=5s stop=5s save=60s
        role worker 1
        up c1 worker
        started c1
        exited c1 0
        +69s
        +1s",
        expect![[r#"
            · the job began
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 1 worker
            · worker:0 runs on `n1` (attempt 1)
            tell c1: stop and save
            [1m 10s]
            · worker:0 succeeded, but its outputs were not saved: copying them took too long on `n1` (attempt 1); the job fails
            release c1
            · the job is ending: failed: worker:0 succeeded, but its outputs were not saved: copying them took too long on `n1` (attempt 1)
            · the job failed: worker:0 succeeded, but its outputs were not saved: copying them took too long on `n1` (attempt 1)
            finish: failed: worker:0 succeeded, but its outputs were not saved: copying them took too long on `n1` (attempt 1)"#]],
    );
}
