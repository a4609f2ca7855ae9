//! Applications that are there: listed, watched, changed, ended.

use std::ops::RangeInclusive;
use std::time::{Duration, SystemTime};

use tokio::time::{Instant, sleep};

use crate::client::Client;
use crate::proto::yarn::application_client_protocol as method;
use crate::proto::yarn::{
    ApplicationReportProto, ApplicationTimeoutTypeProto, ApplicationUpdateTimeoutMapProto,
    ApplicationsRequestScopeProto, GetApplicationReportRequestProto, GetApplicationsRequestProto,
    KillApplicationRequestProto, MoveApplicationAcrossQueuesRequestProto, PriorityProto,
    UpdateApplicationPriorityRequestProto, UpdateApplicationTimeoutsRequestProto,
};
use crate::rpc::RpcError;
use crate::token::Token;
use crate::types::named::named;
use crate::types::{ApplicationId, ApplicationReport, ApplicationState, InvalidMessage, timestamp};

/// The ResourceManager needs a moment to end an application.
const KILL_POLL_INTERVAL: Duration = Duration::from_millis(200);

named! {
    /// Whose applications to list.
    pub enum ApplicationScope: ApplicationsRequestScopeProto, "scope" {
        /// Everybody's.
        All = All "ALL",
        /// Those whose details the caller may see.
        Viewable = Viewable "VIEWABLE",
        /// The caller's own.
        Own = Own "OWN",
    }
}

/// Which applications to list; what is empty does not restrict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApplicationFilter {
    /// In one of these states.
    pub states: Vec<ApplicationState>,
    /// Of one of these types.
    pub kinds: Vec<String>,
    /// Of one of these users.
    pub users: Vec<String>,
    /// In one of these queues.
    pub queues: Vec<String>,
    /// With one of these tags.
    pub tags: Vec<String>,
    /// With this name.
    pub name: Option<String>,
    /// Submitted then, in milliseconds.
    pub started: Option<RangeInclusive<i64>>,
    /// Over since then, in milliseconds.
    pub finished: Option<RangeInclusive<i64>>,
    /// Whose they are.
    pub scope: Option<ApplicationScope>,
    /// At most this many.
    pub limit: Option<u32>,
}

impl ApplicationFilter {
    fn proto(&self) -> GetApplicationsRequestProto {
        let states = self.states.iter().map(|state| state.proto().into());
        let begin =
            |range: &Option<RangeInclusive<i64>>| range.as_ref().map(|range| *range.start());
        let end = |range: &Option<RangeInclusive<i64>>| range.as_ref().map(|range| *range.end());
        GetApplicationsRequestProto {
            application_types: self.kinds.clone(),
            application_states: states.collect(),
            users: self.users.clone(),
            queues: self.queues.clone(),
            // A server that does not know names lists too many, and must not stop before ours.
            limit: match self.name {
                None => self.limit.map(i64::from),
                Some(_) => None,
            },
            start_begin: begin(&self.started),
            start_end: end(&self.started),
            finish_begin: begin(&self.finished),
            finish_end: end(&self.finished),
            // Applications have theirs in lower case.
            application_tags: self.tags.iter().map(|tag| tag.to_lowercase()).collect(),
            scope: self.scope.map(|scope| scope.proto().into()),
            name: self.name.clone(),
        }
    }
}

impl Client {
    /// The applications that the filter lets through.
    pub async fn applications(
        &self,
        filter: &ApplicationFilter,
        deadline: Instant,
    ) -> Result<Vec<ApplicationReport>, RpcError> {
        let call = &method::GET_APPLICATIONS;
        let answer = self.call_idempotent(call, &filter.proto(), deadline).await?;
        let reports = answer.applications.iter().map(ApplicationReport::of);
        let mut reports: Vec<_> = self.decode(call.name, reports.collect())?;
        // Servers before Hadoop 3.3 do not know names, and see no need to say so.
        if let Some(name) = &filter.name {
            reports.retain(|report| report.name == *name);
            reports.truncate(filter.limit.map_or(usize::MAX, |limit| limit as usize));
        }
        Ok(reports)
    }

    /// What the ResourceManager tells about an application.
    pub async fn application(
        &self,
        id: ApplicationId,
        deadline: Instant,
    ) -> Result<ApplicationReport, RpcError> {
        let report = self.report(id, deadline).await?;
        let name = method::GET_APPLICATION_REPORT.name;
        self.decode(name, ApplicationReport::of(&report))
    }

    /// The token of an unmanaged master, once its attempt waits for it. It is the owner's to ask.
    ///
    /// With Kerberos the ResourceManager compares `alice`, the owner, with `alice@REALM`, who asks,
    /// and never tells it to her. Whom another user stands for ([`Identity`](crate::security::Identity),
    /// `HADOOP_PROXY_USER`) is called `alice` and gets it; else the master runs in a container.
    pub async fn master_token(
        &self,
        id: ApplicationId,
        deadline: Instant,
    ) -> Result<Option<Token>, RpcError> {
        let report = self.report(id, deadline).await?;
        Ok(report.am_rm_token.map(Token::of))
    }

