//! What follows the end of an attempt.

use super::script::check;
use expect_test::expect;

#[test]
fn a_failed_task_starts_again_alone_where_the_scope_is_the_task() {
    check(
        "
        role worker 2 limit=1
        up c1 worker
        up c2 worker n2
        started c1
        started c2
        exited c2 sig9
        order c2
        saved c2
        asks
        up c3 worker",
        expect![[r#"
            · the job began
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 2 worker
            launch c2 worker:1
            tell c2: run worker:1 in round 1, attempt 1, of 2 worker
            · worker:0 runs on `n1` (attempt 1)
            · worker:1 runs on `n2` (attempt 1)
            · worker:1 was killed by SIGKILL on `n2` (attempt 1); it starts again
            tell c2: stop
            order c2: stop
            release c2
            asks: 1 × worker (1 GiB, 1 vcore)
            launch c3 worker:1
            tell c3: run worker:1 in round 1, attempt 2, of 2 worker"#]],
    );
}

#[test]
fn a_failed_task_takes_its_role_with_it_where_the_scope_is_the_role() {
    check(
        "
        gang
        role worker 2 scope=role limit=1
        role server 1 service scope=role
        up c1 worker
        up c2 worker
        up c3 server
        started c1
        started c2
        started c3
        exited c2 1
        states
        ready c1
        saved c2
        up c4 worker",
        expect![[r#"
            · the job began
            launch c1 worker:0
            launch c2 worker:1
            launch c3 server:0
            · round 1 began with 3 tasks
            tell c1: run worker:0 in round 1, attempt 1, of 2 worker at 2 of 2 addresses, 1 server at 1 of 1 addresses
            tell c2: run worker:1 in round 1, attempt 1, of 2 worker at 2 of 2 addresses, 1 server at 1 of 1 addresses
            tell c3: run server:0 in round 1, attempt 1, of 2 worker at 2 of 2 addresses, 1 server at 1 of 1 addresses
            · worker:0 runs on `n1` (attempt 1)
            · worker:1 runs on `n1` (attempt 1)
            · server:0 runs on `n1` (attempt 1)
            · worker:1 exited with code 1 on `n1` (attempt 1); it starts again
            tell c2: stop
            · round 2 gathers 2 tasks because of worker:1
            · worker:0 is stopped (attempt 1)
            tell c1: wait as worker:0 for round 2
            worker:0 rewinding, worker:1 stopping, server:0 running
            release c2
            launch c4 worker:1
            · round 2 began with 2 tasks
            tell c1: run worker:0 in round 2, attempt 2, of 2 worker at 2 of 2 addresses, 1 server at 1 of 1 addresses
            tell c4: run worker:1 in round 2, attempt 2, of 2 worker at 2 of 2 addresses, 1 server at 1 of 1 addresses"#]],
    );
}

#[test]
fn a_failed_task_takes_the_job_with_it_where_the_scope_is_the_job() {
    check(
        "
        gang
        role worker 2 scope=job limit=1
        role server 1 service scope=job
        up c1 worker
        up c2 worker
        up c3 server
        started c1
        started c2
        started c3
        exited c2 sig11
        ready c1
        ready c3
        saved c2
        up c4 worker",
        expect![[r#"
            · the job began
            launch c1 worker:0
            launch c2 worker:1
            launch c3 server:0
            · round 1 began with 3 tasks
            tell c1: run worker:0 in round 1, attempt 1, of 2 worker at 2 of 2 addresses, 1 server at 1 of 1 addresses
            tell c2: run worker:1 in round 1, attempt 1, of 2 worker at 2 of 2 addresses, 1 server at 1 of 1 addresses
            tell c3: run server:0 in round 1, attempt 1, of 2 worker at 2 of 2 addresses, 1 server at 1 of 1 addresses
            · worker:0 runs on `n1` (attempt 1)
            · worker:1 runs on `n1` (attempt 1)
            · server:0 runs on `n1` (attempt 1)
            · worker:1 was killed by SIGSEGV on `n1` (attempt 1); it starts again
            tell c2: stop
            · round 2 gathers 3 tasks because of worker:1
            · worker:0 is stopped (attempt 1)
            tell c1: wait as worker:0 for round 2
            · server:0 is stopped (attempt 1)
            tell c3: wait as server:0 for round 2
            release c2
            launch c4 worker:1
            · round 2 began with 3 tasks
            tell c1: run worker:0 in round 2, attempt 2, of 2 worker at 2 of 2 addresses, 1 server at 1 of 1 addresses
            tell c4: run worker:1 in round 2, attempt 2, of 2 worker at 2 of 2 addresses, 1 server at 1 of 1 addresses
            tell c3: run server:0 in round 2, attempt 2, of 2 worker at 2 of 2 addresses, 1 server at 1 of 1 addresses"#]],
    );
}

#[test]
fn a_worker_that_had_succeeded_runs_again_in_a_new_round() {
    check(
        "
        gang
        role worker 2 scope=job limit=1
        up c1 worker
        up c2 worker
        started c1
        started c2
        exited c1 0
        saved c1
        states
        exited c2 1
        saved c2
        asks
        states",
        expect![[r#"
            · the job began
            launch c1 worker:0
            launch c2 worker:1
            · round 1 began with 2 tasks
            tell c1: run worker:0 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
            tell c2: run worker:1 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
            · worker:0 runs on `n1` (attempt 1)
            · worker:1 runs on `n1` (attempt 1)
            tell c1: stop and save
            release c1
            · worker:0 succeeded on `n1` (attempt 1)
            worker:0 succeeded, worker:1 running
            · worker:1 exited with code 1 on `n1` (attempt 1); it starts again
            tell c2: stop
            · round 2 gathers 2 tasks because of worker:1
            release c2
            asks: 2 × worker (1 GiB, 1 vcore)
            worker:0 asked, worker:1 asked"#]],
    );
}

#[test]
fn a_failure_beyond_the_limit_fails_the_job_and_the_cause_names_task_signal_and_node() {
    check(
        "
        gang
        role worker 2 scope=job limit=1
        up c1 worker n1
        up c2 worker n2
        started c1
        started c2
        exited c1 1
        saved c1
        ready c2
        up c3 worker n3
        started c2
        started c3
        exited c2 sig9
        saved c3
        saved c2
        why",
        expect![[r#"
            · the job began
            launch c1 worker:0
            launch c2 worker:1
            · round 1 began with 2 tasks
            tell c1: run worker:0 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
            tell c2: run worker:1 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
            · worker:0 runs on `n1` (attempt 1)
            · worker:1 runs on `n2` (attempt 1)
            · worker:0 exited with code 1 on `n1` (attempt 1); it starts again
            tell c1: stop
            · round 2 gathers 2 tasks because of worker:0
            · worker:1 is stopped (attempt 1)
            tell c2: wait as worker:1 for round 2
            release c1
            launch c3 worker:0
            · round 2 began with 2 tasks
            tell c3: run worker:0 in round 2, attempt 2, of 2 worker at 2 of 2 addresses
            tell c2: run worker:1 in round 2, attempt 2, of 2 worker at 2 of 2 addresses
            · worker:1 runs on `n2` (attempt 2)
            · worker:0 runs on `n3` (attempt 2)
            · worker:1 was killed by SIGKILL on `n2` (attempt 2); the job fails
            tell c2: stop and save
            · the job is ending: failed: worker:1 was killed by SIGKILL on `n2` (attempt 2)
            · worker:0 is stopped (attempt 2)
            tell c3: stop and save
            release c3
            release c2
            · the job failed: worker:1 was killed by SIGKILL on `n2` (attempt 2)
            finish: failed: worker:1 was killed by SIGKILL on `n2` (attempt 2)
            why: the job failed: worker:1 was killed by SIGKILL on `n2` (attempt 2)"#]],
    );
}

#[test]
fn a_program_that_cannot_be_started_fails_the_job_with_the_reason() {
    check(
        "
        role worker 1
        up c1 worker
        exited c1 not-started
        saved c1",
        expect![[r#"
            · the job began
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 1 worker
            · worker:0 could not be started: `trian.py` was not found on `n1` (attempt 1); the job fails
            tell c1: stop and save
            · the job is ending: failed: worker:0 could not be started: `trian.py` was not found on `n1` (attempt 1)
            release c1
            · the job failed: worker:0 could not be started: `trian.py` was not found on `n1` (attempt 1)
            finish: failed: worker:0 could not be started: `trian.py` was not found on `n1` (attempt 1)"#]],
    );
}

#[test]
fn tolerated_failures_do_not_fail_the_job() {
    check(
        "
        role worker 3 tolerate=1
        up c1 worker
        up c2 worker
        up c3 worker
        exited c1 1
        saved c1
        exited c2 0
        saved c2
        states
        exited c3 0
        saved c3",
        expect![[r#"
            · the job began
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 3 worker
            launch c2 worker:1
            tell c2: run worker:1 in round 1, attempt 1, of 3 worker
            launch c3 worker:2
            tell c3: run worker:2 in round 1, attempt 1, of 3 worker
            · worker:0 exited with code 1 on `n1` (attempt 1); the job goes on without it
            tell c1: stop and save
            release c1
            tell c2: stop and save
            release c2
            · worker:1 succeeded on `n1` (attempt 1)
            worker:0 failed, worker:1 succeeded, worker:2 starting
            tell c3: stop and save
            release c3
            · worker:2 succeeded on `n1` (attempt 1)
            · the job is ending: succeeded
            · the job succeeded
            finish: succeeded"#]],
    );
}

#[test]
fn one_failure_more_than_tolerated_fails_the_job() {
    check(
        "
        role worker 3 tolerate=1
        up c1 worker
        up c2 worker
        up c3 worker
        exited c1 1
        exited c2 1
        saved c1
        saved c2
        saved c3",
        expect![[r#"
            · the job began
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 3 worker
            launch c2 worker:1
            tell c2: run worker:1 in round 1, attempt 1, of 3 worker
            launch c3 worker:2
            tell c3: run worker:2 in round 1, attempt 1, of 3 worker
            · worker:0 exited with code 1 on `n1` (attempt 1); the job goes on without it
            tell c1: stop and save
            · worker:1 exited with code 1 on `n1` (attempt 1); the job fails
            tell c2: stop and save
            · the job is ending: failed: worker:1 exited with code 1 on `n1` (attempt 1)
            · worker:2 is stopped (attempt 1)
            tell c3: stop and save
            release c1
            release c2
            release c3
            · the job failed: worker:1 exited with code 1 on `n1` (attempt 1)
            finish: failed: worker:1 exited with code 1 on `n1` (attempt 1)"#]],
    );
}

#[test]
fn failures_older_than_the_window_are_forgotten() {
    check(
        "
        role worker 1 limit=1 window=60s
        up c1 worker
        exited c1 1
        saved c1
        up c2 worker
        +70s
        exited c2 1
        saved c2
        up c3 worker
        +10s
        exited c3 1",
        expect![[r#"
            · the job began
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 1 worker
            · worker:0 exited with code 1 on `n1` (attempt 1); it starts again
            tell c1: stop
            release c1
            launch c2 worker:0
            tell c2: run worker:0 in round 1, attempt 2, of 1 worker
            [1m 10s]
            · worker:0 exited with code 1 on `n1` (attempt 2); it starts again
            tell c2: stop
            release c2
            launch c3 worker:0
            tell c3: run worker:0 in round 1, attempt 3, of 1 worker
            [1m 20s]
            · worker:0 exited with code 1 on `n1` (attempt 3); the job fails
            tell c3: stop and save
            · the job is ending: failed: worker:0 exited with code 1 on `n1` (attempt 3)"#]],
    );
}

#[test]
fn the_wait_before_the_next_attempt_doubles_up_to_its_most() {
    check(
        "
        role worker 1 limit=9 backoff=2s..5s
        up c1 worker
        exited c1 1
        saved c1
        asks
        +2s
        asks
        up c2 worker
        exited c2 1
        saved c2
        deadline
        +4s
        up c3 worker
        exited c3 1
        saved c3
        deadline",
        expect![[r#"
            · the job began
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 1 worker
            · worker:0 exited with code 1 on `n1` (attempt 1); it starts again in 2s
            tell c1: stop
            release c1
            asks: nothing
            [2s]
            asks: 1 × worker (1 GiB, 1 vcore)
            launch c2 worker:0
            tell c2: run worker:0 in round 1, attempt 2, of 1 worker
            · worker:0 exited with code 1 on `n1` (attempt 2); it starts again in 4s
            tell c2: stop
            release c2
            next deadline: 6s
            [6s]
            launch c3 worker:0
            tell c3: run worker:0 in round 1, attempt 3, of 1 worker
            · worker:0 exited with code 1 on `n1` (attempt 3); it starts again in 5s
            tell c3: stop
            release c3
            next deadline: 11s"#]],
    );
}

#[test]
fn a_task_killed_for_its_memory_asks_for_more() {
    check(
        "
        role worker 1 limit=3 grows=50%..2000
        up c1 worker
        started c1
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
            · the job began
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 1 worker
            · worker:0 runs on `n1` (attempt 1)
            · worker:0 was killed: it used 1100 of 1024 MiB memory on `n1` (attempt 1); it starts again
            · worker:0 asks for 1.5 GiB from now on
            asks: 1 × worker (1.5 GiB, 1 vcore)
            release c2
            launch c3 worker:0
            tell c3: run worker:0 in round 1, attempt 2, of 1 worker
            · worker:0 runs on `n1` (attempt 2)
            · worker:0 was killed: it used 1600 of 1536 MiB memory on `n1` (attempt 2); it starts again
            · worker:0 asks for 1.9 GiB from now on
            asks: 1 × worker (1.9 GiB, 1 vcore)"#]],
    );
}

#[test]
fn a_kill_for_memory_is_told_with_figures() {
    check(
        "
        role worker 1
        up c1 worker n17
        started c1
        ended c1 memory 4300 4096",
        expect![[r#"
            · the job began
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
fn a_program_killed_with_its_container_is_judged_by_the_containers_end() {
    check(
        "
        role worker 1 limit=1
        up c1 worker
        started c1
        exited c1 sig15 container
        states
        ended c1 memory 1100 1024",
        expect![[r#"
            · the job began
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 1 worker
            · worker:0 runs on `n1` (attempt 1)
            worker:0 stopping
            · worker:0 was killed: it used 1100 of 1024 MiB memory on `n1` (attempt 1); it starts again"#]],
    );
}

#[test]
fn a_program_killed_with_its_container_is_judged_by_itself_when_the_container_just_ends() {
    check(
        "
        role worker 1 limit=1
        up c1 worker
        started c1
        exited c1 sig15 container
        ended c1 completed 143",
        expect![[r#"
            · the job began
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 1 worker
            · worker:0 runs on `n1` (attempt 1)
            · worker:0 was killed by SIGTERM on `n1` (attempt 1); it starts again"#]],
    );
}

#[test]
fn a_program_killed_with_its_container_is_not_blamed_when_nobody_says_why() {
    check(
        "
        deadlines grace=5s stop=5s
        role worker 1 limit=1
        up c1 worker
        started c1
        exited c1 sig15 container
        +10s",
        expect![[r#"
            · the job began
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 1 worker
            · worker:0 runs on `n1` (attempt 1)
            [10s]
            · worker:0 was lost with its container on `n1` (attempt 1); it starts again
            release c1"#]],
    );
}

#[test]
fn preemption_and_lost_nodes_are_not_counted() {
    check(
        "
        deadlines silence=10s
        role worker 1
        up c1 worker
        started c1
        ended c1 preempted
        up c2 worker
        started c2
        quiet c2
        ended c2 lost
        +60s
        up c3 worker
        started c3
        ended c3 released
        asks",
        expect![[r#"
            · the job began
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 1 worker
            · worker:0 runs on `n1` (attempt 1)
            · worker:0 was preempted by the cluster on `n1` (attempt 1); it starts again
            launch c2 worker:0
            tell c2: run worker:0 in round 1, attempt 2, of 1 worker
            · worker:0 runs on `n1` (attempt 2)
            · worker:0 was lost with its container on `n1` (attempt 2); it starts again
            release c2
            [1m]
            launch c3 worker:0
            tell c3: run worker:0 in round 1, attempt 3, of 1 worker
            · worker:0 runs on `n1` (attempt 3)
            · worker:0 was lost with its container on `n1` (attempt 3); it starts again
            asks: 1 × worker (1 GiB, 1 vcore)"#]],
    );
}

#[test]
fn a_warned_container_is_left_with_grace_before_it_is_taken() {
    check(
        "
        role worker 1
        up c1 worker
        started c1
        warned c1
        order c1
        saved c1
        asks",
        expect![[r#"
            · the job began
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 1 worker
            · worker:0 runs on `n1` (attempt 1)
            · worker:0 was preempted by the cluster on `n1` (attempt 1); it starts again
            tell c1: stop
            order c1: stop
            release c1
            asks: 1 × worker (1 GiB, 1 vcore)"#]],
    );
}

#[test]
fn an_agent_that_dies_without_a_word_counts_as_a_failure() {
    check(
        "
        role worker 1
        up c1 worker
        started c1
        ended c1 completed 137",
        expect![[r#"
            · the job began
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 1 worker
            · worker:0 runs on `n1` (attempt 1)
            · worker:0 lost its agent, which was killed by SIGKILL on `n1` (attempt 1); the job fails
            · the job is ending: failed: worker:0 lost its agent, which was killed by SIGKILL on `n1` (attempt 1)
            · the job failed: worker:0 lost its agent, which was killed by SIGKILL on `n1` (attempt 1)
            finish: failed: worker:0 lost its agent, which was killed by SIGKILL on `n1` (attempt 1)"#]],
    );
}

#[test]
fn a_failed_launch_is_not_counted_until_it_is_the_sixth_in_a_row() {
    check(
        "
        role worker 1
        granted c1 worker
        launch-failed c1 no such image
        granted c2 worker
        launch-failed c2 no such image
        granted c3 worker
        launch-failed c3 no such image
        granted c4 worker
        launch-failed c4 no such image
        granted c5 worker
        launch-failed c5 no such image
        granted c6 worker
        launch-failed c6 no such image",
        expect![[r#"
            · the job began
            launch c1 worker:0
            · worker:0 could not run on its node: no such image on `n1` (attempt 1); it starts again
            release c1
            launch c2 worker:0
            · worker:0 could not run on its node: no such image on `n1` (attempt 2); it starts again
            release c2
            launch c3 worker:0
            · worker:0 could not run on its node: no such image on `n1` (attempt 3); it starts again
            release c3
            launch c4 worker:0
            · worker:0 could not run on its node: no such image on `n1` (attempt 4); it starts again
            release c4
            launch c5 worker:0
            · worker:0 could not run on its node: no such image on `n1` (attempt 5); it starts again
            release c5
            launch c6 worker:0
            · worker:0 could not run on its node: no such image on `n1` (attempt 6); the job fails
            release c6
            · the job is ending: failed: worker:0 could not run on its node: no such image on `n1` (attempt 6)
            · the job failed: worker:0 could not run on its node: no such image on `n1` (attempt 6)
            finish: failed: worker:0 could not run on its node: no such image on `n1` (attempt 6)"#]],
    );
}

#[test]
fn a_failed_launch_of_a_container_whose_agent_was_heard_changes_nothing() {
    check(
        "
        role worker 1
        granted c1 worker
        ready c1
        launch-failed c1 the node did not answer
        states",
        expect![[r#"
            · the job began
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 1 worker
            worker:0 starting"#]],
    );
}

#[test]
fn an_agent_that_cannot_get_ready_is_counted_once_however_often_it_says_so() {
    check(
        "
        role worker 1 limit=1
        granted c1 worker
        launched c1
        unready c1 all ports are taken
        unready c1 all ports are taken
        saved c1
        states",
        expect![[r#"
            · the job began
            launch c1 worker:0
            · worker:0 could not get ready: all ports are taken on `n1` (attempt 1); it starts again
            tell c1: stop
            release c1
            worker:0 asked"#]],
    );
}

#[test]
fn a_node_on_which_an_agent_cannot_get_ready_is_avoided_and_the_task_is_not_blamed() {
    check(
        "
        role worker 1 limit=0
        nodes 4
        granted c1 worker
        launched c1
        unfit c1 no GPU is free
        saved c1
        states",
        expect![[r#"
            · the job began
            launch c1 worker:0
            · worker:0 could not run on its node: no GPU is free on `n1` (attempt 1); it starts again
            · node `n1` is avoided for a while: worker:0 could not run on its node: no GPU is free
            tell c1: stop
            release c1
            worker:0 asked"#]],
    );
}

#[test]
fn a_task_that_never_ran_does_not_disturb_those_who_run() {
    check(
        "
        role worker 2 scope=role limit=1
        up c1 worker
        started c1
        granted c2 worker
        launch-failed c2 no disk
        states",
        expect![[r#"
            · the job began
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 2 worker
            · worker:0 runs on `n1` (attempt 1)
            launch c2 worker:1
            · worker:1 could not run on its node: no disk on `n1` (attempt 1); it starts again
            release c2
            worker:0 running, worker:1 asked"#]],
    );
}

#[test]
fn a_batch_of_ended_containers_is_taken_whole() {
    check(
        "
        role worker 3
        up c1 worker
        up c2 worker
        up c3 worker
        ended c1 preempted, c2 preempted, c3 preempted
        asks",
        expect![[r#"
            · the job began
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 3 worker
            launch c2 worker:1
            tell c2: run worker:1 in round 1, attempt 1, of 3 worker
            launch c3 worker:2
            tell c3: run worker:2 in round 1, attempt 1, of 3 worker
            · worker:0 was preempted by the cluster on `n1` (attempt 1); it starts again
            · worker:1 was preempted by the cluster on `n1` (attempt 1); it starts again
            · worker:2 was preempted by the cluster on `n1` (attempt 1); it starts again
            asks: 3 × worker (1 GiB, 1 vcore)"#]],
    );
}

#[test]
fn another_takes_the_place_only_when_the_old_program_is_surely_gone() {
    check(
        "
        deadlines silence=30s grace=10s stop=20s
        role worker 1 limit=1
        up c1 worker
        started c1
        quiet c1
        +30s
        states
        asks
        +29s
        asks
        +1s
        asks",
        expect![[r#"
            · the job began
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 1 worker
            · worker:0 runs on `n1` (attempt 1)
            [30s]
            · worker:0 was not heard of for 30s on `n1` (attempt 1); it starts again
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
fn an_agent_on_a_lost_node_that_still_answers_is_told_to_stop() {
    check(
        "
        role worker 1
        up c1 worker
        started c1
        ended c1 lost
        order c1
        asks
        saved c1
        asks",
        expect![[r#"
            · the job began
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 1 worker
            · worker:0 runs on `n1` (attempt 1)
            · worker:0 was lost with its container on `n1` (attempt 1); it starts again
            tell c1: stop
            order c1: stop
            asks: nothing
            release c1
            asks: 1 × worker (1 GiB, 1 vcore)"#]],
    );
}

#[test]
fn a_port_taken_by_a_stranger_repeats_the_round_whatever_the_scope_and_uses_up_no_restart() {
    check(
        "
        gang
        role worker 2 scope=task limit=0
        up c1 worker
        up c2 worker
        started c1
        started c2
        exited c1 1 port=20001
        saved c1
        exited c2 sig15 round=1",
        expect![[r#"
            · the job began
            launch c1 worker:0
            launch c2 worker:1
            · round 1 began with 2 tasks
            tell c1: run worker:0 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
            tell c2: run worker:1 in round 1, attempt 1, of 2 worker at 2 of 2 addresses
            · worker:0 runs on `n1` (attempt 1)
            · worker:1 runs on `n1` (attempt 1)
            · worker:0 failed when somebody else had taken its port 20001 on `n1` (attempt 1); it starts again
            tell c1: stop
            · round 2 gathers 2 tasks because of worker:0
            · worker:1 is stopped (attempt 1)
            tell c2: wait as worker:1 for round 2
            release c1"#]],
    );
}

#[test]
fn a_newcomer_whose_peers_have_changed_before_it_could_join_uses_up_no_restart() {
    check(
        "
        gang settle=1s told
        role worker 1..2:1 scope=job limit=0
        up c1 worker
        started c1
        scale worker 2
        up c2 worker
        +1s
        started c2
        exited c2 1 outdated
        saved c2
        +1m
        asks",
        expect![[r#"
            · the job began
            launch c1 worker:0
            · round 1 began with 1 task
            tell c1: run worker:0 in round 1, attempt 1, of 1 worker at 1 of 1 addresses
            · worker:0 runs on `n1` (attempt 1)
            · role `worker` goes from 1 to 2
            launch c2 worker:1
            · round 1 goes on with 2 tasks
            changed: 2 worker at 2 of 2 addresses
            tell c2: run worker:1 in round 2, attempt 1, of 2 worker at 2 of 2 addresses
            [1s]
            · worker:1 runs on `n1` (attempt 1)
            · worker:1 came too late to join its peers on `n1` (attempt 1); it starts again
            tell c2: stop
            · round 1 goes on with 1 task
            changed: 1 worker at 1 of 1 addresses
            release c2
            [1m 1s]
            asks: 1 × worker (1 GiB, 1 vcore)"#]],
    );
}
