//! Containers that the cluster takes, that their nodes end, or that are lost.

use super::script::check;
use expect_test::expect;

#[test]
fn a_task_killed_for_its_memory_asks_for_more() {
    check(
        "
        role worker 1 limit=3 grows=50%..2000
        running
        ended c1 memory 1100 1024
        asks
        granted c2 worker n1 1024
        granted c3 worker n1 1536
        launched c3
        ready c3
        started c3
        ended c3 memory 1600 1536
        asks",
        expect![[r#"
            running: worker:0 in c1 in round 1, of 1 worker
            · worker:0 was killed: it used 1100 MiB of 1024 MiB memory on `n1` (attempt 1); retrying
            · worker:0 will ask for 1.5 GiB
            asks: 1 × worker (1.5 GiB, 1 vcore)
            release c2
            launch c3 worker:0
            tell c3: run worker:0 in round 1, attempt 2, of 1 worker
            · worker:0 runs on `n1` (attempt 2)
            · worker:0 was killed: it used 1600 MiB of 1536 MiB memory on `n1` (attempt 2); retrying
            · worker:0 will ask for 1.9 GiB
            asks: 1 × worker (1.9 GiB, 1 vcore)"#]],
    );
}

#[test]
fn a_memory_kill_is_reported_with_usage_and_limit() {
    check(
        "
        role worker 1
        up c1 worker n17
        started c1
        ended c1 memory 4300 4096",
        expect![[r#"
            · the job started
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 1 worker
            · worker:0 runs on `n17` (attempt 1)
            · worker:0 was killed: it used 4.1 GiB of 4 GiB memory on `n17` (attempt 1); the job fails
            · the job is ending: failed: worker:0 was killed: it used 4.1 GiB of 4 GiB memory on `n17` (attempt 1)
            · the job failed: worker:0 was killed: it used 4.1 GiB of 4 GiB memory on `n17` (attempt 1)
            finish: failed: worker:0 was killed: it used 4.1 GiB of 4 GiB memory on `n17` (attempt 1)"#]],
    );
}

#[test]
fn the_container_exit_takes_precedence_over_the_exit_of_its_program() {
    check(
        "
        role worker 1 limit=1
        running
        exited c1 sig15 container
        states
        ended c1 memory 1100 1024",
        expect![[r#"
            running: worker:0 in c1 in round 1, of 1 worker
            worker:0 stopping
            · worker:0 was killed: it used 1100 MiB of 1024 MiB memory on `n1` (attempt 1); retrying"#]],
    );
}

#[test]
fn the_program_exit_counts_when_its_container_just_completes() {
    check(
        "
        role worker 1 limit=1
        running
        exited c1 sig15 container
        ended c1 completed 143",
        expect![[r#"
            running: worker:0 in c1 in round 1, of 1 worker
            · worker:0 was killed by SIGTERM on `n1` (attempt 1); retrying"#]],
    );
}

#[test]
fn a_program_killed_with_its_container_is_not_charged_without_a_reason() {
    check(
        "
        timeouts grace=5s stop=5s
        role worker 1 limit=1
        running
        exited c1 sig15 container
        +10s",
        expect![[r#"
            running: worker:0 in c1 in round 1, of 1 worker
            [10s]
            · worker:0 was lost with its container on `n1` (attempt 1); retrying
            release c1"#]],
    );
}

#[test]
fn preemption_and_lost_nodes_are_not_counted() {
    check(
        "
        timeouts heartbeat=10s
        role worker 1
        running
        ended c1 preempted
        up c2 worker
        started c2
        missed c2
        ended c2 lost
        +60s
        up c3 worker
        started c3
        ended c3 released
        asks",
        expect![[r#"
            running: worker:0 in c1 in round 1, of 1 worker
            · worker:0 was preempted by the cluster on `n1` (attempt 1); retrying
            launch c2 worker:0
            tell c2: run worker:0 in round 1, attempt 2, of 1 worker
            · worker:0 runs on `n1` (attempt 2)
            · worker:0 was lost with its container on `n1` (attempt 2); retrying
            release c2
            [1m]
            launch c3 worker:0
            tell c3: run worker:0 in round 1, attempt 3, of 1 worker
            · worker:0 runs on `n1` (attempt 3)
            · worker:0 was lost with its container on `n1` (attempt 3); retrying
            asks: 1 × worker (1 GiB, 1 vcore)"#]],
    );
}

#[test]
fn a_preemption_warning_stops_the_program_with_grace() {
    check(
        "
        role worker 1
        running
        preemption-warned c1
        order c1
        uploaded c1
        asks",
        expect![[r#"
            running: worker:0 in c1 in round 1, of 1 worker
            · worker:0 was preempted by the cluster on `n1` (attempt 1); retrying
            tell c1: stop
            order c1: stop
            release c1
            asks: 1 × worker (1 GiB, 1 vcore)"#]],
    );
}

#[test]
fn an_agent_that_exits_without_a_report_counts_as_a_failure() {
    check(
        "
        role worker 1
        running
        ended c1 completed 137",
        expect![[r#"
            running: worker:0 in c1 in round 1, of 1 worker
            · worker:0 lost its agent, which was killed by SIGKILL on `n1` (attempt 1); the job fails
            · the job is ending: failed: worker:0 lost its agent, which was killed by SIGKILL on `n1` (attempt 1)
            · the job failed: worker:0 lost its agent, which was killed by SIGKILL on `n1` (attempt 1)
            finish: failed: worker:0 lost its agent, which was killed by SIGKILL on `n1` (attempt 1)"#]],
    );
}

#[test]
fn a_batch_of_ended_containers_is_handled_completely() {
    check(
        "
        role worker 3
        up c1 worker
        up c2 worker
        up c3 worker
        ended c1 preempted, c2 preempted, c3 preempted
        asks",
        expect![[r#"
            · the job started
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 3 worker
            launch c2 worker:1
            tell c2: run worker:1 in round 1, attempt 1, of 3 worker
            launch c3 worker:2
            tell c3: run worker:2 in round 1, attempt 1, of 3 worker
            · worker:0 was preempted by the cluster on `n1` (attempt 1); retrying
            · worker:1 was preempted by the cluster on `n1` (attempt 1); retrying
            · worker:2 was preempted by the cluster on `n1` (attempt 1); retrying
            asks: 3 × worker (1 GiB, 1 vcore)"#]],
    );
}

#[test]
fn a_task_is_replaced_only_after_its_old_program_has_surely_ended() {
    check(
        "
        timeouts heartbeat=30s grace=10s stop=20s
        role worker 1 limit=1
        running
        missed c1
        +30s
        states
        asks
        +29s
        asks
        +1s
        asks",
        expect![[r#"
            running: worker:0 in c1 in round 1, of 1 worker
            [30s]
            · worker:0 sent no heartbeat for 30s on `n1` (attempt 1); retrying
            release c1
            worker:0 stopping
            asks: nothing
            [59s]
            asks: nothing
            [1m]
            asks: 1 × worker (1 GiB, 1 vcore)"#]],
    );
}

#[test]
fn a_responding_agent_on_a_lost_node_is_told_to_stop() {
    check(
        "
        role worker 1
        running
        ended c1 lost
        order c1
        asks
        uploaded c1
        asks",
        expect![[r#"
            running: worker:0 in c1 in round 1, of 1 worker
            · worker:0 was lost with its container on `n1` (attempt 1); retrying
            tell c1: stop
            order c1: stop
            asks: nothing
            release c1
            asks: 1 × worker (1 GiB, 1 vcore)"#]],
    );
}
