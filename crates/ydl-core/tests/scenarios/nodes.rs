//! Exclusion of nodes.

use super::script::check;
use expect_test::expect;

#[test]
fn a_node_is_excluded_after_several_failures_and_readmitted_later() {
    check(
        "
        blame failures=2 forgive=60s
        role worker 1 limit=9
        nodes 4
        up c1 worker n1
        exited c1 1
        uploaded c1
        asks
        up c2 worker n1
        exited c2 1
        uploaded c2
        asks
        granted c3 worker n1
        granted c4 worker n2
        +60s
        asks",
        expect![[r#"
            · the job started
            launch c1 worker:0
            tell c1: run worker:0 in round 1, attempt 1, of 1 worker
            · worker:0 exited with code 1 on `n1` (attempt 1); retrying
            tell c1: stop
            release c1
            asks: 1 × worker (1 GiB, 1 vcore)
            launch c2 worker:0
            tell c2: run worker:0 in round 1, attempt 2, of 1 worker
            · worker:0 exited with code 1 on `n1` (attempt 2); retrying
            · node `n1` is excluded: 2 programs failed there
            tell c2: stop
            release c2
            asks: 1 × worker (1 GiB, 1 vcore), not on n1
            release c3
            launch c4 worker:0
            [1m]
            · node `n1` is no longer excluded
            asks: nothing"#]],
    );
}

#[test]
fn a_node_fault_excludes_the_node_at_once() {
    check(
        "
        role worker 1
        nodes 3
        granted c1 worker n1
        launched c1
        ended c1 fault its disks are full
        asks",
        expect![[r#"
            · the job started
            launch c1 worker:0
            · worker:0 could not run on its node: its disks are full on `n1` (attempt 1); retrying
            · node `n1` is excluded: worker:0 could not run on its node: its disks are full
            asks: 1 × worker (1 GiB, 1 vcore), not on n1"#]],
    );
}

#[test]
fn the_only_node_is_never_excluded() {
    check(
        "
        role worker 1
        nodes 1
        granted c1 worker n1
        launched c1
        ended c1 fault its disks are full
        asks",
        expect![[r#"
            · the job started
            launch c1 worker:0
            · worker:0 could not run on its node: its disks are full on `n1` (attempt 1); retrying
            asks: 1 × worker (1 GiB, 1 vcore)"#]],
    );
}

#[test]
fn at_most_half_of_the_nodes_are_excluded() {
    check(
        "
        role worker 3
        nodes 3
        granted c1 worker n1
        granted c2 worker n2
        ended c1 fault disk, c2 fault disk
        asks",
        expect![[r#"
            · the job started
            launch c1 worker:0
            launch c2 worker:1
            · worker:0 could not run on its node: disk on `n1` (attempt 1); retrying
            · node `n1` is excluded: worker:0 could not run on its node: disk
            · worker:1 could not run on its node: disk on `n2` (attempt 1); retrying
            asks: 3 × worker (1 GiB, 1 vcore), not on n1"#]],
    );
}

#[test]
fn nodes_are_readmitted_when_the_cluster_shrinks() {
    check(
        "
        role worker 3
        nodes 4
        granted c1 worker n1
        granted c2 worker n2
        ended c1 fault disk
        +1s
        ended c2 fault disk
        asks
        nodes 2
        asks
        nodes 1
        asks",
        expect![[r#"
            · the job started
            launch c1 worker:0
            launch c2 worker:1
            · worker:0 could not run on its node: disk on `n1` (attempt 1); retrying
            · node `n1` is excluded: worker:0 could not run on its node: disk
            [1s]
            · worker:1 could not run on its node: disk on `n2` (attempt 1); retrying
            · node `n2` is excluded: worker:1 could not run on its node: disk
            asks: 3 × worker (1 GiB, 1 vcore), not on n1, not on n2
            · node `n1` is no longer excluded
            asks: 3 × worker (1 GiB, 1 vcore), not on n2
            · node `n2` is no longer excluded
            asks: 3 × worker (1 GiB, 1 vcore)"#]],
    );
}

#[test]
fn a_required_node_is_readmitted_and_not_excluded_again() {
    check(
        "
        role worker 1
        nodes 4
        granted c1 worker n1
        ended c1 fault disk
        reason
        nodes-required n1
        asks
        reason
        granted c2 worker n1
        ended c2 fault disk
        asks
        nodes-required
        granted c3 worker n1
        ended c3 fault disk
        asks",
        expect![[r#"
            · the job started
            launch c1 worker:0
            · worker:0 could not run on its node: disk on `n1` (attempt 1); retrying
            · node `n1` is excluded: worker:0 could not run on its node: disk
            reason: 0 tasks running; waiting: 1 × `worker` for a container; excluded nodes: `n1`
            · node `n1` is no longer excluded
            asks: 1 × worker (1 GiB, 1 vcore)
            reason: 0 tasks running; waiting: 1 × `worker` for a container
            launch c2 worker:0
            · worker:0 could not run on its node: disk on `n1` (attempt 2); retrying
            asks: 1 × worker (1 GiB, 1 vcore)
            launch c3 worker:0
            · worker:0 could not run on its node: disk on `n1` (attempt 3); retrying
            · node `n1` is excluded: worker:0 could not run on its node: disk
            asks: 1 × worker (1 GiB, 1 vcore), not on n1"#]],
    );
}
