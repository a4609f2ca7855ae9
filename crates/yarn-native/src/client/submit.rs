//! Submission of new applications.

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

/// Initial and maximum polling interval after a submission.
const ACCEPT_POLL_INTERVAL: (Duration, Duration) =
    (Duration::from_millis(5), Duration::from_millis(200));

/// A newly allocated application id.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NewApplication {
    /// Id to submit with.
    pub id: ApplicationId,
    /// Maximum container size.
    pub capability_max: Resource,
}

/// Submission context of an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submission {
    /// Application id from [`Client::new_application`].
    pub id: ApplicationId,
    /// Application name.
    pub name: String,
    /// Application type, such as `YARN`; truncated to 20 characters.
    pub kind: String,
    /// Queue.
    pub queue: String,
    /// Priority within the queue, highest first; `None` uses the queue's default.
    pub priority: Option<i32>,
    /// Tags: at most ten of up to 100 ASCII characters. Converted to lower case.
    pub tags: Vec<String>,
    /// Resources of the ApplicationMaster's container.
    pub resource: Resource,
    /// Launch context of the ApplicationMaster; unused if unmanaged.
    pub launch: LaunchContext,
    /// Default node label of its containers.
    pub label: Option<String>,
    /// Node label of the ApplicationMaster, if different.
    pub master_label: Option<String>,
    /// Runs the ApplicationMaster outside the cluster, with the token from
    /// [`Client::master_token`].
    pub unmanaged: bool,
    /// Maximum number of attempts, capped by the cluster; `None` uses the cluster's default.
    pub attempts_max: Option<u32>,
    /// Validity interval of failed attempts: older failures do not count. `None` counts all.
    pub failure_window: Option<Duration>,
    /// Keeps containers across attempts.
    pub keep_containers: bool,
    /// Maximum lifetime in whole seconds; the application is killed afterwards.
    pub lifetime: Option<Duration>,
    /// Log aggregation settings; `None` uses the cluster's defaults.
    pub logs: Option<LogAggregation>,
    /// Cancels the delegation tokens when the application ends.
    pub cancel_tokens: bool,
    /// Additional scheduling properties (Hadoop 3.3).
    pub scheduling_properties: BTreeMap<String, String>,
}

/// Selection of aggregated logs, by Java regular expressions on file names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogAggregation {
    /// Files to aggregate at the end; `None` for all.
    pub include: Option<String>,
    /// Files to exclude at the end.
    pub exclude: Option<String>,
    /// Files to aggregate while running; `None` for none.
    pub rolled_include: Option<String>,
    /// Files to exclude while running.
    pub rolled_exclude: Option<String>,
    /// Java class of the container selection policy.
    pub policy: Option<String>,
    /// Parameters of the policy.
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
    /// Creates a submission to queue `default` with a small ApplicationMaster.
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
            // Lower case, as Java clients send them: filters match only lower case.
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

    /// Returns the resource request of the ApplicationMaster; needed only for its node label.
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
    /// Allocates an application id. Unused ids are harmless.
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

    /// Submits an application; idempotent. Errors about its queue or tokens appear only in its
    /// report.
    pub async fn submit(&self, submission: &Submission, deadline: Instant) -> Result<(), RpcError> {
        let request = SubmitApplicationRequestProto {
            application_submission_context: Some(submission.proto()),
        };
        self.call_idempotent(&method::SUBMIT_APPLICATION, &request, deadline).await?;
        Ok(())
    }

    /// Submits an application and waits until the scheduler has accepted it or it has ended,
    /// resubmitting if a failover lost it. When the deadline passes, the report shows its state.
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
                    let pending = matches!(
                        report.state,
                        ApplicationState::New
                            | ApplicationState::NewSaving
                            | ApplicationState::Submitted
                    );
                    if !pending || Instant::now() + interval >= deadline {
                        return Ok(report);
                    }
                }
                // A failover happened before the submission was persisted.
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
    fn unset_options_use_the_cluster_defaults() {
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
    fn set_options_are_sent() {
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
