//! A new application, and its way into the scheduler.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::client::Client;
use crate::proto::yarn::application_client_protocol as method;
use crate::proto::yarn::{
    ApplicationSubmissionContextProto, ApplicationTimeoutMapProto, ApplicationTimeoutTypeProto,
    GetNewApplicationRequestProto, LogAggregationContextProto, PriorityProto, ResourceRequestProto,
    StringStringMapProto, SubmitApplicationRequestProto,
};
use crate::rpc::{ExceptionKind, RpcError};
use crate::types::{ApplicationId, ApplicationReport, ApplicationState, LaunchContext, Resource};

/// Pause between questions for an application that was just submitted, at first and at most.
const ACCEPT_POLL_INTERVAL: (Duration, Duration) =
    (Duration::from_millis(5), Duration::from_millis(200));

/// An application that has an id, and nothing else yet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NewApplication {
    /// The id to submit with.
    pub id: ApplicationId,
    /// The largest container the scheduler gives.
    pub capability_max: Resource,
}

/// An application to be submitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submission {
    /// Its id, from [`Client::new_application`].
    pub id: ApplicationId,
    /// Its name.
    pub name: String,
    /// Its type, as `YARN`; the ResourceManager keeps 20 letters of it.
    pub kind: String,
    /// Its queue.
    pub queue: String,
    /// Among the applications of a queue the highest goes first; none leaves it to the queue.
    pub priority: Option<i32>,
    /// Words to find it by: ten at most, of at most 100 ASCII letters each. They become lower case.
    pub tags: Vec<String>,
    /// Its master's container.
    pub resource: Resource,
    /// What is started in it. An unmanaged master needs none.
    pub launch: LaunchContext,
    /// The label of nodes for its containers, where they ask for no other.
    pub label: Option<String>,
    /// The label of its master's node, if that is another.
    pub master_label: Option<String>,
    /// Whether its master runs outside the cluster, with the token that
    /// [`Client::master_token`] gives.
    pub unmanaged: bool,
    /// How often its master is started; none leaves it to the cluster, which also has a limit.
    pub attempts_max: Option<u32>,
    /// Attempts that failed longer ago than this do not count; none counts all.
    pub failure_window: Option<Duration>,
    /// Whether containers outlive the attempt they were given to.
    pub keep_containers: bool,
    /// After this long it is ended, whatever it does. Whole seconds count.
    pub lifetime: Option<Duration>,
    /// Which logs are collected; none leaves it to the cluster.
    pub logs: Option<LogAggregation>,
    /// Whether the ResourceManager cancels its tokens when it is over.
    pub cancel_tokens: bool,
    /// What schedulers may want to know besides (Hadoop 3.3).
    pub scheduling_properties: BTreeMap<String, String>,
}

/// Which of an application's logs are collected, by patterns of Java's for the names of files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogAggregation {
    /// At the end: these, or all.
    pub include: Option<String>,
    /// At the end: but not these.
    pub exclude: Option<String>,
    /// While it runs: these, or none.
    pub rolled_include: Option<String>,
    /// While it runs: but not these.
    pub rolled_exclude: Option<String>,
    /// The Java class that chooses the containers.
    pub policy: Option<String>,
    /// What it is told.
    pub policy_parameters: Option<String>,
}

impl LogAggregation {
    fn proto(&self) -> LogAggregationContextProto {
        LogAggregationContextProto {
            include_pattern: self.include.clone(),
            exclude_pattern: self.exclude.clone(),
            rolled_logs_include_pattern: self.rolled_include.clone(),
            rolled_logs_exclude_pattern: self.rolled_exclude.clone(),
            log_aggregation_policy_class_name: self.policy.clone(),
            log_aggregation_policy_parameters: self.policy_parameters.clone(),
        }
    }
}

impl Submission {
    /// An application in queue `default` with a small master.
    pub fn new(id: ApplicationId, name: impl Into<String>) -> Self {
        Self {
            id,
            name: name.into(),
            kind: "YARN".into(),
            queue: "default".into(),
            priority: None,
            tags: Vec::new(),
            resource: Resource::new(256, 1),
            launch: LaunchContext::default(),
            label: None,
            master_label: None,
            unmanaged: false,
            attempts_max: None,
            failure_window: None,
            keep_containers: false,
            lifetime: None,
            logs: None,
            cancel_tokens: true,
            scheduling_properties: BTreeMap::new(),
        }
    }

