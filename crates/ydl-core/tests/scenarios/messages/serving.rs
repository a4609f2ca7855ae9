//! Issues of serving roles.

use super::issues::check;
use expect_test::expect;
use ydl_core::{
    JobSpecBuilder, Span,
    spec::{
        Autoscale, Completion, Input, InputForm, Range, RestartScope, RoleSpec, Serve, UpdatePolicy,
    },
};

fn serve(builder: &mut JobSpecBuilder) -> &mut RoleSpec {
    let role = &mut builder.roles[0];
    role.completion = Completion::Service;
    role.serve = Some(Serve { replicas: Range { min: 0, max: 2 }, ..Serve::default() });
    role
}

#[test]
fn a_serving_role_may_start_without_replicas() {
    check(|builder| serve(builder).instances = 0, expect!["fine"]);
}

#[test]
fn replicas_start_restart_and_end_on_their_own() {
    check(
        |builder| {
            let role = serve(builder);
            role.instances = 3;
            role.restart.scope = RestartScope::Role;
            role.completion = Completion::All;
            role.elastic = Some(Range { min: 1, max: 3 });
            builder.gang.together = true;
        },
        expect![[r#"
            `roles.worker.instances`: `start` is 3, which is not between 0 and 2
            `roles.worker.instances`: role `worker` serves, so it cannot be elastic; hint: the range of a serving role is a limit of its replicas
            `gang`: the replicas of role `worker` start on their own; hint: leave `gang` out
            `roles.worker.restart.scope`: the replicas of role `worker` restart on their own; hint: set it to `task` in all roles
            `roles.worker.completion`: role `worker` serves until the job ends; hint: set it to `service`"#]],
    );
}

#[test]
fn a_serving_policy_is_possible() {
    check(
        |builder| {
            let role = serve(builder);
            role.tolerate = 1;
            role.serve = Some(Serve {
                replicas: Range { min: 3, max: 1 },
                within: Span(0),
                concurrency: 0,
                update: UpdatePolicy { surge: 0, unavailable: 0, ..UpdatePolicy::default() },
                autoscale: Some(Autoscale {
                    concurrency: 0,
                    panic: Span::minutes(2),
                    ..Autoscale::default()
                }),
                ..Serve::default()
            });
        },
        expect![[r#"
            `roles.worker.instances`: `3` to `1` is not a range of replicas
            `roles.worker.tolerate`: role `worker` replaces each replica that fails; hint: leave `tolerate` out
            `roles.worker.serve.update`: no replica could be replaced; hint: set `surge: 1`
            `roles.worker.serve.ready.within`: it must be more than 0
            `roles.worker.serve.concurrency`: it must be more than 0
            `roles.worker.serve.scale.concurrency`: it must be more than 0
            `roles.worker.serve.scale`: `panic` exceeds `window`; hint: 6s and 60s are usual"#]],
    );
}

#[test]
fn inputs_of_replicas_are_not_split() {
    check(
        |builder| {
            let name = serve(builder).name.clone();
            builder.inputs.push(Input {
                name: "model".into(),
                source: "/model".into(),
                form: InputForm::Split,
                roles: vec![name],
                allow_empty: false,
            });
        },
        expect![
            "`inputs.model`: its files are divided over the replicas of role `worker`; hint: give all files to every replica"
        ],
    );
}
