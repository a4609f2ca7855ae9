//! Attempts that never ran: no container was launched, or no agent could get ready.

use super::script::check;
use expect_test::expect;

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
            · the job started
            launch c1 worker:0
            · worker:0 could not run on its node: no such image on `n1` (attempt 1); retrying
            release c1
            launch c2 worker:0
            · worker:0 could not run on its node: no such image on `n1` (attempt 2); retrying
            release c2
            launch c3 worker:0
            · worker:0 could not run on its node: no such image on `n1` (attempt 3); retrying
            release c3
            launch c4 worker:0
            · worker:0 could not run on its node: no such image on `n1` (attempt 4); retrying
            release c4
            launch c5 worker:0
            · worker:0 could not run on its node: no such image on `n1` (attempt 5); retrying
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
fn a_failed_launch_after_an_agent_report_changes_nothing() {
    check(
        "
        role worker 1
        granted c1 worker
        ready c1
        launch-failed c1 the node did not answer
        states",
        expect![[r#"
            · the job started
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 1 worker
            worker:0 starting"#]],
    );
}

#[test]
fn repeated_setup_failures_of_an_agent_are_counted_once() {
    check(
        "
        role worker 1 limit=1
        granted c1 worker
        launched c1
        setup-failed c1 all ports are taken
        setup-failed c1 all ports are taken
        uploaded c1
        states",
        expect![[r#"
            · the job started
            launch c1 worker:0
            · worker:0 could not be set up: all ports are taken on `n1` (attempt 1); retrying
            tell c1: stop
            release c1
            worker:0 requested"#]],
    );
}

#[test]
fn a_node_caused_setup_failure_excludes_the_node_and_is_not_charged() {
    check(
        "
        role worker 1 limit=0
        nodes 4
        granted c1 worker
        launched c1
        node-fault c1 no GPU is free
        uploaded c1
        states",
        expect![[r#"
            · the job started
            launch c1 worker:0
            · worker:0 could not run on its node: no GPU is free on `n1` (attempt 1); retrying
            · node `n1` is excluded: worker:0 could not run on its node: no GPU is free
            tell c1: stop
            release c1
            worker:0 requested"#]],
    );
}