    fn proto(&self) -> ApplicationSubmissionContextProto {
        let count = |n: u32| n.try_into().unwrap_or(i32::MAX);
        let millis = |time: Duration| time.as_millis().try_into().unwrap_or(i64::MAX);
        let property = |(name, value): (&String, &String)| StringStringMapProto {
            key: Some(name.clone()),
            value: Some(value.clone()),
        };
        let lifetime = |time: Duration| ApplicationTimeoutMapProto {
            application_timeout_type: Some(ApplicationTimeoutTypeProto::AppTimeoutLifetime.into()),
            timeout: Some(time.as_secs().try_into().unwrap_or(i64::MAX)),
        };
        ApplicationSubmissionContextProto {
            application_id: Some(self.id.proto()),
            application_name: Some(self.name.clone()),
            queue: Some(self.queue.clone()),
            priority: self.priority.map(|priority| PriorityProto { priority: Some(priority) }),
            am_container_spec: Some(self.launch.proto()),
            cancel_tokens_when_complete: Some(self.cancel_tokens),
            unmanaged_am: Some(self.unmanaged),
            max_app_attempts: self.attempts_max.map(count),
            resource: Some(self.resource.proto()),
            application_type: Some(self.kind.clone()),
            keep_containers_across_application_attempts: Some(self.keep_containers),
            // As Java's clients do: lists are searched for lower case only.
            application_tags: self.tags.iter().map(|tag| tag.to_lowercase()).collect(),
            attempt_failures_validity_interval: self.failure_window.map(millis),
            log_aggregation_context: self.logs.as_ref().map(LogAggregation::proto),
            reservation_id: None,
            node_label_expression: self.label.clone(),
            am_container_resource_request: self.master_request().into_iter().collect(),
            application_timeouts: self.lifetime.map(lifetime).into_iter().collect(),
            application_scheduling_properties: self
                .scheduling_properties
                .iter()
                .map(property)
                .collect(),
        }
    }

    /// The ask for the master's container, which is needed only to say where it goes.
    fn master_request(&self) -> Option<ResourceRequestProto> {
        let label = self.master_label.clone()?;
        Some(ResourceRequestProto {
            priority: Some(PriorityProto { priority: Some(0) }),
            resource_name: Some("*".into()),
            capability: Some(self.resource.proto()),
            num_containers: Some(1),
            node_label_expression: Some(label),
            ..ResourceRequestProto::default()
        })
    }
}

impl Client {
    /// A new id. One that is not used does no harm.
    pub async fn new_application(&self, deadline: Instant) -> Result<NewApplication, RpcError> {
        let call = &method::GET_NEW_APPLICATION;
        let request = GetNewApplicationRequestProto {};
        let answer = self.call_idempotent(call, &request, deadline).await?;
        let new = || {
            Ok(NewApplication {
                id: ApplicationId::of(answer.application_id.as_ref())?,
                capability_max: Resource::of(answer.maximum_capability.as_ref())?,
            })
        };
        self.decode(call.name, new())
    }

    /// Submits an application. Twice does no harm. What is wrong with its queue or tokens shows
    /// only in its report.
    pub async fn submit(&self, submission: &Submission, deadline: Instant) -> Result<(), RpcError> {
        let request = SubmitApplicationRequestProto {
            application_submission_context: Some(submission.proto()),
        };
        self.call_idempotent(&method::SUBMIT_APPLICATION, &request, deadline).await?;
        Ok(())
    }

    /// Submits an application, and waits until the scheduler has taken it or it is over, also across
    /// a ResourceManager that forgot it. When the deadline passes, its report says how far it is.
    pub async fn submit_and_wait(
        &self,
        submission: &Submission,
        deadline: Instant,
    ) -> Result<ApplicationReport, RpcError> {
        self.submit(submission, deadline).await?;
        let mut interval = ACCEPT_POLL_INTERVAL.0;
        loop {
            match self.application(submission.id, deadline).await {
                Ok(report) => {
                    let early = matches!(
                        report.state,
                        ApplicationState::New
                            | ApplicationState::NewSaving
                            | ApplicationState::Submitted
                    );
                    if !early || Instant::now() + interval >= deadline {
                        return Ok(report);
                    }
                }
                // Another ResourceManager took over before this one had written it down.
                Err(RpcError::Rejected { exception, .. })
                    if exception.kind() == ExceptionKind::ApplicationNotFound =>
                {
                    self.submit(submission, deadline).await?;
                }
                Err(error) => return Err(error),
            }
            sleep(interval).await;
            interval = (interval * 2).min(ACCEPT_POLL_INTERVAL.1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn submission() -> Submission {
        Submission::new("application_1_0002".parse().unwrap(), "test")
    }

    #[test]
    fn what_nobody_chose_is_left_to_the_cluster() {
        let proto = submission().proto();
        assert_eq!(proto.priority, None);
        assert_eq!(proto.max_app_attempts, None);
        assert_eq!(proto.attempt_failures_validity_interval(), -1);
        assert_eq!(proto.log_aggregation_context, None);
        assert!(proto.cancel_tokens_when_complete());
        assert!(proto.am_container_resource_request.is_empty());
        assert!(proto.application_timeouts.is_empty());
    }

    #[test]
    fn what_was_chosen_is_said() {
        let chosen = Submission {
            priority: Some(7),
            tags: vec!["Nightly".into()],
            master_label: Some("stable".into()),
            failure_window: Some(Duration::from_secs(60)),
            lifetime: Some(Duration::from_secs(3600)),
            attempts_max: Some(u32::MAX),
            ..submission()
        };
        let proto = chosen.proto();
        assert_eq!(proto.priority.map(|p| p.priority()), Some(7));
        assert_eq!(proto.application_tags, ["nightly"]);
        assert_eq!(proto.attempt_failures_validity_interval(), 60_000);
        assert_eq!(proto.application_timeouts[0].timeout(), 3600);
        assert_eq!(proto.max_app_attempts(), i32::MAX);
        let row = &proto.am_container_resource_request[0];
        assert_eq!((row.resource_name(), row.num_containers()), ("*", 1));
        assert_eq!(row.node_label_expression(), "stable");
    }
}
