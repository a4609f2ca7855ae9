//! End of jobs.

use super::script::check;
use expect_test::expect;

#[test]
fn a_service_is_stopped_when_the_workers_are_done() {
    check(
        "
        gang
        role worker 2 scope=job
        role server 1 service scope=job
        running
        exited c1 0
        uploaded c1
        exited c2 0
        uploaded c2
        reason
        uploaded c3",
        expect![[r#"
            running: worker:0 in c1, worker:1 in c2, server:0 in c3 in round 1, of 2 worker at 2 of 2 addresses, 1 server at 1 of 1 addresses
            tell c1: stop and upload
            release c1
            · worker:0 succeeded on `n1` (attempt 1)
            tell c2: stop and upload
            release c2
            · worker:1 succeeded on `n1` (attempt 1)
            · the job is ending: succeeded
            · server:0 is stopped (attempt 1)
            tell c3: stop and upload
            reason: the job succeeded; 1 container still stopping
            release c3
            · the job succeeded
            finish: succeeded"#]],
    );
}

#[test]
fn a_primary_role_ends_the_job_regardless_of_other_roles() {
    check(
        "
        role chief 1 decides
        role worker 1
        up c1 chief
        up c2 worker
        started c2
        exited c1 0
        uploaded c1
        uploaded c2",
        expect![[r#"
            · the job started
            launch c1 chief:0
            tell c1: run chief:0 in round 1, attempt 1, of 1 chief, 1 worker
            launch c2 worker:0
            tell c2: run worker:0 in round 1, attempt 1, of 1 chief, 1 worker
            · worker:0 runs on `n1` (attempt 1)
            tell c1: stop and upload
            release c1
            · chief:0 succeeded on `n1` (attempt 1)
            · the job is ending: succeeded
            · worker:0 is stopped (attempt 1)
            tell c2: stop and upload
            release c2
            · the job succeeded
            finish: succeeded"#]],
    );
}

#[test]
fn one_success_is_enough_with_completion_any() {
    check(
        "
        role worker 2 any
        up c1 worker
        up c2 worker
        exited c1 1
        uploaded c1
        exited c2 0
        uploaded c2",
        expect![[r#"
            · the job started
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 2 worker
            launch c2 worker:1
            tell c2: run worker:1 in round 1, attempt 1, of 2 worker
            · worker:0 exited with code 1 on `n1` (attempt 1); the job continues without it
            tell c1: stop and upload
            release c1
            tell c2: stop and upload
            release c2
            · worker:1 succeeded on `n1` (attempt 1)
            · the job is ending: succeeded
            · the job succeeded
            finish: succeeded"#]],
    );
}

#[test]
fn no_success_with_completion_any_fails_the_job() {
    check(
        "
        role worker 2 any
        up c1 worker
        up c2 worker
        exited c1 1
        exited c2 2
        uploaded c1
        uploaded c2",
        expect![[r#"
            · the job started
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 2 worker
            launch c2 worker:1
            tell c2: run worker:1 in round 1, attempt 1, of 2 worker
            · worker:0 exited with code 1 on `n1` (attempt 1); the job continues without it
            tell c1: stop and upload
            · worker:1 exited with code 2 on `n1` (attempt 1); the job fails
            tell c2: stop and upload
            · the job is ending: failed: worker:1 exited with code 2 on `n1` (attempt 1)
            release c1
            release c2
            · the job failed: worker:1 exited with code 2 on `n1` (attempt 1)
            finish: failed: worker:1 exited with code 2 on `n1` (attempt 1)"#]],
    );
}

#[test]
fn a_sidecar_is_in_no_round_and_its_end_does_not_affect_the_job() {
    check(
        "
        gang
        role chief 1 scope=job limit=1
        role board 1 beside scope=job limit=1
        running chief 1
        up c2 board
        started c2
        exited c1 1
        uploaded c1
        ended c1 released
        up c3 chief
        started c3
        exited c2 1
        uploaded c2
        ended c2 released
        up c4 board
        started c4
        exited c4 1
        uploaded c4
        exited c3 0
        uploaded c3",
        expect![[r#"
            running: chief:0 in c1 in round 1, of 1 chief at 1 of 1 addresses
            launch c2 board:0
            tell c2: run board:0 in round 1, attempt 1, of 1 chief
            · board:0 runs on `n1` (attempt 1)
            · chief:0 exited with code 1 on `n1` (attempt 1); retrying
            tell c1: stop
            · round 2 restarts with 1 task: chief:0 ended
            release c1
            launch c3 chief:0
            · round 2 started with 1 task
            tell c3: run chief:0 in round 2, attempt 2, of 1 chief at 1 of 1 addresses
            · chief:0 runs on `n1` (attempt 2)
            · board:0 exited with code 1 on `n1` (attempt 1); retrying
            tell c2: stop
            release c2
            launch c4 board:0
            tell c4: run board:0 in round 1, attempt 2, of 1 chief
            · board:0 runs on `n1` (attempt 2)
            · board:0 exited with code 1 on `n1` (attempt 2); the job continues without it
            tell c4: stop and upload
            release c4
            tell c3: stop and upload
            release c3
            · chief:0 succeeded on `n1` (attempt 2)
            · the job is ending: succeeded
            · the job succeeded
            finish: succeeded"#]],
    );
    check(
        "
        gang
        role chief 1 scope=job
        role board 1 beside
        running chief 1
        up c2 board
        started c2
        exited c1 0
        uploaded c1
        uploaded c2",
        expect![[r#"
            running: chief:0 in c1 in round 1, of 1 chief at 1 of 1 addresses
            launch c2 board:0
            tell c2: run board:0 in round 1, attempt 1, of 1 chief
            · board:0 runs on `n1` (attempt 1)
            tell c1: stop and upload
            release c1
            · chief:0 succeeded on `n1` (attempt 1)
            · the job is ending: succeeded
            · board:0 is stopped (attempt 1)
            tell c2: stop and upload
            release c2
            · the job succeeded
            finish: succeeded"#]],
    );
}

#[test]
fn a_job_of_services_ends_when_they_have_all_ended() {
    check(
        "
        role web 2 service
        up c1 web
        up c2 web
        exited c1 0
        uploaded c1
        states
        exited c2 0
        uploaded c2",
        expect![[r#"
            · the job started
            launch c1 web:0
            tell c1: run web:0 in round 1, attempt 1, of 2 web
            launch c2 web:1
            tell c2: run web:1 in round 1, attempt 1, of 2 web
            tell c1: stop and upload
            release c1
            · web:0 succeeded on `n1` (attempt 1)
            web:0 succeeded, web:1 starting
            tell c2: stop and upload
            release c2
            · web:1 succeeded on `n1` (attempt 1)
            · the job is ending: succeeded
            · the job succeeded
            finish: succeeded"#]],
    );
}

#[test]
fn a_kill_stops_tasks_uploads_outputs_and_releases_containers() {
    check(
        "
        role worker 3
        granted c1 worker
        up c2 worker
        started c2
        kill ada
        order c2
        granted c4 worker
        reason
        uploaded c2
        reason",
        expect![[r#"
            · the job started
            launch c1 worker:0
            launch c2 worker:1
            tell c2: run worker:1 in round 1, attempt 1, of 3 worker
            · worker:1 runs on `n1` (attempt 1)
            · the job is ending: killed by ada
            release c1
            · worker:1 is stopped (attempt 1)
            tell c2: stop and upload
            order c2: stop and upload
            release c4
            reason: the job was killed by ada; 1 container still stopping
            release c2
            · the job was killed by ada
            finish: killed by ada
            reason: the job was killed by ada"#]],
    );
}

#[test]
fn an_immediate_kill_releases_running_containers() {
    check(
        "
        role worker 1
        running
        kill ada
        kill-now ada",
        expect![[r#"
            running: worker:0 in c1 in round 1, of 1 worker
            · the job is ending: killed by ada
            · worker:0 is stopped (attempt 1)
            tell c1: stop and upload
            release c1
            · the job was killed by ada
            finish: killed by ada"#]],
    );
}

#[test]
fn an_unsatisfiable_request_fails_the_job_with_the_reason() {
    check(
        "
        role worker 1
        unsatisfiable a task of `worker` needs 2 GPUs and the largest node has 1",
        expect![[r#"
            · the job started
            · the job is ending: failed: a task of `worker` needs 2 GPUs and the largest node has 1
            · the job failed: a task of `worker` needs 2 GPUs and the largest node has 1
            finish: failed: a task of `worker` needs 2 GPUs and the largest node has 1"#]],
    );
}

#[test]
fn after_the_end_only_late_grants_are_released() {
    check(
        "
        role worker 1
        up c1 worker
        exited c1 0
        uploaded c1
        exited c1 1
        ended c1 completed 1
        kill ada
        scale worker 3
        +10m
        granted c2 worker
        recovered c3
        asks
        deadline",
        expect![[r#"
            · the job started
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 1 worker
            tell c1: stop and upload
            release c1
            · worker:0 succeeded on `n1` (attempt 1)
            · the job is ending: succeeded
            · the job succeeded
            finish: succeeded
            [10m]
            release c2
            release c3
            asks: nothing
            next deadline: none"#]],
    );
}

#[test]
fn a_job_that_ends_while_awaiting_a_container_exit_releases_the_container() {
    check(
        "
        role worker 2
        up c1 worker
        up c2 worker
        exited c1 sig15 container
        kill ada
        uploaded c2",
        expect![[r#"
            · the job started
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 2 worker
            launch c2 worker:1
            tell c2: run worker:1 in round 1, attempt 1, of 2 worker
            · the job is ending: killed by ada
            release c1
            · worker:1 is stopped (attempt 1)
            tell c2: stop and upload
            release c2
            · the job was killed by ada
            finish: killed by ada"#]],
    );
}
