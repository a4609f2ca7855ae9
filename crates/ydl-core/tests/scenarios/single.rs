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
