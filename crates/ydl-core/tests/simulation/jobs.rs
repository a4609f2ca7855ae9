//! The jobs that a seed picks: their roles and policies.

use super::{builder::builder as plain, random::Random};
use ydl_core::{
    Framework, JobSpec, JobSpecBuilder, Span,
    spec::{
        Backoff, Completion, Gang, Input, InputForm, MemoryGrowth, NodeExclusion, Output, Range,
        ResizePolicy, Restart, RestartScope, RoleSpec, Serve, Timeouts, UpdatePolicy,
    },
};

fn seconds(random: &mut Random, low: u64, high: u64) -> Span {
    Span::seconds(random.from(low, high))
}

/// A job of one to three roles.
pub fn spec(random: &mut Random, calm: bool) -> JobSpec {
    let together = random.percent(50);
    let count = random.from(1, 3) as usize;
    let scopes = [RestartScope::Task, RestartScope::Role, RestartScope::Job];
    let shared = *random.pick(&scopes);
    let mixed = random.percent(45);
    let large = random.percent(2);
    let mut roles = Vec::new();
    for (at, name) in ["worker", "server", "chief"].iter().enumerate().take(count) {
        let scope = if mixed { *random.pick(&scopes) } else { shared };
        let most = if large { 15 } else { 4 - count as u64 / 2 };
        let instances = random.from(1, most) as u32;
        let completion = match (at, random.below(10)) {
            (0, 0..=6) | (2, 0..=3) => Completion::All,
            (0, 7) | (_, 9) => Completion::Any,
            (0, 8) | (2, 4..=6) => Completion::Primary,
            (1, 8) => Completion::All,
            (1, 6..=7) => Completion::Follows,
            _ => Completion::Service,
        };
        roles.push(role(random, name, instances, scope, completion));
    }
    let deadlines = Timeouts {
        allocation: seconds(random, 40, 90),
        launch: seconds(random, 6, 15),
        join: seconds(random, 6, 15),
        fetch: Span::seconds(10),
        start: seconds(random, 6, 15),
        run: (!calm && random.percent(10)).then(|| seconds(random, 60, 300)),
        follow: Span::seconds(30),
        heartbeat: seconds(random, 5, 20),
        grace: seconds(random, 1, 4),
        stop: seconds(random, 3, 6),
        upload: seconds(random, 4, 10),
    };
    let outputs = random.percent(40).then(|| Output::new("model/", "/out"));
    // Some agents are late because their data is; that some jobs have any follows from what was drawn already.
    let inputs = outputs.as_ref().map(|_| Input {
        name: "data".into(),
        source: "/data".into(),
        form: InputForm::Copy,
        roles: Vec::new(),
        allow_empty: false,
    });
    let builder = JobSpecBuilder {
        name: "simulated".into(),
        inputs: inputs.into_iter().collect(),
        roles,
        outputs: outputs.into_iter().collect(),
        gang: Gang {
            together,
            hold: seconds(random, 8, 20),
            retries: random.below(3) as u32,
            backoff: Backoff { initial: Span::seconds(2), max: Span::seconds(10) },
            settle: Span::seconds(2),
            resize: Default::default(),
        },
        timeouts: deadlines,
        node_exclusion: NodeExclusion {
            failures: random.from(1, 3) as u32,
            timeout: seconds(random, 5, 60),
            max_nodes: 2,
        },
        ..plain(Framework::None, &[])
    };
    builder.build().expect("a simulated job is valid")
}

/// A job whose only role serves.
pub fn serving(random: &mut Random) -> JobSpec {
    let mut builder = JobSpecBuilder::from(spec(random, false));
    let max = random.from(2, 5) as u32;
    let min = random.below(2) as u32;
    let instances = random.from(u64::from(min.max(1)), u64::from(max)) as u32;
    let (surge, unavailable) = *random.pick(&[(1, 0), (1, 0), (2, 0), (1, 1), (0, 1), (2, 1)]);
    let server = role(random, "server", instances, RestartScope::Task, Completion::Service);
    builder.roles = vec![RoleSpec {
        tolerate: 0,
        serve: Some(Serve {
            replicas: Range { min, max },
            within: seconds(random, 10, 30),
            drain: seconds(random, 2, 8),
            update: UpdatePolicy { surge, unavailable, watch: seconds(random, 3, 10), errors: 1 },
            orphan: None,
            ..Serve::default()
        }),
        ..server
    }];
    builder.gang.together = false;
    builder.outputs = Vec::new();
    builder.timeouts.run = None;
    builder.build().expect("a simulated job is valid")
}

