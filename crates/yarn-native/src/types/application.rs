//! Applications, as the ResourceManager reports them.

use std::time::{Duration, SystemTime};

use crate::proto::yarn::{
    ApplicationReportProto, ApplicationTimeoutProto, ApplicationTimeoutTypeProto,
    FinalApplicationStatusProto, LogAggregationStatusProto, YarnApplicationStateProto,
};
use crate::types::named::named;
use crate::types::{ApplicationId, AttemptId, InvalidMessage, Resource, timestamp};

named! {
    /// How far an application has come.
    pub enum ApplicationState: YarnApplicationStateProto, "state of applications" {
        /// Just made.
        New = New "NEW",
        /// Being written to the ResourceManager's store.
        NewSaving = NewSaving "NEW_SAVING",
        /// Handed to the scheduler.
        Submitted = Submitted "SUBMITTED",
        /// Taken by the scheduler; its master waits for a container.
        Accepted = Accepted "ACCEPTED",
        /// Its master has registered.
        Running = Running "RUNNING",
        /// Its master has finished it.
        Finished = Finished "FINISHED",
        /// Its last attempt failed.
        Failed = Failed "FAILED",
        /// Somebody ended it.
        Killed = Killed "KILLED",
    }
}

impl ApplicationState {
    /// Whether nothing more will happen to it.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Finished | Self::Failed | Self::Killed)
    }
}

named! {
    /// What an application's master says of how it went.
    pub enum FinalStatus: FinalApplicationStatusProto, "final status" {
        /// Nothing yet.
        Undefined = AppUndefined "UNDEFINED",
        /// It went well.
        Succeeded = AppSucceeded "SUCCEEDED",
        /// It did not.
        Failed = AppFailed "FAILED",
        /// It was ended.
        Killed = AppKilled "KILLED",
        /// It is over, which says neither.
        Ended = AppEnded "ENDED",
    }
}

named! {
    /// What has become of an application's logs.
    pub enum LogState: LogAggregationStatusProto, "state of logs" {
        /// They stay on their nodes.
        Disabled = LogDisabled "DISABLED",
        /// They are not being collected yet.
        NotStarted = LogNotStart "NOT_START",
        /// They are being collected.
        Running = LogRunning "RUNNING",
        /// They have been collected.
        Succeeded = LogSucceeded "SUCCEEDED",
        /// They could not be.
        Failed = LogFailed "FAILED",
        /// A node did not say for too long.
        TimedOut = LogTimeOut "TIME_OUT",
        /// They are being collected, and some could not be.
        RunningWithFailure = LogRunningWithFailure "RUNNING_WITH_FAILURE",
    }
}

/// What an application uses now; -1 where there is no telling, as when it is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Its containers, its master's included.
    pub containers: i32,
    /// What they use.
    pub used: Resource,
    /// What is kept free for containers it has asked for.
    pub reserved: Resource,
    /// What it would use if it got all it asked for.
    pub needed: Resource,
    /// Memory in MiB times seconds, since it began.
    pub memory_mib_seconds: i64,
    /// Virtual cores times seconds, since it began.
    pub vcore_seconds: i64,
}

/// How long an application may still live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lifetime {
    /// When it will be ended, if ever.
    pub ends: Option<SystemTime>,
    /// How long that is from now, as the ResourceManager counts.
    pub left: Option<Duration>,
}

impl Lifetime {
    fn of(proto: &ApplicationTimeoutProto) -> Self {
        // Without a limit the moment is a word and the rest is negative.
        let left = u64::try_from(proto.remaining_time.unwrap_or(-1)).ok();
        Self { ends: timestamp::parse(proto.expire_time()), left: left.map(Duration::from_secs) }
    }
}

/// What the ResourceManager tells about an application. Where the caller may not see it, the texts
/// are `N/A`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ApplicationReport {
    /// Its id.
    pub id: ApplicationId,
    /// The current attempt, once there is one.
    pub attempt: Option<AttemptId>,
    /// Who submitted it.
    pub user: String,
    /// Its name.
    pub name: String,
    /// Its type, as `YARN` or `MAPREDUCE`.
    pub kind: String,
    /// Its queue.
    pub queue: String,
    /// Its tags.
    pub tags: Vec<String>,
    /// How far it has come.
    pub state: ApplicationState,
    /// What its master says of how it went.
    pub final_status: FinalStatus,
    /// From 0 to 1, as its master says.
    pub progress: f32,
    /// Where its master listens, as it registered.
    pub host: String,
    /// And on which port, or -1.
    pub rpc_port: i32,
    /// Its page, through the ResourceManager's proxy.
    pub tracking_url: String,
    /// Its page, as its master registered it.
    pub original_tracking_url: String,
    /// What went wrong, or what it waits for.
    pub diagnostics: String,
    /// When it was submitted, in milliseconds.
    pub start_time: i64,
    /// When it was over, in milliseconds, or 0.
    pub finish_time: i64,
    /// Among the applications of a queue the highest goes first.
    pub priority: i32,
    /// Whether its master runs outside the cluster.
    pub unmanaged: bool,
    /// What it uses, if the caller may know.
    pub usage: Option<Usage>,
    /// When its master was started, in milliseconds, or 0 (Hadoop 3).
    pub launch_time: i64,
    /// The label its containers' nodes have unless they ask for another.
    pub label: Option<String>,
    /// The label its master's node has.
    pub master_label: Option<String>,
    /// How long it may still live.
    pub lifetime: Lifetime,
    /// What has become of its logs, if the ResourceManager says.
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
        // Servers write a missing label in more than one way.
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
    fn states_have_the_names_people_know() {
        for number in 1..=8 {
            let state = ApplicationState::of(number).unwrap();
            assert_eq!(state.to_string(), state.proto().as_str_name());
            assert_eq!(state.to_string().parse(), Ok(state));
        }
        assert!(ApplicationState::of(99).is_err());
        assert!("ENDLESS".parse::<ApplicationState>().is_err());
    }

    #[test]
    fn a_report_without_an_id_is_refused() {
        assert!(ApplicationReport::of(&ApplicationReportProto::default()).is_err());
    }
}
