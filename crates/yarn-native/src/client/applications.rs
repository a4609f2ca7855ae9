//! Listing, watching, changing and killing applications.

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

/// Polling interval while an application is being killed.
const KILL_POLL_INTERVAL: Duration = Duration::from_millis(200);

named! {
    /// Set of applications to list, by access.
    pub enum ApplicationScope: ApplicationsRequestScopeProto, "scope" {
        /// All applications.
        All = All "ALL",
        /// Applications the caller may view.
        Viewable = Viewable "VIEWABLE",
        /// Applications of the caller.
        Own = Own "OWN",
    }
}

/// Filter for applications; empty fields do not restrict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApplicationFilter {
    /// States to include.
    pub states: Vec<ApplicationState>,
    /// Application types to include.
    pub kinds: Vec<String>,
    /// Users to include.
    pub users: Vec<String>,
    /// Queues to include.
    pub queues: Vec<String>,
    /// Tags to include.
    pub tags: Vec<String>,
    /// Exact application name.
    pub name: Option<String>,
    /// Range of the submission time, in milliseconds.
    pub started: Option<RangeInclusive<i64>>,
    /// Range of the finish time, in milliseconds.
    pub finished: Option<RangeInclusive<i64>>,
    /// Set of applications, by access.
    pub scope: Option<ApplicationScope>,
    /// Maximum number of results.
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
            // A server without name filters returns applications of any name, so its limit must not
            // cut off matches.
            limit: match self.name {
                None => self.limit.map(i64::from),
                Some(_) => None,
            },
            start_begin: begin(&self.started),
            start_end: end(&self.started),
            finish_begin: begin(&self.finished),
            finish_end: end(&self.finished),
            // YARN stores tags in lower case.
            application_tags: self.tags.iter().map(|tag| tag.to_lowercase()).collect(),
            scope: self.scope.map(|scope| scope.proto().into()),
            name: self.name.clone(),
        }
    }
}

impl Client {
    /// Returns the applications that match the filter.
    pub async fn applications(
        &self,
        filter: &ApplicationFilter,
        deadline: Instant,
    ) -> Result<Vec<ApplicationReport>, RpcError> {
        let call = &method::GET_APPLICATIONS;
        let answer = self.call_idempotent(call, &filter.proto(), deadline).await?;
        let reports = answer.applications.iter().map(ApplicationReport::of);
        let mut reports: Vec<_> = self.decode(call.name, reports.collect())?;
        // Servers before Hadoop 3.3 ignore the name filter.
        if let Some(name) = &filter.name {
            reports.retain(|report| report.name == *name);
            reports.truncate(filter.limit.map_or(usize::MAX, |limit| limit as usize));
        }
        Ok(reports)
    }

    /// Returns the report of an application.
    pub async fn application(
        &self,
        id: ApplicationId,
        deadline: Instant,
    ) -> Result<ApplicationReport, RpcError> {
        let report = self.report(id, deadline).await?;
        let name = method::GET_APPLICATION_REPORT.name;
        self.decode(name, ApplicationReport::of(&report))
    }

    /// Returns the AMRM token of an unmanaged ApplicationMaster once its attempt is waiting for
    /// registration. Only the owner receives it.
    ///
    /// With Kerberos the ResourceManager compares the owner's short name (`alice`) with the
    /// caller's principal (`alice@REALM`) and never returns the token. An impersonated user
    /// ([`Identity::acting_for`](crate::security::Identity::acting_for), `HADOOP_PROXY_USER`) is
    /// known by the short name and receives it. Otherwise the ApplicationMaster must run in a
    /// container.
    pub async fn master_token(
        &self,
        id: ApplicationId,
        deadline: Instant,
    ) -> Result<Option<Token>, RpcError> {
        let report = self.report(id, deadline).await?;
        Ok(report.am_rm_token.map(Token::of))
    }

    /// Returns the token that authenticates a client to the ApplicationMaster. Available only on
    /// secure clusters while the ApplicationMaster runs.
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

    /// Requests that an application be killed. Returns whether it has ended, which takes several
    /// calls.
    pub async fn kill(&self, id: ApplicationId, deadline: Instant) -> Result<bool, RpcError> {
        self.kill_with_reason(id, None, deadline).await
    }

    /// Kills an application and waits until it has ended; `why` is added to its diagnostics.
    /// Returns whether it ended before the deadline.
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

    /// Moves an application with its containers to another queue.
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

    /// Changes an application's priority in its queue. Returns the effective priority, which the
    /// cluster may have capped.
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

    /// Changes the time at which an application expires. Returns the time confirmed by the
    /// ResourceManager.
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
    fn limit_is_not_sent_with_a_name_filter() {
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
