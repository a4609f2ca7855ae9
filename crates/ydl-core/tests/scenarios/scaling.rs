//! Roles that change their size.

use super::script::check;
use expect_test::expect;

#[test]
fn a_job_without_a_gang_scales_without_restarting_tasks() {
    check(
        "
        role worker 2
        running
        scale worker 3
        asks
        up c3 worker
        started c3
        scale worker 1
        uploaded c3
        uploaded c2
        states
        exited c1 0
        uploaded c1",
        expect![[r#"
            running: worker:0 in c1, worker:1 in c2 in round 1, of 2 worker
            · role `worker` scaled from 2 to 3
            asks: 1 × worker (1 GiB, 1 vcore)
            launch c3 worker:2
            tell c3: run worker:2 in round 1, attempt 1, of 3 worker
            · worker:2 runs on `n1` (attempt 1)
            · role `worker` scaled from 3 to 1
            · worker:2 is stopped (attempt 1)
            tell c3: stop and upload
            · worker:1 is stopped (attempt 1)
            tell c2: stop and upload
            release c3
            release c2
            worker:0 running
            tell c1: stop and upload
            release c1
            · worker:0 succeeded on `n1` (attempt 1)
            · the job is ending: succeeded
            · the job succeeded
            finish: succeeded"#]],
    );
}

#[test]
fn split_inputs_are_divided_over_the_tasks_at_submit() {
    let sizes = "
        scalable worker 3
        scalable worker 1
        scalable worker 2
        scalable server 3";
    let job = |inputs: &str| format!("{inputs}\nrole worker 2\nrole server 1 service{sizes}");
    check(
        &job("inputs split"),
        expect![[r#"
        · the job started
        worker to 3: the files of the input `data` were divided over the 2 tasks of role `worker` at submit
        worker to 1: the files of the input `data` were divided over the 2 tasks of role `worker` at submit
        worker to 2: yes
        server to 3: yes"#]],
    );
    check(
        &job("inputs split allow-empty"),
        expect![[r#"
        · the job started
        worker to 3: yes
        worker to 1: the files of the input `data` were divided over the 2 tasks of role `worker` at submit
        worker to 2: yes
        server to 3: yes"#]],
    );
    check(
        &job("inputs"),
        expect![[r#"
        · the job started
        worker to 3: yes
        worker to 1: yes
        worker to 2: yes
        server to 3: yes"#]],
    );
}

#[test]
fn a_role_does_not_grow_beyond_one_writer_of_a_destination() {
    check(
        "
        outputs model out
        role worker 1
        role server 1 service
        scalable worker 2
        scalable server 2",
        expect![[r#"
            · the job started
            worker to 2: 2 tasks would write `model` to the same destination `out`
            server to 2: yes"#]],
    );
}

#[test]
fn a_revived_task_waits_until_its_old_container_has_ended() {
    check(
        "
        role worker 2
        up c1 worker
        up c2 worker
        started c2
        scale worker 1
        scale worker 2
        asks
        uploaded c2
        asks",
        expect![[r#"
            · the job started
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 2 worker
            launch c2 worker:1
            tell c2: run worker:1 in round 1, attempt 1, of 2 worker
            · worker:1 runs on `n1` (attempt 1)
            · role `worker` scaled from 2 to 1
            · worker:1 is stopped (attempt 1)
            tell c2: stop and upload
            · role `worker` scaled from 1 to 2
            asks: nothing
            release c2
            asks: 1 × worker (1 GiB, 1 vcore)"#]],
    );
}

#[test]
fn a_role_cannot_be_scaled_to_an_invalid_size() {
    check(
        "
        role worker 2 tolerate=1
        scale worker 0
        scale worker 1
        scale worker 1000000
        scale boss 1
        asks",
        expect![[r#"
            · the job started
            asks: 2 × worker (1 GiB, 1 vcore)"#]],
    );
}

#[test]
fn a_role_scaled_down_to_its_failed_tasks_fails_the_job() {
    check(
        "
        role worker 3 any
        up c1 worker n7
        up c2 worker
        up c3 worker
        exited c1 1
        uploaded c1
        exited c2 1
        uploaded c2
        scale worker 2
        uploaded c3",
        expect![[r#"
            · the job started
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 3 worker
            launch c2 worker:1
            tell c2: run worker:1 in round 1, attempt 1, of 3 worker
            launch c3 worker:2
            tell c3: run worker:2 in round 1, attempt 1, of 3 worker
            · worker:0 exited with code 1 on `n7` (attempt 1); the job continues without it
            tell c1: stop and upload
            release c1
            · worker:1 exited with code 1 on `n1` (attempt 1); the job continues without it
            tell c2: stop and upload
            release c2
            · role `worker` scaled from 3 to 2
            · worker:2 is stopped (attempt 1)
            tell c3: stop and upload
            · the job is ending: failed: worker:0 exited with code 1 on `n7` (attempt 1)
            release c3
            · the job failed: worker:0 exited with code 1 on `n7` (attempt 1)
            finish: failed: worker:0 exited with code 1 on `n7` (attempt 1)"#]],
    );
}
