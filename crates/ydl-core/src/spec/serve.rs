//! Serving policy of a role, and its validation.

use super::{
    Command, Completion, Environment, Input, JobSpecBuilder, Range, RestartScope, RoleSpec,
    validate::SpecIssues,
};
use crate::time::Span;
use alloc::{borrow::ToOwned, collections::BTreeMap, format, string::String, vec::Vec};
use serde::{Deserialize, Serialize};

/// Serving policy of a role whose tasks are replicas behind a gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Serve {
    /// Protocol of the replicas.
    pub protocol: ServeProtocol,
    /// Limits of the number of replicas.
    pub replicas: Range,
    /// Time from the start of a replica's program until it serves.
    pub within: Span,
    /// Maximum time for the requests of a replica to end before it is stopped.
    pub drain: Span,
    /// Number of requests that a replica handles at once. The others wait in the gateway.
    pub concurrency: u32,
    /// Update policy.
    pub update: UpdatePolicy,
    /// Autoscaling policy; without one only requests change the number of replicas.
    pub autoscale: Option<Autoscale>,
    /// Time for which an agent without a master keeps its replica; unlimited if not set. Replicas
    /// have no state, so one that overlaps its replacement does no harm.
    pub orphan: Option<Span>,
}

impl Default for Serve {
    fn default() -> Self {
        Serve {
            protocol: ServeProtocol::default(),
            replicas: Range { min: 1, max: 1 },
            within: Span::minutes(15),
            drain: Span::minutes(1),
            concurrency: 8,
            update: UpdatePolicy::default(),
            autoscale: None,
            orphan: Some(Span::hours(24)),
        }
    }
}

/// Protocol of a model server: preset of its probe, its metric and its retries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServeProtocol {
    /// Any HTTP server.
    #[default]
    Http,
    /// Any gRPC server.
    Grpc,
    /// Open Inference Protocol: Triton, MLServer, KServe.
    Oip,
    /// TensorFlow Serving.
    Tfs,
    /// Multi Model Server.
    Mms,
    /// TorchServe.
    Torchserve,
    /// API of OpenAI: vLLM and others.
    Openai,
}

/// Replacement of the replicas by those of a new revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdatePolicy {
    /// Number of replicas beyond the size of the role.
    pub surge: u32,
    /// Number of replicas of the size that may be missing.
    pub unavailable: u32,
    /// Time for which the first replicas of the new revision are watched.
    pub watch: Span,
    /// Difference of the error rates, in percentage points, from which the new revision is bad.
    pub errors: u32,
}

impl Default for UpdatePolicy {
    fn default() -> Self {
        UpdatePolicy { surge: 1, unavailable: 0, watch: Span::minutes(2), errors: 1 }
    }
}

/// Autoscaling policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Autoscale {
    /// Desired number of concurrent requests of a replica.
    pub concurrency: u32,
    /// Time over which the load is averaged.
    pub window: Span,
    /// Shorter time over which a sudden load is averaged.
    pub panic: Span,
    /// Time without need for a replica before it is stopped.
    pub down_after: Span,
    /// Time without requests before the last replica is stopped.
    pub zero_after: Span,
    /// Time for which the gateway holds a request without a replica.
    pub hold: Span,
}

impl Default for Autoscale {
    fn default() -> Self {
        Autoscale {
            concurrency: 4,
            window: Span::minutes(1),
            panic: Span::seconds(6),
            down_after: Span::minutes(5),
            zero_after: Span::minutes(10),
            hold: Span::minutes(1),
        }
    }
}

/// Parts of a role that differ between its revisions. Everything else stays as submitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevisionSpec {
    /// Command of each replica.
    pub command: Command,
    /// Environment of its programs, if it differs from the job's.
    pub environment: Option<Environment>,
    /// Environment variables of the role.
    pub env: BTreeMap<String, String>,
    /// Inputs of the role, such as its model.
    pub inputs: Vec<Input>,
}

pub(super) fn check(all: &mut SpecIssues, builder: &JobSpecBuilder) {
    for role in &builder.roles {
        if let Some(serve) = &role.serve {
            of_role(all, builder, role, serve);
        }
    }
}

fn of_role(all: &mut SpecIssues, builder: &JobSpecBuilder, role: &RoleSpec, serve: &Serve) {
    let name = &role.name;
    let key = format!("roles.{name}");
    let Range { min, max } = serve.replicas;
    let size = format!("{key}.instances");
    if max == 0 || min > max {
        all.add(&size, format!("`{min}` to `{max}` is not a range of replicas"), "");
    } else if !(min..=max).contains(&role.instances) {
        let message =
            format!("`start` is {}, which is not between {min} and {max}", role.instances);
        all.add(&size, message, "");
    }
    if role.elastic.is_some() {
        let message = format!("role `{name}` serves, so it cannot be elastic");
        all.add(&size, message, "the range of a serving role is a limit of its replicas");
    }
    if builder.gang.together {
        let message = format!("the replicas of role `{name}` start on their own");
        all.add("gang", message, "leave `gang` out");
    }
    let restarts_job = builder.roles.iter().any(|it| it.restart.scope == RestartScope::Job);
    if role.restart.scope != RestartScope::Task || restarts_job {
        let message = format!("the replicas of role `{name}` restart on their own");
        all.add(&format!("{key}.restart.scope"), message, "set it to `task` in all roles");
    }
    if role.completion != Completion::Service {
        let message = format!("role `{name}` serves until the job ends");
        all.add(&format!("{key}.completion"), message, "set it to `service`");
    }
    if role.tolerate > 0 {
        let message = format!("role `{name}` replaces each replica that fails");
        all.add(&format!("{key}.tolerate"), message, "leave `tolerate` out");
    }
    let key = format!("{key}.serve");
    if serve.update.surge == 0 && serve.update.unavailable == 0 {
        let message = "no replica could be replaced".to_owned();
        all.add(&format!("{key}.update"), message, "set `surge: 1`");
    }
    let positive = [
        ("ready.within", serve.within.0),
        ("concurrency", u64::from(serve.concurrency)),
        ("scale.concurrency", serve.autoscale.map_or(1, |it| u64::from(it.concurrency))),
        ("scale.panic", serve.autoscale.map_or(1, |it| it.panic.0)),
    ];
    for (name, _) in positive.iter().filter(|(_, value)| *value == 0) {
        all.add(&format!("{key}.{name}"), "it must be more than 0".to_owned(), "");
    }
    if serve.autoscale.is_some_and(|it| it.panic > it.window) {
        let message = "`panic` exceeds `window`".to_owned();
        all.add(&format!("{key}.scale"), message, "6s and 60s are usual");
    }
    let theirs = |input: &&Input| input.roles.is_empty() || input.roles.contains(name);
    let mut inputs = builder.inputs.iter().filter(theirs);
    if let Some(input) = inputs.find(|input| input.form.is_split() && !input.roles.is_empty()) {
        let message = format!("its files are divided over the replicas of role `{name}`");
        all.add(&format!("inputs.{}", input.name), message, "give all files to every replica");
    }
}
