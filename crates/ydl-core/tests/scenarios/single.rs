//! Single tasks that are added or stopped on request.

use super::script::check;
use expect_test::expect;

#[test]
fn a_stopped_task_is_not_restarted_and_the_job_ends_without_it() {
    check(
        "
        role worker 2
        running
        stop worker:0
        stop worker:0
        exited c1 sig15
        uploaded c1
        states
        exited c2 0
        uploaded c2",
        expect![[r#"
            running: worker:0 in c1, worker:1 in c2 in round 1, of 2 worker
            · worker:0 is stopped (attempt 1)
            tell c1: stop and upload
            release c1
            worker:0 stopped, worker:1 running
            tell c2: stop and upload
            release c2
            · worker:1 succeeded on `n1` (attempt 1)
            · the job is ending: succeeded
            · the job succeeded
            finish: succeeded"#]],
    );
}

#[test]
fn an_added_task_has_its_own_variables_and_a_role_may_begin_empty() {
    check(
        "
        role worker 0
        role driver 1
        up c1 driver
        started c1
        add worker COLOR=red
        asks
        up c2 worker
        started c2
        stop worker:1
        stop worker:0
        uploaded c2
        states
        exited c1 0
        uploaded c1",
        expect![[r#"
            · the job started
            launch c1 driver:0
            tell c1: run driver:0 in round 1, attempt 1, of 0 worker, 1 driver
            · driver:0 runs on `n1` (attempt 1)
            · role `worker` scaled from 0 to 1
            asks: 1 × worker (1 GiB, 1 vcore)
            launch c2 worker:0
            tell c2: run worker:0 in round 1, attempt 1, of 1 worker, 1 driver with COLOR=red
            · worker:0 runs on `n1` (attempt 1)
            · worker:0 is stopped (attempt 1)
            tell c2: stop and upload
            release c2
            worker:0 stopped, driver:0 running
            tell c1: stop and upload
            release c1
            · driver:0 succeeded on `n1` (attempt 1)
            · the job is ending: succeeded
            · the job succeeded
            finish: succeeded"#]],
    );
}

#[test]
fn a_stopped_task_is_not_an_instance() {
    check(
        "
        role worker 4
        running
        stop worker:1
        uploaded c2
        scale worker 3
        states
        scale worker 4
        states
        scale worker 2
        states",
        expect![[r#"
            running: worker:0 in c1, worker:1 in c2, worker:2 in c3, worker:3 in c4 in round 1, of 4 worker
            · worker:1 is stopped (attempt 1)
            tell c2: stop and upload
            release c2
            worker:0 running, worker:1 stopped, worker:2 running, worker:3 running
            · role `worker` scaled from 3 to 4
            worker:0 running, worker:1 stopped, worker:2 running, worker:3 running, worker:4 requested
            · role `worker` scaled from 4 to 2
            · worker:3 is stopped (attempt 1)
            tell c4: stop and upload
            worker:0 running, worker:1 stopped, worker:2 running, worker:3 stopping"#]],
    );
}

#[test]
fn a_role_that_grows_does_not_restart_stopped_tasks() {
    check(
        "
        role worker 3
        running
        stop worker:2
        uploaded c3
        scale worker 1
        uploaded c2
        scale worker 3
        up c4 worker
        up c5 worker
        states",
        expect![[r#"
            running: worker:0 in c1, worker:1 in c2, worker:2 in c3 in round 1, of 3 worker
            · worker:2 is stopped (attempt 1)
            tell c3: stop and upload
            release c3
            · role `worker` scaled from 2 to 1
            · worker:1 is stopped (attempt 1)
            tell c2: stop and upload
            release c2
            · role `worker` scaled from 1 to 3
            launch c4 worker:1
            tell c4: run worker:1 in round 1, attempt 2, of 4 worker
            launch c5 worker:3
            tell c5: run worker:3 in round 1, attempt 1, of 4 worker
            worker:0 running, worker:1 starting, worker:2 stopped, worker:3 starting"#]],
    );
}

#[test]
fn a_stopped_task_whose_upload_fails_is_not_restarted() {
    check(
        "
        role worker 2 limit=1
        outputs
        running
        exited c1 0
        stop worker:0
        uploaded c1 the disk is full
        asks
        states",
        expect![[r#"
            running: worker:0 in c1, worker:1 in c2 in round 1, of 2 worker
            tell c1: stop and upload
            · worker:0 succeeded, but its outputs were not uploaded: the disk is full on `n1` (attempt 1)
            release c1
            asks: nothing
            worker:0 stopped, worker:1 running"#]],
    );
}

#[test]
fn a_retried_task_keeps_its_variables() {
    check(
        "
        role worker 1 limit=1
        running
        add worker COLOR=red
        up c2 worker
        exited c2 1
        uploaded c2
        up c3 worker",
        expect![[r#"
            running: worker:0 in c1 in round 1, of 1 worker
            · role `worker` scaled from 1 to 2
            launch c2 worker:1
            tell c2: run worker:1 in round 1, attempt 1, of 2 worker with COLOR=red
            · worker:1 exited with code 1 on `n1` (attempt 1); retrying
            tell c2: stop
            release c2
            launch c3 worker:1
            tell c3: run worker:1 in round 1, attempt 2, of 2 worker with COLOR=red"#]],
    );
}

#[test]
fn ended_tasks_do_not_count_to_the_limit() {
    check(
        "
        role worker 20000
        add worker
        stop worker:5
        add worker
        add worker
        up c1 worker
        started c1
        exited c1 0
        uploaded c1
        add worker",
        expect![[r#"
            · the job started
            · worker:5 is stopped (attempt 1)
            · role `worker` scaled from 19999 to 20000
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 20001 worker
            · worker:0 runs on `n1` (attempt 1)
            tell c1: stop and upload
            release c1
            · worker:0 succeeded on `n1` (attempt 1)
            · role `worker` scaled from 20000 to 20001"#]],
    );
}

#[test]
fn a_job_that_is_ending_keeps_its_outcome() {
    check(
        "
        role worker 1
        running
        end succeeded
        end failed the data is stale
        uploaded c1",
        expect![[r#"
            running: worker:0 in c1 in round 1, of 1 worker
            · the job is ending: succeeded
            · worker:0 is stopped (attempt 1)
            tell c1: stop and upload
            release c1
            · the job succeeded
            finish: succeeded"#]],
    );
}

#[test]
fn tasks_that_start_together_are_neither_added_nor_stopped_alone() {
    check(
        "
        gang
        role worker 2
        stop worker:0
        add worker
        states",
        expect![[r#"
            · the job started
            worker:0 requested, worker:1 requested"#]],
    );
}

#[test]
fn a_job_ends_with_the_requested_outcome() {
    check(
        "
        role worker 1
        running
        end failed the data is stale
        uploaded c1",
        expect![[r#"
            running: worker:0 in c1 in round 1, of 1 worker
            · the job is ending: failed: the data is stale
            · worker:0 is stopped (attempt 1)
            tell c1: stop and upload
            release c1
            · the job failed: the data is stale
            finish: failed: the data is stale"#]],
    );
}

#[test]
fn a_role_that_decides_the_outcome_has_a_task() {
    check(
        "
        role worker 2
        role server 1 service
        running
        scalable worker 0
        scalable server 0",
        expect![[r#"
            running: worker:0 in c1, worker:1 in c2, server:0 in c3 in round 1, of 2 worker, 1 server
            worker to 0: the outcome of the job depends on a role of 0 instances
            server to 0: yes"#]],
    );
    check(
        "
        role worker 1 decides
        role driver 1
        running
        scalable worker 0
        scalable driver 0",
        expect![[r#"
            running: worker:0 in c1, driver:0 in c2 in round 1, of 1 worker, 1 driver
            worker to 0: the outcome of the job depends on a role of 0 instances
            driver to 0: yes"#]],
    );
}

#[test]
fn an_added_task_has_valid_variables() {
    let large = format!("LARGE={}", "x".repeat(64 << 10));
    for variable in ["YDL_MASTER=x", &large, "=x"] {
        check(
            &format!(
                "
                role worker 1
                role driver 1
                add worker {variable}
                states"
            ),
            expect![[r#"
                · the job started
                worker:0 requested, driver:0 requested"#]],
        );
    }
}
