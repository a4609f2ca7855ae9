//! Application states and reports.

use std::time::{Duration, SystemTime};

use crate::proto::yarn::{
    ApplicationReportProto, ApplicationTimeoutProto, ApplicationTimeoutTypeProto,
    FinalApplicationStatusProto, LogAggregationStatusProto, YarnApplicationStateProto,
};
use crate::types::named::named;
use crate::types::{ApplicationId, AttemptId, InvalidMessage, Resource, timestamp};

named! {
    /// State of an application.
    pub enum ApplicationState: YarnApplicationStateProto, "application state" {
        /// Created.
        New = New "NEW",
        /// Being written to the ResourceManager's state store.
        NewSaving = NewSaving "NEW_SAVING",
        /// Submitted to the scheduler.
        Submitted = Submitted "SUBMITTED",
        /// Accepted by the scheduler; the master waits for a container.
        Accepted = Accepted "ACCEPTED",
        /// The master has registered.
        Running = Running "RUNNING",
        /// The master has unregistered.
        Finished = Finished "FINISHED",
        /// The last attempt failed.
        Failed = Failed "FAILED",
        /// Killed by a user or an administrator.
        Killed = Killed "KILLED",
    }
}

impl ApplicationState {
    /// Returns true if the state is final.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Finished | Self::Failed | Self::Killed)
    }
}

named! {
    /// Outcome of an application as its master reported it.
    pub enum FinalStatus: FinalApplicationStatusProto, "final status" {
        /// No outcome reported yet.
        Undefined = AppUndefined "UNDEFINED",
        /// Succeeded.
        Succeeded = AppSucceeded "SUCCEEDED",
        /// Failed.
        Failed = AppFailed "FAILED",
        /// Killed.
        Killed = AppKilled "KILLED",
        /// Finished without an outcome.
        Ended = AppEnded "ENDED",
    }
}

named! {
    /// State of an application's log aggregation.
    pub enum LogState: LogAggregationStatusProto, "log aggregation state" {
        /// Aggregation is disabled; the logs stay on their nodes.
        Disabled = LogDisabled "DISABLED",
        /// Aggregation has not started.
        NotStarted = LogNotStart "NOT_START",
        /// Aggregation is running.
        Running = LogRunning "RUNNING",
        /// All logs were aggregated.
        Succeeded = LogSucceeded "SUCCEEDED",
        /// Aggregation failed.
        Failed = LogFailed "FAILED",
        /// A node did not report within the timeout.
        TimedOut = LogTimeOut "TIME_OUT",
        /// Aggregation is running, and some nodes failed.
        RunningWithFailure = LogRunningWithFailure "RUNNING_WITH_FAILURE",
    }
}

/// Resource usage of an application; -1 where unknown, for example after its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Containers in use, including the master's.
    pub containers: i32,
    /// Resources in use.
    pub used: Resource,
    /// Resources reserved for pending asks.
    pub reserved: Resource,
    /// Resources used if every pending ask were granted.
    pub needed: Resource,
    /// Memory in MiB times seconds, since the start.
    pub memory_mib_seconds: i64,
    /// Virtual cores times seconds, since the start.
    pub vcore_seconds: i64,
}

/// Lifetime limit of an application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lifetime {
    /// Time at which the ResourceManager ends it, if any.
    pub ends: Option<SystemTime>,
    /// Time left until then, by the ResourceManager's clock.
    pub left: Option<Duration>,
}

impl Lifetime {
    fn of(proto: &ApplicationTimeoutProto) -> Self {
        // Without a limit the expiry is `UNLIMITED` and the remaining time is negative.
        let left = u64::try_from(proto.remaining_time.unwrap_or(-1)).ok();
        Self { ends: timestamp::parse(proto.expire_time()), left: left.map(Duration::from_secs) }
    }
}

