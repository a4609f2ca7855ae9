//! Applications, as the ResourceManager reports them.

use std::fmt;

use crate::proto::yarn::{
    ApplicationReportProto, FinalApplicationStatusProto, YarnApplicationStateProto,
};
use crate::types::{ApplicationId, AttemptId, Resource, Unfit};

/// How far an application has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ApplicationState {
    /// Just made.
    New,
    /// Being written to the ResourceManager's store.
    NewSaving,
    /// Handed to the scheduler.
    Submitted,
    /// Taken by the scheduler; its master waits for a container.
    Accepted,
    /// Its master has registered.
    Running,
    /// Its master has finished it.
    Finished,
    /// Its last attempt failed.
    Failed,
    /// Somebody ended it.
    Killed,
}

impl ApplicationState {
    pub(crate) const ALL: [(Self, YarnApplicationStateProto, &'static str); 8] = [
        (Self::New, YarnApplicationStateProto::New, "NEW"),
        (
            Self::NewSaving,
            YarnApplicationStateProto::NewSaving,
            "NEW_SAVING",
        ),
        (
            Self::Submitted,
            YarnApplicationStateProto::Submitted,
            "SUBMITTED",
        ),
        (
            Self::Accepted,
            YarnApplicationStateProto::Accepted,
            "ACCEPTED",
        ),
        (Self::Running, YarnApplicationStateProto::Running, "RUNNING"),
        (
            Self::Finished,
            YarnApplicationStateProto::Finished,
            "FINISHED",
        ),
        (Self::Failed, YarnApplicationStateProto::Failed, "FAILED"),
        (Self::Killed, YarnApplicationStateProto::Killed, "KILLED"),
    ];

    /// Whether nothing more will happen to it.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Finished | Self::Failed | Self::Killed)
    }

    pub(crate) fn proto(self) -> YarnApplicationStateProto {
        Self::ALL[self as usize].1
    }

    fn of(number: Option<i32>) -> Result<Self, Unfit> {
        let known = |&(state, proto, _): &(Self, YarnApplicationStateProto, _)| {
            (number == Some(proto.into())).then_some(state)
        };
        Self::ALL
            .iter()
            .find_map(known)
            .ok_or(Unfit("an application's state"))
    }
}

impl fmt::Display for ApplicationState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(Self::ALL[*self as usize].2)
    }
}

/// What an application's master says of how it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FinalStatus {
    /// Nothing yet.
    Undefined,
    /// It went well.
    Succeeded,
    /// It did not.
    Failed,
    /// It was ended.
    Killed,
    /// It is over, which says neither.
    Ended,
}

impl FinalStatus {
    fn of(number: Option<i32>) -> Result<Self, Unfit> {
        let Some(number) = number else {
            return Ok(Self::Undefined);
        };
        Ok(match FinalApplicationStatusProto::try_from(number) {
            Ok(FinalApplicationStatusProto::AppUndefined) => Self::Undefined,
            Ok(FinalApplicationStatusProto::AppSucceeded) => Self::Succeeded,
            Ok(FinalApplicationStatusProto::AppFailed) => Self::Failed,
            Ok(FinalApplicationStatusProto::AppKilled) => Self::Killed,
            Ok(FinalApplicationStatusProto::AppEnded) => Self::Ended,
            Err(_) => return Err(Unfit("an application's final status")),
        })
    }
}

impl fmt::Display for FinalStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Undefined => "UNDEFINED",
            Self::Succeeded => "SUCCEEDED",
            Self::Failed => "FAILED",
            Self::Killed => "KILLED",
            Self::Ended => "ENDED",
        })
    }
}

/// What an application uses now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Its containers, its master's included.
    pub containers: i32,
    /// What they use.
    pub used: Resource,
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
}

impl ApplicationReport {
    pub(crate) fn of(proto: &ApplicationReportProto) -> Result<Self, Unfit> {
        let attempt = proto.current_application_attempt_id.as_ref();
        let usage = proto.app_resource_usage.as_ref().and_then(|usage| {
            let used = Resource::of(usage.used_resources.as_ref()).ok()?;
            Some(Usage {
                containers: usage.num_used_containers(),
                used,
            })
        });
        Ok(Self {
            id: ApplicationId::of(proto.application_id.as_ref())?,
            attempt: attempt
                .map(|attempt| AttemptId::of(Some(attempt)))
                .transpose()?,
            user: proto.user().to_owned(),
            name: proto.name().to_owned(),
            kind: proto.application_type().to_owned(),
            queue: proto.queue().to_owned(),
            tags: proto.application_tags.clone(),
            state: ApplicationState::of(proto.yarn_application_state)?,
            final_status: FinalStatus::of(proto.final_application_status)?,
            progress: proto.progress(),
            host: proto.host().to_owned(),
            rpc_port: proto.rpc_port(),
            tracking_url: proto.tracking_url().to_owned(),
            original_tracking_url: proto.original_tracking_url().to_owned(),
            diagnostics: proto.diagnostics().to_owned(),
            start_time: proto.start_time(),
            finish_time: proto.finish_time(),
            priority: proto
                .priority
                .as_ref()
                .map_or(0, |priority| priority.priority()),
            unmanaged: proto.unmanaged_application(),
            usage,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_stand_where_their_numbers_say() {
        for (i, (state, proto, name)) in ApplicationState::ALL.into_iter().enumerate() {
            assert_eq!(state as usize, i);
            assert_eq!(ApplicationState::of(Some(proto.into())), Ok(state));
            assert_eq!(proto.as_str_name(), name);
        }
        assert!(ApplicationState::of(Some(99)).is_err());
        assert!(ApplicationState::of(None).is_err());
    }

    #[test]
    fn a_report_without_an_id_is_refused() {
        assert!(ApplicationReport::of(&ApplicationReportProto::default()).is_err());
    }
}