    /// The token with which a client proves itself to an application's master. Only secure clusters
    /// have one, and only while the master runs.
    pub async fn client_token(
        &self,
        id: ApplicationId,
        deadline: Instant,
    ) -> Result<Option<Token>, RpcError> {
        let report = self.report(id, deadline).await?;
        Ok(report.client_to_am_token.map(Token::of))
    }

    async fn report(
        &self,
        id: ApplicationId,
        deadline: Instant,
    ) -> Result<ApplicationReportProto, RpcError> {
        let request = GetApplicationReportRequestProto { application_id: Some(id.proto()) };
        let call = &method::GET_APPLICATION_REPORT;
        let answer = self.call_idempotent(call, &request, deadline).await?;
        let report = answer.application_report;
        self.decode(call.name, report.ok_or(InvalidMessage("the report")))
    }

    /// Asks for an application to be ended. Whether it has been; it takes several calls.
    pub async fn kill(&self, id: ApplicationId, deadline: Instant) -> Result<bool, RpcError> {
        self.kill_with_reason(id, None, deadline).await
    }

    /// Ends an application, and waits until it has ended; why goes into its diagnostics. Whether it
    /// has ended before the deadline.
    pub async fn kill_and_wait(
        &self,
        id: ApplicationId,
        why: &str,
        deadline: Instant,
    ) -> Result<bool, RpcError> {
        while !self.kill_with_reason(id, Some(why), deadline).await? {
            if Instant::now() + KILL_POLL_INTERVAL >= deadline {
                return Ok(false);
            }
            sleep(KILL_POLL_INTERVAL).await;
        }
        Ok(true)
    }

    async fn kill_with_reason(
        &self,
        id: ApplicationId,
        why: Option<&str>,
        deadline: Instant,
    ) -> Result<bool, RpcError> {
        let request = KillApplicationRequestProto {
            application_id: Some(id.proto()),
            diagnostics: why.map(str::to_owned),
        };
        let call = &method::FORCE_KILL_APPLICATION;
        let answer = self.call_idempotent(call, &request, deadline).await?;
        Ok(answer.is_kill_completed())
    }

    /// Moves an application to another queue, with all its containers.
    pub async fn move_to_queue(
        &self,
        id: ApplicationId,
        queue: &str,
        deadline: Instant,
    ) -> Result<(), RpcError> {
        let request = MoveApplicationAcrossQueuesRequestProto {
            application_id: id.proto(),
            target_queue: queue.to_owned(),
        };
        let call = &method::MOVE_APPLICATION_ACROSS_QUEUES;
        self.call_idempotent(call, &request, deadline).await?;
        Ok(())
    }

    /// Changes an application's priority among those of its queue; the one it has now, which the
    /// cluster may have limited.
    pub async fn set_priority(
        &self,
        id: ApplicationId,
        priority: i32,
        deadline: Instant,
    ) -> Result<i32, RpcError> {
        let request = UpdateApplicationPriorityRequestProto {
            application_id: id.proto(),
            application_priority: PriorityProto { priority: Some(priority) },
        };
        let call = &method::UPDATE_APPLICATION_PRIORITY;
        let answer = self.call_idempotent(call, &request, deadline).await?;
        let now = answer.application_priority;
        Ok(now.map_or(priority, |now| now.priority()))
    }

    /// Changes when an application will be ended; when that is now, as the ResourceManager says.
    pub async fn set_expiry(
        &self,
        id: ApplicationId,
        end: SystemTime,
        deadline: Instant,
    ) -> Result<SystemTime, RpcError> {
        let lifetime = ApplicationTimeoutTypeProto::AppTimeoutLifetime;
        let request = UpdateApplicationTimeoutsRequestProto {
            application_id: id.proto(),
            application_timeouts: vec![ApplicationUpdateTimeoutMapProto {
                application_timeout_type: Some(lifetime.into()),
                expire_time: Some(timestamp::format(end)),
            }],
        };
        let call = &method::UPDATE_APPLICATION_TIMEOUTS;
        let answer = self.call_idempotent(call, &request, deadline).await?;
        let now = answer
            .application_timeouts
            .iter()
            .find(|entry| entry.application_timeout_type() == lifetime);
        Ok(now.and_then(|entry| timestamp::parse(entry.expire_time())).unwrap_or(end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_does_not_know_names_must_not_count_for_us() {
        let filter = ApplicationFilter {
            name: Some("mine".into()),
            tags: vec!["Nightly".into()],
            limit: Some(1),
            started: Some(3..=5),
            ..ApplicationFilter::default()
        };
        let proto = filter.proto();
        assert_eq!((proto.limit, proto.name()), (None, "mine"));
        assert_eq!((proto.start_begin(), proto.start_end()), (3, 5));
        assert_eq!(proto.application_tags, ["nightly"]);
        assert_eq!(proto.finish_begin, None);
    }
}
