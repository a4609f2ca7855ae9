//! Submitting an application, and following it.

use tokio::time::Instant;

use crate::client::Client;
use crate::proto::yarn::application_client_protocol as method;
use crate::proto::yarn::{
    ApplicationReportProto, ApplicationSubmissionContextProto, GetApplicationReportRequestProto,
    KillApplicationRequestProto, PriorityProto, SubmitApplicationRequestProto,
};
use crate::rpc::{RpcError, Safety};
use crate::token::Token;
use crate::types::{ApplicationId, ApplicationReport, LaunchContext, Resource, Unfit};

/// An application to be submitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submission {
    /// Its id, from [`Client::new_application`].
    pub id: ApplicationId,
    /// Its name.
    pub name: String,
    /// Its type, as `YARN`.
    pub kind: String,
    /// Its queue.
    pub queue: String,
    /// Its master's container.
    pub resource: Resource,
    /// What is started in it. An unmanaged master needs none.
    pub launch: LaunchContext,
    /// Whether its master runs outside the cluster, with the token that
    /// [`Client::master_token`] gives.
    pub unmanaged: bool,
    /// Whether containers outlive the attempt they were given to.
    pub keep_containers: bool,
    /// How often its master is started; none leaves it to the cluster.
    pub attempts_max: Option<u32>,
}

impl Submission {
    /// An application in queue `default` with a small master.
    pub fn new(id: ApplicationId, name: impl Into<String>) -> Self {
        Self {
            id,
            name: name.into(),
            kind: "YARN".into(),
            queue: "default".into(),
            resource: Resource::new(256, 1),
            launch: LaunchContext::default(),
            unmanaged: false,
            keep_containers: false,
            attempts_max: None,
        }
    }

    fn proto(&self) -> ApplicationSubmissionContextProto {
        ApplicationSubmissionContextProto {
            application_id: Some(self.id.proto()),
            application_name: Some(self.name.clone()),
            queue: Some(self.queue.clone()),
            priority: Some(PriorityProto { priority: Some(0) }),
            am_container_spec: Some(self.launch.proto()),
            unmanaged_am: Some(self.unmanaged),
            max_app_attempts: self.attempts_max.map(|n| n.try_into().unwrap_or(i32::MAX)),
            resource: Some(self.resource.proto()),
            application_type: Some(self.kind.clone()),
            keep_containers_across_application_attempts: Some(self.keep_containers),
            ..ApplicationSubmissionContextProto::default()
        }
    }
}

impl Client {
    /// Submits an application. Twice does no harm. What is wrong with its queue or tokens shows
    /// only in its report.
    pub async fn submit(&self, submission: &Submission, deadline: Instant) -> Result<(), RpcError> {
        let request = SubmitApplicationRequestProto {
            application_submission_context: Some(submission.proto()),
        };
        let (call, safety) = (&method::SUBMIT_APPLICATION, Safety::Idempotent);
        self.channel.call(call, &request, deadline, safety).await?;
        Ok(())
    }

    /// What the ResourceManager tells about an application.
    pub async fn application(
        &self,
        id: ApplicationId,
        deadline: Instant,
    ) -> Result<ApplicationReport, RpcError> {
        let report = self.report(id, deadline).await?;
        let name = method::GET_APPLICATION_REPORT.name;
        self.read(name, ApplicationReport::of(&report))
    }

    /// The token of an unmanaged master, once its attempt waits for it. It is the owner's to ask.
    pub async fn master_token(
        &self,
        id: ApplicationId,
        deadline: Instant,
    ) -> Result<Option<Token>, RpcError> {
        let report = self.report(id, deadline).await?;
        Ok(report.am_rm_token.map(Token::of))
    }

    async fn report(
        &self,
        id: ApplicationId,
        deadline: Instant,
    ) -> Result<ApplicationReportProto, RpcError> {
        let request = GetApplicationReportRequestProto {
            application_id: Some(id.proto()),
        };
        let (call, safety) = (&method::GET_APPLICATION_REPORT, Safety::Idempotent);
        let answer = self.channel.call(call, &request, deadline, safety).await?;
        let report = answer.application_report;
        self.read(call.name, report.ok_or(Unfit("the report")))
    }

    /// Asks for an application to be ended. Whether it has been; it takes several calls.
    pub async fn kill(&self, id: ApplicationId, deadline: Instant) -> Result<bool, RpcError> {
        let request = KillApplicationRequestProto {
            application_id: Some(id.proto()),
            diagnostics: None,
        };
        let (call, safety) = (&method::FORCE_KILL_APPLICATION, Safety::Idempotent);
        let answer = self.channel.call(call, &request, deadline, safety).await?;
        Ok(answer.is_kill_completed())
    }
}
