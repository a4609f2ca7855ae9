//! Issues of elastic roles.

use super::issues::check;
use expect_test::expect;
use ydl_core::{
    Framework, JobSpecBuilder, RoleName,
    spec::{Completion, Input, InputForm, Range, RestartScope},
};

fn elastic(builder: &mut JobSpecBuilder, min: u32, max: u32) {
    builder.gang.together = true;
    let role = &mut builder.roles[0];
    role.restart.scope = RestartScope::Job;
    role.instances = max;
    role.elastic = Some(Range { min, max });
}

#[test]
fn two_elastic_roles_start_their_rounds_together() {
    let two = |builder: &mut JobSpecBuilder| {
        elastic(builder, 1, 2);
        let mut other = builder.roles[0].clone();
        other.name = RoleName::from("actor");
        builder.roles.push(other);
    };
    check(two, expect!["fine"]);
    check(
        |builder| {
            two(builder);
            builder.roles[1].restart.scope = RestartScope::Role;
        },
        expect![
            "`roles.actor.restart.scope`: the roles `actor` and `worker` are both elastic, and would wait for each other's tasks; hint: set it to `job`"
        ],
    );
}

#[test]
fn an_elastic_role_has_a_range_and_its_tasks_start_together() {
    check(|builder| elastic(builder, 1, 2), expect!["fine"]);
    check(
        |builder| elastic(builder, 3, 2),
        expect!["`roles.worker.instances`: `min` (3) exceeds `max` (2)"],
    );
    check(
        |builder| {
            elastic(builder, 0, 2);
            builder.roles[0].instances = 5;
        },
        expect![[r#"
            `roles.worker.instances`: a round of 0 tasks does nothing; hint: the minimum is `min: 1`
            `roles.worker.instances`: `start` is 5, which is not between 0 and 2"#]],
    );
    check(
        |builder| {
            elastic(builder, 1, 2);
            builder.gang.together = false;
            builder.roles[0].restart.scope = RestartScope::Task;
            builder.roles[0].completion = Completion::Any;
            builder.roles[0].tolerate = 1;
        },
        expect![[r#"
            `gang`: role `worker` is elastic, and its tasks do not start together; hint: set `gang: true`; tasks that start on their own need no range, `ydl scale` changes their number
            `roles.worker.restart.scope`: tasks of the elastic role `worker` cannot restart alone: a restart changes the members of the round; hint: set it to `job`
            `roles.worker.completion`: the elastic role `worker` is done when all members of its round are; hint: set it to `all` or `primary`
            `roles.worker.tolerate`: the elastic role `worker` tolerates missing tasks by its `min`; hint: leave `tolerate` out, and lower `min`"#]],
    );
    check(
        |builder| {
            elastic(builder, 1, 2);
            builder.inputs = vec![Input {
                name: "data".into(),
                source: "/data".into(),
                form: InputForm::Split,
                roles: Vec::new(),
                allow_empty: false,
            }];
        },
        expect![
            "`inputs.data`: its files are divided over the tasks of role `worker`, whose number changes; hint: give all files to every task, and let programs choose by `YDL_RANK` and `YDL_WORLD_SIZE`"
        ],
    );
    check(
        |builder| {
            elastic(builder, 1, 2);
            builder.framework = Framework::Xgboost;
        },
        expect![
            "`roles.worker.instances`: the number of XGBoost's workers cannot change while they run; hint: set `instances` to one number"
        ],
    );
}
