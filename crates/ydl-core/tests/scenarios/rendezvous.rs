//! Notifications of the rendezvous: ended attempts and members.

use super::script::check;
use expect_test::expect;

#[test]
fn the_rendezvous_is_notified_of_ended_attempts_before_new_members() {
    let job = |end: &str| {
        format!(
            "
        gang settle=5s told
        timeouts heartbeat=60s
        role worker 2..3 scope=job limit=3
        running
        rendezvous
        {end}
        states"
        )
    };
    // Its node has no power.
    check(
        &job("missed c3\n+60s\nended c3 lost"),
        expect![[r#"
            running: worker:0 in c1, worker:1 in c2, worker:2 in c3 in round 1, of 3 worker at 3 of 3 addresses
            [1m]
            · worker:2 sent no heartbeat for 1m on `n1` (attempt 1); retrying
            release c3
            · round 1 continues with 2 tasks
            over: worker:2 (attempt 1)
            changed: 2 worker at 2 of 2 addresses
            worker:0 running, worker:1 running, worker:2 stopping"#]],
    );
    // Its node is to be emptied: it has its grace, and then it says so.
    check(
        &job("preemption-warned c3\nexited c3 sig15 round=1\nuploaded c3"),
        expect![[r#"
            running: worker:0 in c1, worker:1 in c2, worker:2 in c3 in round 1, of 3 worker at 3 of 3 addresses
            · worker:2 was preempted by the cluster on `n1` (attempt 1); retrying
            tell c3: stop
            · round 1 continues with 2 tasks
            over: worker:2 (attempt 1)
            changed: 2 worker at 2 of 2 addresses
            release c3
            worker:0 running, worker:1 running, worker:2 requested"#]],
    );
    // It has gone with the master.
    check(
        &job("recovered c1 c2"),
        expect![[r#"
            running: worker:0 in c1, worker:1 in c2, worker:2 in c3 in round 1, of 3 worker at 3 of 3 addresses
            · a new master recovered 2 containers
            · worker:2 was lost with its container on `n1` (attempt 1); retrying
            release c3
            · round 1 continues with 2 tasks
            over: worker:2 (attempt 1)
            changed: 2 worker at 2 of 2 addresses
            worker:0 running, worker:1 running, worker:2 stopping"#]],
    );
    // Its container is taken, and it says so first.
    check(
        &job("exited c3 sig15 container\nended c3 preempted"),
        expect![[r#"
            running: worker:0 in c1, worker:1 in c2, worker:2 in c3 in round 1, of 3 worker at 3 of 3 addresses
            · round 1 continues with 2 tasks
            over: worker:2 (attempt 1)
            changed: 2 worker at 2 of 2 addresses
            · worker:2 was preempted by the cluster on `n1` (attempt 1); retrying
            worker:0 running, worker:1 running, worker:2 requested"#]],
    );
    // Its role has no use for it: it speaks until its program has ended.
    check(
        &job("scale worker 2\nexited c3 0\nuploaded c3"),
        expect![[r#"
            running: worker:0 in c1, worker:1 in c2, worker:2 in c3 in round 1, of 3 worker at 3 of 3 addresses
            · role `worker` scaled from 3 to 2
            · worker:2 is stopped (attempt 1)
            tell c3: stop and upload
            · round 1 continues with 2 tasks
            changed: 2 worker at 2 of 2 addresses
            over: worker:2 (attempt 1)
            release c3
            worker:0 running, worker:1 running"#]],
    );
    check(
        &job("scale worker 2\n+40s"),
        expect![[r#"
            running: worker:0 in c1, worker:1 in c2, worker:2 in c3 in round 1, of 3 worker at 3 of 3 addresses
            · role `worker` scaled from 3 to 2
            · worker:2 is stopped (attempt 1)
            tell c3: stop and upload
            · round 1 continues with 2 tasks
            changed: 2 worker at 2 of 2 addresses
            [40s]
            release c3
            over: worker:2 (attempt 1)
            worker:0 running, worker:1 running, worker:2 stopping"#]],
    );
}

#[test]
fn a_newcomer_that_does_not_start_is_reported_as_ended() {
    check(
        "
        gang settle=5s told
        timeouts start=20s
        role worker 1..2:1 scope=job limit=3
        running
        rendezvous
        scale worker 2
        up c2 worker
        +20s",
        expect![[r#"
            running: worker:0 in c1 in round 1, of 1 worker at 1 of 1 addresses
            · role `worker` scaled from 1 to 2
            launch c2 worker:1
            · round 1 continues with 2 tasks
            changed: 2 worker at 2 of 2 addresses
            tell c2: run worker:1 in round 2, attempt 1, of 2 worker at 2 of 2 addresses
            [20s]
            · worker:1 did not start its program within 20s on `n1` (attempt 1); retrying
            release c2
            · round 1 continues with 1 task
            over: worker:1 (attempt 1)
            changed: 1 worker at 1 of 1 addresses"#]],
    );
}

#[test]
fn finished_tasks_are_not_members_for_the_remaining_tasks() {
    check(
        "
        gang settle=5s told
        role worker 1..3 scope=job
        running
        rendezvous
        exited c1 0
        uploaded c1
        ended c2 preempted
        exited c3 0
        uploaded c3",
        expect![[r#"
            running: worker:0 in c1, worker:1 in c2, worker:2 in c3 in round 1, of 3 worker at 3 of 3 addresses
            tell c1: stop and upload
            over: worker:0 (attempt 1)
            changed: 2 worker [1, 2] at 2 of 2 addresses
            release c1
            · worker:0 succeeded on `n1` (attempt 1)
            · worker:1 was preempted by the cluster on `n1` (attempt 1); retrying
            · round 1 continues with 1 task
            over: worker:1 (attempt 1)
            changed: 1 worker [2] at 1 of 1 addresses
            tell c3: stop and upload
            over: worker:2 (attempt 1)
            release c3
            · worker:2 succeeded on `n1` (attempt 1)
            · the job is ending: succeeded
            · the job succeeded
            finish: succeeded"#]],
    );
}
