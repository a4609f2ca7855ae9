//! Roles with `completion: follows`, and the tasks that they need.

use super::script::check;
use expect_test::expect;

#[test]
fn followers_are_waited_for_until_the_follow_timeout() {
    let job = |end: &str| {
        format!(
            "
        gang
        timeouts follow=20s
        role chief 1 scope=job
        role evaluator 1 follows
        running
        exited c1 0
        uploaded c1
        {end}"
        )
    };
    check(
        &job("exited c2 0\n        uploaded c2"),
        expect![[r#"
            running: chief:0 in c1, evaluator:0 in c2 in round 1, of 1 chief at 1 of 1 addresses, 1 evaluator at 1 of 1 addresses
            tell c1: stop and upload
            release c1
            · chief:0 succeeded on `n1` (attempt 1)
            tell c2: stop and upload
            release c2
            · evaluator:0 succeeded on `n1` (attempt 1)
            · the job is ending: succeeded
            · the job succeeded
            finish: succeeded"#]],
    );
    check(
        &job("+19s\n        reason\n        +1s\n        uploaded c2"),
        expect![[r#"
            running: chief:0 in c1, evaluator:0 in c2 in round 1, of 1 chief at 1 of 1 addresses, 1 evaluator at 1 of 1 addresses
            tell c1: stop and upload
            release c1
            · chief:0 succeeded on `n1` (attempt 1)
            [19s]
            reason: 1 task running
            [20s]
            · the job is ending: succeeded
            · evaluator:0 is stopped (attempt 1)
            tell c2: stop and upload
            release c2
            · the job succeeded
            finish: succeeded"#]],
    );
}

#[test]
fn a_service_lost_during_the_follow_wait_restarts_no_task() {
    let job = |end: &str| {
        format!(
            "
        gang
        role chief 1 scope=job
        role ps 2 service scope=job
        role evaluator 1 follows scope=job limit=1
        running
        exited c1 0
        uploaded c1
        {end}"
        )
    };
    let lost = "ended c2 preempted\n exited c3 1\n uploaded c3\n exited c4 0\n uploaded c4";
    check(
        &job(lost),
        expect![[r#"
            running: chief:0 in c1, ps:0 in c2, ps:1 in c3, evaluator:0 in c4 in round 1, of 1 chief at 1 of 1 addresses, 2 ps at 2 of 2 addresses, 1 evaluator at 1 of 1 addresses
            tell c1: stop and upload
            release c1
            · chief:0 succeeded on `n1` (attempt 1)
            · ps:0 was preempted by the cluster on `n1` (attempt 1)
            · ps:1 exited with code 1 on `n1` (attempt 1)
            tell c3: stop and upload
            release c3
            tell c4: stop and upload
            release c4
            · evaluator:0 succeeded on `n1` (attempt 1)
            · the job is ending: succeeded
            · the job succeeded
            finish: succeeded"#]],
    );
    check(
        &job(
            "exited c4 1\n uploaded c4\n up c5 evaluator\n started c5\n exited c5 0\n uploaded c5",
        ),
        expect![[r#"
            running: chief:0 in c1, ps:0 in c2, ps:1 in c3, evaluator:0 in c4 in round 1, of 1 chief at 1 of 1 addresses, 2 ps at 2 of 2 addresses, 1 evaluator at 1 of 1 addresses
            tell c1: stop and upload
            release c1
            · chief:0 succeeded on `n1` (attempt 1)
            · evaluator:0 exited with code 1 on `n1` (attempt 1); retrying
            tell c4: stop
            · round 2 restarts with 1 task: evaluator:0 ended
            release c4
            launch c5 evaluator:0
            · round 2 started with 1 task
            tell c5: run evaluator:0 in round 2, attempt 2, of 1 chief at 1 of 1 addresses, 2 ps at 2 of 2 addresses, 1 evaluator at 1 of 1 addresses
            · evaluator:0 runs on `n1` (attempt 2)
            tell c5: stop and upload
            release c5
            · evaluator:0 succeeded on `n1` (attempt 2)
            · the job is ending: succeeded
            · ps:0 is stopped (attempt 1)
            tell c2: stop and upload
            · ps:1 is stopped (attempt 1)
            tell c3: stop and upload"#]],
    );
}

#[test]
fn a_service_without_containers_does_not_fail_a_finished_job() {
    check(
        "
        gang
        timeouts allocation=60s
        role chief 1 scope=job
        role ps 1 service scope=task
        role evaluator 1 follows
        running
        ended c2 preempted
        asks
        exited c1 0
        uploaded c1
        asks
        scalable ps 2
        +60s
        exited c3 0
        uploaded c3",
        expect![[r#"
            running: chief:0 in c1, ps:0 in c2, evaluator:0 in c3 in round 1, of 1 chief at 1 of 1 addresses, 1 ps at 1 of 1 addresses, 1 evaluator at 1 of 1 addresses
            · ps:0 was preempted by the cluster on `n1` (attempt 1); retrying
            asks: 1 × ps (1 GiB, 1 vcore)
            tell c1: stop and upload
            release c1
            · chief:0 succeeded on `n1` (attempt 1)
            asks: nothing
            ps to 2: all required tasks are done, and the job only waits for followers
            [1m]
            tell c3: stop and upload
            release c3
            · evaluator:0 succeeded on `n1` (attempt 1)
            · the job is ending: succeeded
            · the job succeeded
            finish: succeeded"#]],
    );
}

#[test]
fn followers_restart_without_a_service_that_is_not_needed() {
    check(
        "
        gang
        role chief 1 scope=job
        role ps 1 service scope=role
        role evaluator 1 follows scope=role limit=1
        running
        ended c2 preempted
        exited c3 1
        uploaded c3
        up c4 evaluator
        exited c1 0
        uploaded c1",
        expect![[r#"
            running: chief:0 in c1, ps:0 in c2, evaluator:0 in c3 in round 1, of 1 chief at 1 of 1 addresses, 1 ps at 1 of 1 addresses, 1 evaluator at 1 of 1 addresses
            · ps:0 was preempted by the cluster on `n1` (attempt 1); retrying
            · round 2 restarts with 1 task: ps:0 ended
            · evaluator:0 exited with code 1 on `n1` (attempt 1); retrying
            tell c3: stop
            · round 3 restarts with 1 task: evaluator:0 ended
            release c3
            launch c4 evaluator:0
            tell c1: stop and upload
            release c1
            · chief:0 succeeded on `n1` (attempt 1)
            · round 3 started with 1 task
            tell c4: run evaluator:0 in round 3, attempt 2, of 1 chief at 1 of 1 addresses, 1 ps, 1 evaluator at 1 of 1 addresses"#]],
    );
}