/// Report about an application. Texts that the caller may not see are `N/A`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ApplicationReport {
    /// Application id.
    pub id: ApplicationId,
    /// Current attempt, once there is one.
    pub attempt: Option<AttemptId>,
    /// User who submitted it.
    pub user: String,
    /// Name.
    pub name: String,
    /// Type, such as `YARN` or `MAPREDUCE`.
    pub kind: String,
    /// Queue.
    pub queue: String,
    /// Tags.
    pub tags: Vec<String>,
    /// Current state.
    pub state: ApplicationState,
    /// Outcome as the master reported it.
    pub final_status: FinalStatus,
    /// Progress from 0 to 1 as the master reported it.
    pub progress: f32,
    /// Host that the master registered.
    pub host: String,
    /// Port that the master registered, or -1.
    pub rpc_port: i32,
    /// Tracking page through the ResourceManager's proxy.
    pub tracking_url: String,
    /// Tracking page as the master registered it.
    pub original_tracking_url: String,
    /// Error message, or the reason for waiting.
    pub diagnostics: String,
    /// Submission time in milliseconds.
    pub start_time: i64,
    /// End time in milliseconds, or 0.
    pub finish_time: i64,
    /// Priority within the queue; higher values go first.
    pub priority: i32,
    /// True if the master runs outside the cluster.
    pub unmanaged: bool,
    /// Resource usage, if the caller may see it.
    pub usage: Option<Usage>,
    /// Start time of the master in milliseconds, or 0 (Hadoop 3).
    pub launch_time: i64,
    /// Default node label of its containers.
    pub label: Option<String>,
    /// Node label of the master's container.
    pub master_label: Option<String>,
    /// Lifetime limit.
    pub lifetime: Lifetime,
    /// State of log aggregation, if reported.
    pub logs: Option<LogState>,
}

impl ApplicationReport {
    pub(crate) fn of(proto: &ApplicationReportProto) -> Result<Self, InvalidMessage> {
        let attempt = proto.current_application_attempt_id.as_ref();
        let usage = proto.app_resource_usage.as_ref().and_then(|usage| {
            let resource = |proto: &Option<_>| Resource::of(proto.as_ref()).unwrap_or_default();
            let used = Resource::of(usage.used_resources.as_ref()).ok()?;
            Some(Usage {
                containers: usage.num_used_containers(),
                used,
                reserved: resource(&usage.reserved_resources),
                needed: resource(&usage.needed_resources),
                memory_mib_seconds: usage.memory_seconds(),
                vcore_seconds: usage.vcore_seconds(),
            })
        });
        let lifetime = proto.app_timeouts.iter().find_map(|entry| {
            let lifetime = ApplicationTimeoutTypeProto::AppTimeoutLifetime;
            (entry.application_timeout_type() == lifetime)
                .then_some(entry.application_timeout.as_ref())?
        });
        // Servers encode a missing label in more than one way.
        let label = |text: &str| match text {
            "" | "<Not set>" | "<DEFAULT_PARTITION>" | "N/A" => None,
            label => Some(label.to_owned()),
        };
        Ok(Self {
            id: ApplicationId::of(proto.application_id.as_ref())?,
            attempt: attempt.map(|attempt| AttemptId::of(Some(attempt))).transpose()?,
            user: proto.user().to_owned(),
            name: proto.name().to_owned(),
            kind: proto.application_type().to_owned(),
            queue: proto.queue().to_owned(),
            tags: proto.application_tags.clone(),
            state: ApplicationState::of(proto.yarn_application_state.unwrap_or(-1))?,
            final_status: FinalStatus::of(proto.final_application_status.unwrap_or(0))?,
            progress: proto.progress(),
            host: proto.host().to_owned(),
            rpc_port: proto.rpc_port(),
            tracking_url: proto.tracking_url().to_owned(),
            original_tracking_url: proto.original_tracking_url().to_owned(),
            diagnostics: proto.diagnostics().to_owned(),
            start_time: proto.start_time(),
            finish_time: proto.finish_time(),
            priority: proto.priority.as_ref().map_or(0, |priority| priority.priority()),
            unmanaged: proto.unmanaged_application(),
            usage,
            launch_time: proto.launch_time(),
            label: label(proto.app_node_label_expression()),
            master_label: label(proto.am_node_label_expression()),
            lifetime: lifetime.map(Lifetime::of).unwrap_or_default(),
            logs: proto.log_aggregation_status.and_then(|n| LogState::of(n).ok()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn application_states_match_hadoop_names() {
        for number in 1..=8 {
            let state = ApplicationState::of(number).unwrap();
            assert_eq!(state.to_string(), state.proto().as_str_name());
            assert_eq!(state.to_string().parse(), Ok(state));
        }
        assert!(ApplicationState::of(99).is_err());
        assert!("ENDLESS".parse::<ApplicationState>().is_err());
    }

    #[test]
    fn report_without_id_is_rejected() {
        assert!(ApplicationReport::of(&ApplicationReportProto::default()).is_err());
    }
}