/// Some roles whose tasks start on their own begin after others.
pub fn ordered(spec: JobSpec, random: &mut Random) -> JobSpec {
    let mut builder = JobSpecBuilder::from(spec);
    if builder.gang.together || builder.roles.len() < 2 || random.percent(60) {
        return builder.build().expect("a simulated job is valid");
    }
    let mut names: Vec<_> = builder.roles.iter().map(|role| role.name.clone()).collect();
    if random.percent(50) {
        names.reverse();
    }
    for role in &mut builder.roles {
        if role.restart.scope == RestartScope::Job {
            role.restart.scope = RestartScope::Role;
        }
        let before = names.iter().take_while(|name| **name != role.name);
        role.depends_on = before.filter(|_| random.percent(70)).cloned().collect();
    }
    builder.build().expect("a simulated job is valid")
}

/// Some jobs have what stands beside them. There is not always room for it.
pub fn beside(spec: JobSpec, random: &mut Random) -> JobSpec {
    let mut builder = JobSpecBuilder::from(spec);
    if random.percent(25) {
        let scopes = [RestartScope::Task, RestartScope::Role, RestartScope::Job];
        let ordered = builder.roles.iter().any(|role| !role.depends_on.is_empty());
        let scope = match ordered {
            true => RestartScope::Task,
            false => *random.pick(&scopes),
        };
        let instances = random.from(1, 2) as u32;
        let board = role(random, "board", instances, scope, Completion::Sidecar);
        builder.roles.push(RoleSpec { tolerate: 0, ..board });
    }
    builder.build().expect("a simulated job is valid")
}

/// Some gangs have roles whose tasks come and go.
pub fn elastic(spec: JobSpec, bereaved: bool, random: &mut Random) -> JobSpec {
    let mut builder = JobSpecBuilder::from(spec);
    builder.gang.settle = match random.percent(40) {
        true => seconds(random, 10, 30),
        false => seconds(random, 1, 6),
    };
    if !builder.gang.together || random.percent(40) {
        return builder.build().expect("a simulated job is valid");
    }
    for role in &mut builder.roles {
        // More tasks that end next to an elastic role, and earlier.
        if role.completion == Completion::Service && random.percent(40) {
            role.completion = Completion::All;
            role.tolerate = 0;
            continue;
        }
        let done = matches!(role.completion, Completion::All | Completion::Primary);
        if !done || role.tolerate > 0 || random.percent(30) {
            continue;
        }
        if role.restart.scope == RestartScope::Task {
            role.restart.scope = RestartScope::Job;
        }
        if bereaved {
            // One failure at a time is counted, or doubted, until its cause is known.
            role.restart.limit = random.below(2) as u32;
            role.restart.window = None;
        }
        role.instances += random.below(3) as u32;
        role.elastic = Some(Range {
            min: random.from(1, u64::from(role.instances)) as u32,
            max: role.instances + random.below(3) as u32,
        });
    }
    // Two of them begin their rounds together.
    let elastic = |role: &&mut RoleSpec| role.elastic.is_some();
    if builder.roles.iter_mut().filter(elastic).count() > 1 {
        for role in builder.roles.iter_mut().filter(elastic) {
            role.restart.scope = RestartScope::Job;
        }
    }
    if random.percent(40) {
        builder.gang.resize = ResizePolicy::Notify;
        if random.percent(50) {
            builder.outputs = vec![Output::new("model/", "/out")];
        }
        for role in &mut builder.roles {
            if let Some(range) = role.elastic.as_mut().filter(|_| random.percent(50)) {
                range.min = (role.instances - 1).max(1);
            }
        }
    }
    builder.build().expect("a simulated job is valid")
}

fn role(
    random: &mut Random,
    name: &str,
    instances: u32,
    scope: RestartScope,
    completion: Completion,
) -> RoleSpec {
    let tolerates = random.percent(15);
    let mut roles = plain(Framework::None, &[(name, instances)]).roles;
    RoleSpec {
        restart: Restart {
            scope,
            limit: random.below(5) as u32,
            backoff: Backoff { initial: Span(random.below(3) * 500), max: Span::seconds(4) },
            window: random.percent(30).then(|| seconds(random, 10, 40)),
        },
        completion,
        tolerate: if tolerates { random.below(u64::from(instances)) as u32 } else { 0 },
        memory_growth: random.percent(30).then_some(MemoryGrowth { percent: 50, max_mib: 4_000 }),
        ..roles.remove(0)
    }
}
