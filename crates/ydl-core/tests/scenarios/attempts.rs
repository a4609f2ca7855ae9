//! Current attempts of tasks, and attempts of the programs in containers.

use super::script::check;
use expect_test::expect;

#[test]
fn an_ended_attempt_is_not_the_current_attempt_of_its_task() {
    check(
        "
        role worker 1 limit=1
        attempts worker:0 c1
        attempts server:0 c1
        up c1 worker
        started c1
        attempts worker:0 c1
        exited c1 sig9
        attempts worker:0 c1
        uploaded c1
        attempts worker:0 c1
        up c2 worker
        started c2
        attempts worker:0 c2
        exited c2 0
        uploaded c2
        attempts worker:0 c2",
        expect![[r#"
            · the job started
            worker:0 is at 1, c1 has none
            server:0 is at none, c1 has none
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 1 worker
            · worker:0 runs on `n1` (attempt 1)
            worker:0 is at 1, c1 has 1
            · worker:0 was killed by SIGKILL on `n1` (attempt 1); retrying
            tell c1: stop
            worker:0 is at none, c1 has 1
            release c1
            worker:0 is at 2, c1 has none
            launch c2 worker:0
            tell c2: run worker:0 in round 1, attempt 2, of 1 worker
            · worker:0 runs on `n1` (attempt 2)
            worker:0 is at 2, c2 has 2
            tell c2: stop and upload
            release c2
            · worker:0 succeeded on `n1` (attempt 2)
            · the job is ending: succeeded
            · the job succeeded
            finish: succeeded
            worker:0 is at 2, c2 has none"#]],
    );
}

#[test]
fn a_program_stopped_for_a_new_round_belongs_to_the_previous_attempt() {
    check(
        "
        gang
        role worker 2 scope=job limit=1
        up c1 worker
        up c2 worker
        started c1
        started c2
        exited c2 sig9
        attempts worker:0 c1
        ready c1
        attempts worker:0 c1",
        expect![[r#"
            · the job started
            launch c1 worker:0
            launch c2 worker:1
            · round 1 started with 2 tasks
            tell c1: run worker:0 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
            tell c2: run worker:1 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
            · worker:0 runs on `n1` (attempt 1)
            · worker:1 runs on `n1` (attempt 1)
            · worker:1 was killed by SIGKILL on `n1` (attempt 1); retrying
            tell c2: stop
            · round 2 restarts with 2 tasks: worker:1 ended
            · worker:0 is stopped (attempt 1)
            tell c1: wait as worker:0 for round 2
            worker:0 is at 2, c1 has 1
            worker:0 is at 2, c1 has 1"#]],
    );
}

#[test]
fn a_removed_task_has_no_current_attempt() {
    check(
        "
        role worker 2
        up c1 worker
        up c2 worker
        started c1
        started c2
        scale worker 1
        attempts worker:1 c2
        uploaded c2
        attempts worker:1 c2
        scale worker 2
        attempts worker:1 c2",
        expect![[r#"
            · the job started
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 2 worker
            launch c2 worker:1
            tell c2: run worker:1 in round 1, attempt 1, of 2 worker
            · worker:0 runs on `n1` (attempt 1)
            · worker:1 runs on `n1` (attempt 1)
            · role `worker` scaled from 2 to 1
            · worker:1 is stopped (attempt 1)
            tell c2: stop and upload
            worker:1 is at 1, c2 has 1
            release c2
            worker:1 is at none, c2 has none
            · role `worker` scaled from 1 to 2
            worker:1 is at 2, c2 has none"#]],
    );
}
