//! Application attempts and their containers.

use tokio::time::Instant;

use crate::client::Client;
use crate::proto::yarn::application_client_protocol as method;
use crate::proto::yarn::{
    FailApplicationAttemptRequestProto, GetApplicationAttemptReportRequestProto,
    GetApplicationAttemptsRequestProto, GetContainerReportRequestProto, GetContainersRequestProto,
    SignalContainerRequestProto,
};
use crate::rpc::{RpcError, Safety};
use crate::types::{
    ApplicationId, AttemptId, AttemptReport, ContainerId, ContainerReport, InvalidMessage, Signal,
};

impl Client {
    /// Returns the attempts of an application, oldest first.
    pub async fn attempts(
        &self,
        id: ApplicationId,
        deadline: Instant,
    ) -> Result<Vec<AttemptReport>, RpcError> {
        let request = GetApplicationAttemptsRequestProto { application_id: Some(id.proto()) };
        let call = &method::GET_APPLICATION_ATTEMPTS;
        let answer = self.call_idempotent(call, &request, deadline).await?;
        let reports = answer.application_attempts.iter().map(AttemptReport::of);
        let mut reports: Vec<_> = self.decode(call.name, reports.collect())?;
        reports.sort_by_key(|report| report.id.number);
        Ok(reports)
    }

    /// Returns the report of an attempt.
    pub async fn attempt(
        &self,
        id: AttemptId,
        deadline: Instant,
    ) -> Result<AttemptReport, RpcError> {
        let request =
            GetApplicationAttemptReportRequestProto { application_attempt_id: Some(id.proto()) };
        let call = &method::GET_APPLICATION_ATTEMPT_REPORT;
        let answer = self.call_idempotent(call, &request, deadline).await?;
        let report = answer.application_attempt_report;
        let report = report.ok_or(InvalidMessage("the report"));
        self.decode(call.name, report.and_then(|report| AttemptReport::of(&report)))
    }

    /// Returns the live containers of an attempt.
    pub async fn containers(
        &self,
        id: AttemptId,
        deadline: Instant,
    ) -> Result<Vec<ContainerReport>, RpcError> {
        let request = GetContainersRequestProto { application_attempt_id: Some(id.proto()) };
        let call = &method::GET_CONTAINERS;
        let answer = self.call_idempotent(call, &request, deadline).await?;
        let reports = answer.containers.iter().map(ContainerReport::of);
        let mut reports: Vec<_> = self.decode(call.name, reports.collect())?;
        reports.sort_by_key(|report| report.id);
        Ok(reports)
    }

    /// Returns the report of a container.
    pub async fn container(
        &self,
        id: ContainerId,
        deadline: Instant,
    ) -> Result<ContainerReport, RpcError> {
        let request = GetContainerReportRequestProto { container_id: Some(id.proto()) };
        let call = &method::GET_CONTAINER_REPORT;
        let answer = self.call_idempotent(call, &request, deadline).await?;
        let report = answer.container_report.ok_or(InvalidMessage("the report"));
        self.decode(call.name, report.and_then(|report| ContainerReport::of(&report)))
    }

    /// Sends a signal to a container with its node's next heartbeat. The container must be running:
    /// NodeManagers mistake an earlier signal for the start and never start the container.
    pub async fn signal(
        &self,
        id: ContainerId,
        signal: Signal,
        deadline: Instant,
    ) -> Result<(), RpcError> {
        let request = SignalContainerRequestProto {
            container_id: id.proto(),
            command: signal.proto().into(),
        };
        let (call, safety) = (&method::SIGNAL_TO_CONTAINER, Safety::Once);
        self.channel.call(call, &request, deadline, safety).await?;
        Ok(())
    }

    /// Fails an attempt, as if its ApplicationMaster had failed. The next attempt starts if one is
    /// left.
    pub async fn fail_attempt(&self, id: AttemptId, deadline: Instant) -> Result<(), RpcError> {
        let request =
            FailApplicationAttemptRequestProto { application_attempt_id: Some(id.proto()) };
        let (call, safety) = (&method::FAIL_APPLICATION_ATTEMPT, Safety::Once);
        self.channel.call(call, &request, deadline, safety).await?;
        Ok(())
    }
}
