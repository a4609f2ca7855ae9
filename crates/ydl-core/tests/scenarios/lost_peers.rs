//! Failures in roles whose tasks come and go, and failures because the cluster took a peer.

use super::script::check;
use expect_test::expect;

#[test]
fn a_failed_program_uses_up_a_restart_and_its_peers_continue() {
    check(
        "
        gang settle=5s
        role worker 1..2 scope=job limit=1
        running
        exited c1 1
        exited c2 1
        ready c2
        uploaded c1
        up c3 worker
        ready c2
        exited c2 1
        exited c3 1",
        expect![[r#"
            running: worker:0 in c1, worker:1 in c2 in round 1, of 2 worker at 2 of 2 addresses
            · worker:0 exited with code 1 on `n1` (attempt 1); retrying
            tell c1: stop
            · round 2 restarts with 2 tasks: worker:0 ended
            · worker:1 is stopped (attempt 1)
            tell c2: wait as worker:1 for round 2
            · round 2 started with 1 task
            tell c2: run worker:1 as rank 0 in round 2, attempt 2, of 1 worker [1] at 1 of 1 addresses
            release c1
            launch c3 worker:0
            · round 4 restarts with 2 tasks: worker:0 joined
            tell c3: wait as worker:0 for round 4
            · worker:1 is stopped (attempt 2)
            tell c2: wait as worker:1 for round 4
            · round 4 started with 2 tasks
            tell c3: run worker:0 in round 4, attempt 2, of 2 worker at 2 of 2 addresses
            tell c2: run worker:1 in round 4, attempt 3, of 2 worker at 2 of 2 addresses
            · worker:1 exited with code 1 on `n1` (attempt 3); the job fails unless a peer was lost
            tell c2: stop and upload
            · worker:0 exited with code 1 on `n1` (attempt 2); the job fails
            tell c3: stop and upload
            · the job is ending: failed: worker:1 exited with code 1 on `n1` (attempt 3)"#]],
    );
}

#[test]
fn a_failure_after_a_peer_was_preempted_is_not_charged() {
    check(
        "
        gang settle=5s
        role worker 1..2 scope=job
        running
        exited c1 sig15 container
        exited c2 1 round=1
        ended c1 preempted
        ready c2",
        expect![[r#"
            running: worker:0 in c1, worker:1 in c2 in round 1, of 2 worker at 2 of 2 addresses
            · round 2 restarts with 2 tasks: worker:0 ended
            · worker:1 is stopped (attempt 1)
            tell c2: wait as worker:1 for round 2
            · worker:0 was preempted by the cluster on `n1` (attempt 1); retrying
            · round 2 started with 1 task
            tell c2: run worker:1 as rank 0 in round 2, attempt 2, of 1 worker [1] at 1 of 1 addresses"#]],
    );
}

#[test]
fn a_failure_before_a_peer_is_known_to_be_preempted_uses_up_no_restart() {
    check(
        "
        gang settle=5s
        role worker 1..2 scope=job limit=1
        running
        exited c1 1
        uploaded c1
        ended c2 preempted
        up c3 worker
        up c4 worker
        started c3
        started c4
        exited c3 1
        uploaded c3
        ready c4
        exited c4 1",
        expect![[r#"
            running: worker:0 in c1, worker:1 in c2 in round 1, of 2 worker at 2 of 2 addresses
            · worker:0 exited with code 1 on `n1` (attempt 1); retrying
            tell c1: stop
            · round 2 restarts with 2 tasks: worker:0 ended
            · worker:1 is stopped (attempt 1)
            tell c2: wait as worker:1 for round 2
            release c1
            · worker:1 was preempted by the cluster on `n1` (attempt 2); retrying
            launch c3 worker:0
            launch c4 worker:1
            · round 2 started with 2 tasks
            tell c3: run worker:0 in round 2, attempt 2, of 2 worker at 2 of 2 addresses
            tell c4: run worker:1 in round 2, attempt 3, of 2 worker at 2 of 2 addresses
            · worker:0 runs on `n1` (attempt 2)
            · worker:1 runs on `n1` (attempt 3)
            · worker:0 exited with code 1 on `n1` (attempt 2); retrying
            tell c3: stop
            · round 3 restarts with 2 tasks: worker:0 ended
            · worker:1 is stopped (attempt 3)
            tell c4: wait as worker:1 for round 3
            release c3
            · round 3 started with 1 task
            tell c4: run worker:1 as rank 0 in round 3, attempt 4, of 1 worker [1] at 1 of 1 addresses
            · worker:1 exited with code 1 on `n1` (attempt 4); the job fails
            tell c4: stop and upload
            · the job is ending: failed: worker:1 exited with code 1 on `n1` (attempt 4)"#]],
    );
}

#[test]
fn the_node_of_a_task_that_failed_with_a_lost_peer_is_not_charged() {
    check(
        "
        gang settle=5s
        blame failures=1
        role worker 1..2 scope=job limit=3
        nodes 4
        up c1 worker n1
        up c2 worker n2
        started c1
        started c2
        exited c1 1
        asks
        uploaded c1
        ended c2 preempted
        asks
        up c3 worker n1
        up c4 worker n3
        started c3
        started c4
        exited c3 1
        uploaded c3
        ready c4
        asks",
        expect![[r#"
            · the job started
            launch c1 worker:0
            launch c2 worker:1
            · round 1 started with 2 tasks
            tell c1: run worker:0 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
            tell c2: run worker:1 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
            · worker:0 runs on `n1` (attempt 1)
            · worker:1 runs on `n2` (attempt 1)
            · worker:0 exited with code 1 on `n1` (attempt 1); retrying
            · node `n1` is excluded: 1 program failed there
            tell c1: stop
            · round 2 restarts with 2 tasks: worker:0 ended
            · worker:1 is stopped (attempt 1)
            tell c2: wait as worker:1 for round 2
            asks: nothing, not on n1
            release c1
            · node `n1` is no longer excluded
            · worker:1 was preempted by the cluster on `n2` (attempt 2); retrying
            asks: 2 × worker (1 GiB, 1 vcore)
            launch c3 worker:0
            launch c4 worker:1
            · round 2 started with 2 tasks
            tell c3: run worker:0 in round 2, attempt 2, of 2 worker at 2 of 2 addresses
            tell c4: run worker:1 in round 2, attempt 3, of 2 worker at 2 of 2 addresses
            · worker:0 runs on `n1` (attempt 2)
            · worker:1 runs on `n3` (attempt 3)
            · worker:0 exited with code 1 on `n1` (attempt 2); retrying
            · node `n1` is excluded: 1 program failed there
            tell c3: stop
            · round 3 restarts with 2 tasks: worker:0 ended
            · worker:1 is stopped (attempt 3)
            tell c4: wait as worker:1 for round 3
            release c3
            · round 3 started with 1 task
            tell c4: run worker:1 as rank 0 in round 3, attempt 4, of 1 worker [1] at 1 of 1 addresses
            asks: 1 × worker (1 GiB, 1 vcore), not on n1"#]],
    );
}

#[test]
fn a_failure_without_restarts_left_is_suspect_while_a_peer_may_be_lost() {
    let job = |end: &str| {
        format!(
            "
        gang settle=5s
        timeouts grace=10s stop=5s
        role worker 1..3 scope=job
        up c1 worker n1
        up c2 worker n2
        up c3 worker n3
        started c1
        started c2
        started c3
        exited c1 1
        {end}"
        )
    };
    let taken = "uploaded c1\n exited c2 1\n reason\n ended c3 preempted\n asks\n uploaded c2\n up c4 worker\n +5s";
    check(
        &job(taken),
        expect![[r#"
        · the job started
        launch c1 worker:0
        launch c2 worker:1
        launch c3 worker:2
        · round 1 started with 3 tasks
        tell c1: run worker:0 in round 1, attempt 1, of 3 worker at 3 of 3 addresses
        tell c2: run worker:1 in round 1, attempt 1, of 3 worker at 3 of 3 addresses
        tell c3: run worker:2 in round 1, attempt 1, of 3 worker at 3 of 3 addresses
        · worker:0 runs on `n1` (attempt 1)
        · worker:1 runs on `n2` (attempt 1)
        · worker:2 runs on `n3` (attempt 1)
        · worker:0 exited with code 1 on `n1` (attempt 1); the job fails unless a peer was lost
        tell c1: stop and upload
        release c1
        · worker:1 exited with code 1 on `n2` (attempt 1); the job fails unless a peer was lost
        tell c2: stop and upload
        reason: 1 task running; worker:0 exited with code 1 on `n1` (attempt 1), and the job fails unless a peer was lost; waiting: 1 × `worker` to upload and stop
        · worker:2 was preempted by the cluster on `n3` (attempt 1); retrying
        · round 2 restarts with 3 tasks: worker:2 ended
        asks: 2 × worker (1 GiB, 1 vcore)
        release c2
        launch c4 worker:0
        [5s]
        · round 2 started with 1 task
        tell c4: run worker:0 in round 2, attempt 2, of 1 worker at 1 of 1 addresses"#]],
    );
    let signalled = "exited c3 sig15 container\n uploaded c1\n ready c2";
    check(
        &job(signalled),
        expect![[r#"
        · the job started
        launch c1 worker:0
        launch c2 worker:1
        launch c3 worker:2
        · round 1 started with 3 tasks
        tell c1: run worker:0 in round 1, attempt 1, of 3 worker at 3 of 3 addresses
        tell c2: run worker:1 in round 1, attempt 1, of 3 worker at 3 of 3 addresses
        tell c3: run worker:2 in round 1, attempt 1, of 3 worker at 3 of 3 addresses
        · worker:0 runs on `n1` (attempt 1)
        · worker:1 runs on `n2` (attempt 1)
        · worker:2 runs on `n3` (attempt 1)
        · worker:0 exited with code 1 on `n1` (attempt 1); the job fails unless a peer was lost
        tell c1: stop and upload
        · round 2 restarts with 3 tasks: worker:2 ended
        · worker:1 is stopped (attempt 1)
        tell c2: wait as worker:1 for round 2
        release c1
        · round 2 started with 1 task
        tell c2: run worker:1 as rank 0 in round 2, attempt 2, of 1 worker [1] at 1 of 1 addresses"#]],
    );
    check(
        &job("+14s\n +1s"),
        expect![[r#"
        · the job started
        launch c1 worker:0
        launch c2 worker:1
        launch c3 worker:2
        · round 1 started with 3 tasks
        tell c1: run worker:0 in round 1, attempt 1, of 3 worker at 3 of 3 addresses
        tell c2: run worker:1 in round 1, attempt 1, of 3 worker at 3 of 3 addresses
        tell c3: run worker:2 in round 1, attempt 1, of 3 worker at 3 of 3 addresses
        · worker:0 runs on `n1` (attempt 1)
        · worker:1 runs on `n2` (attempt 1)
        · worker:2 runs on `n3` (attempt 1)
        · worker:0 exited with code 1 on `n1` (attempt 1); the job fails unless a peer was lost
        tell c1: stop and upload
        [15s]
        release c1
        · the job is ending: failed: worker:0 exited with code 1 on `n1` (attempt 1)
        · worker:1 is stopped (attempt 1)
        tell c2: stop and upload
        · worker:2 is stopped (attempt 1)
        tell c3: stop and upload"#]],
    );
    check(
        &job("exited c2 1\n exited c3 1"),
        expect![[r#"
        · the job started
        launch c1 worker:0
        launch c2 worker:1
        launch c3 worker:2
        · round 1 started with 3 tasks
        tell c1: run worker:0 in round 1, attempt 1, of 3 worker at 3 of 3 addresses
        tell c2: run worker:1 in round 1, attempt 1, of 3 worker at 3 of 3 addresses
        tell c3: run worker:2 in round 1, attempt 1, of 3 worker at 3 of 3 addresses
        · worker:0 runs on `n1` (attempt 1)
        · worker:1 runs on `n2` (attempt 1)
        · worker:2 runs on `n3` (attempt 1)
        · worker:0 exited with code 1 on `n1` (attempt 1); the job fails unless a peer was lost
        tell c1: stop and upload
        · worker:1 exited with code 1 on `n2` (attempt 1); the job fails unless a peer was lost
        tell c2: stop and upload
        · worker:2 exited with code 1 on `n3` (attempt 1); the job fails
        tell c3: stop and upload
        · the job is ending: failed: worker:0 exited with code 1 on `n1` (attempt 1)"#]],
    );
    let away = "+10s\n recovered c1 c2 c3\n resumed c2\n resumed c3\n +14s\n +1s";
    check(
        &job(away),
        expect![[r#"
        · the job started
        launch c1 worker:0
        launch c2 worker:1
        launch c3 worker:2
        · round 1 started with 3 tasks
        tell c1: run worker:0 in round 1, attempt 1, of 3 worker at 3 of 3 addresses
        tell c2: run worker:1 in round 1, attempt 1, of 3 worker at 3 of 3 addresses
        tell c3: run worker:2 in round 1, attempt 1, of 3 worker at 3 of 3 addresses
        · worker:0 runs on `n1` (attempt 1)
        · worker:1 runs on `n2` (attempt 1)
        · worker:2 runs on `n3` (attempt 1)
        · worker:0 exited with code 1 on `n1` (attempt 1); the job fails unless a peer was lost
        tell c1: stop and upload
        [10s]
        · a new master recovered 3 containers
        [25s]
        release c1
        · the job is ending: failed: worker:0 exited with code 1 on `n1` (attempt 1)
        · worker:1 is stopped (attempt 1)
        tell c2: stop and upload
        · worker:2 is stopped (attempt 1)
        tell c3: stop and upload"#]],
    );
}
