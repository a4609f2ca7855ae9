//! Operations on started containers.

use tokio::time::Instant;

use crate::node::{ContainerError, NmClient, NodeError};
use crate::proto::yarn::container_management_protocol as method;
use crate::proto::yarn::{
    ContainerExceptionMapProto, ContainerUpdateRequestProto, GetContainerStatusesRequestProto,
    GetLocalizationStatusesRequestProto, LocalizationStateProto, LocalizationStatusProto,
    ReInitializeContainerRequestProto, ResourceLocalizationRequestProto,
    SignalContainerRequestProto, StopContainersRequestProto, StringLocalResourceMapProto,
};
use crate::rpc::Safety;
use crate::types::named::named;
use crate::types::{
    Container, ContainerId, ContainerStatus, InvalidMessage, LaunchContext, LocalResource, NodeId,
    Signal,
};

/// Results per container, in the order of the request.
pub type PerContainer<T> = Vec<(ContainerId, Result<T, ContainerError>)>;

named! {
    /// State of a file's download.
    pub enum LocalisationState: LocalizationStateProto, "localisation state" {
        /// Downloading.
        Pending = LPending "PENDING",
        /// Downloaded.
        Completed = LCompleted "COMPLETED",
        /// Failed.
        Failed = LFailed "FAILED",
    }
}

/// Download of a file for a container.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Localisation {
    /// Name in the container's directory.
    pub name: String,
    /// Current state.
    pub state: LocalisationState,
    /// Error message.
    pub diagnostics: String,
}

impl Localisation {
    pub(crate) fn of(proto: &LocalizationStatusProto) -> Result<Self, InvalidMessage> {
        let state = proto.localization_state;
        Ok(Self {
            name: proto.resource_key().to_owned(),
            state: LocalisationState::of(state.ok_or(InvalidMessage("a localisation state"))?)?,
            diagnostics: proto.diagnostics().to_owned(),
        })
    }
}

impl NmClient {
    /// Stops containers: SIGTERM, and SIGKILL a quarter of a second later
    /// (`yarn.nodemanager.sleep-delay-before-sigkill.ms`). The scheduler reports their end.
    pub async fn stop(
        &self,
        node: &NodeId,
        containers: &[ContainerId],
        deadline: Instant,
    ) -> Result<PerContainer<()>, NodeError> {
        let request = StopContainersRequestProto {
            container_id: containers.iter().map(ContainerId::proto).collect(),
        };
        let call = &method::STOP_CONTAINERS;
        // Stopping a container twice is harmless.
        let answer = self.call(node, call, &request, deadline, Safety::Idempotent);
        let answer = answer.await?;
        let results = || {
            let stopped = answer.succeeded_requests.iter();
            let stopped = stopped.map(|id| Ok((ContainerId::of(Some(id))?, ())));
            each(containers, stopped, &answer.failed_requests, missing)
        };
        self.read(node, call.name, results())
    }

    /// Returns the status of containers. A node forgets containers some time after their end.
    pub async fn status(
        &self,
        node: &NodeId,
        containers: &[ContainerId],
        deadline: Instant,
    ) -> Result<PerContainer<ContainerStatus>, NodeError> {
        let request = GetContainerStatusesRequestProto {
            container_id: containers.iter().map(ContainerId::proto).collect(),
        };
        let call = &method::GET_CONTAINER_STATUSES;
        let answer = self.call(node, call, &request, deadline, Safety::Idempotent);
        let answer = answer.await?;
        let results = || {
            let statuses = answer.status.into_iter();
            let statuses = statuses.map(|status| {
                let status = ContainerStatus::of(status)?;
                Ok((status.id, status))
            });
            each(containers, statuses, &answer.failed_requests, missing)
        };
        self.read(node, call.name, results())
    }

    /// Applies updates granted by the scheduler
    /// ([`AllocateResponse::updated`](crate::scheduler::AllocateResponse::updated)), each by its
    /// new token: larger or promoted containers. Until then they run unchanged.
    pub async fn update(
        &self,
        node: &NodeId,
        containers: &[&Container],
        deadline: Instant,
    ) -> Result<PerContainer<()>, NodeError> {
        let ids: Vec<ContainerId> = containers.iter().map(|container| container.id).collect();
        let request = ContainerUpdateRequestProto {
            update_container_token: containers.iter().map(|c| c.token.proto()).collect(),
        };
        let call = &method::UPDATE_CONTAINER;
        let answer = self.call(node, call, &request, deadline, Safety::Once);
        let answer = answer.await?;
        let results = || {
            let updated = answer.succeeded_requests.iter();
            let updated = updated.map(|id| Ok((ContainerId::of(Some(id))?, ())));
            each(&ids, updated, &answer.failed_requests, missing)
        };
        self.read(node, call.name, results())
    }

    /// Sends a signal to a container's process. For an ended container this is a no-op.
    pub async fn signal(
        &self,
        node: &NodeId,
        container: ContainerId,
        signal: Signal,
        deadline: Instant,
    ) -> Result<(), NodeError> {
        let request = SignalContainerRequestProto {
            container_id: container.proto(),
            command: signal.proto().into(),
        };
        let call = &method::SIGNAL_TO_CONTAINER;
        self.call(node, call, &request, deadline, Safety::Once).await?;
        Ok(())
    }

    /// Returns the download states of containers' files (Hadoop 3.3). Right after its start a
    /// container may have none.
    pub async fn localisation(
        &self,
        node: &NodeId,
        containers: &[ContainerId],
        deadline: Instant,
    ) -> Result<PerContainer<Vec<Localisation>>, NodeError> {
        let request = GetLocalizationStatusesRequestProto {
            container_id: containers.iter().map(ContainerId::proto).collect(),
        };
        let call = &method::GET_LOCALIZATION_STATUSES;
        let answer = self.call(node, call, &request, deadline, Safety::Idempotent);
        let answer = answer.await?;
        let results = || {
            let files = answer.cntn_localization_statuses.iter().map(|container| {
                let files = container.localization_statuses.iter().map(Localisation::of);
                let id = ContainerId::of(container.container_id.as_ref())?;
                Ok((id, files.collect::<Result<_, _>>()?))
            });
            each(containers, files, &answer.failed_requests, || Ok(Vec::new()))
        };
        self.read(node, call.name, results())
    }

    /// Downloads more files for a running container. Each is given with its name in the container's
    /// directory.
    pub async fn localise<'a>(
        &self,
        node: &NodeId,
        container: ContainerId,
        files: impl IntoIterator<Item = (&'a str, &'a LocalResource)>,
        deadline: Instant,
    ) -> Result<(), NodeError> {
        let one = |(name, file): (&str, &LocalResource)| StringLocalResourceMapProto {
            key: Some(name.to_owned()),
            value: Some(file.proto()),
        };
        let request = ResourceLocalizationRequestProto {
            container_id: Some(container.proto()),
            local_resources: files.into_iter().map(one).collect(),
        };
        let call = &method::LOCALIZE;
        self.call(node, call, &request, deadline, Safety::Once).await?;
        Ok(())
    }

    /// Replaces the process of a container. Unless committed at once, [`NmClient::commit`] makes
    /// the change final and [`NmClient::roll_back`] undoes it.
    pub async fn reinitialise(
        &self,
        node: &NodeId,
        container: ContainerId,
        launch: &LaunchContext,
        commit: bool,
        deadline: Instant,
    ) -> Result<(), NodeError> {
        let request = ReInitializeContainerRequestProto {
            container_id: Some(container.proto()),
            container_launch_context: Some(launch.proto()),
            auto_commit: Some(commit),
        };
        let call = &method::RE_INITIALIZE_CONTAINER;
        self.call(node, call, &request, deadline, Safety::Once).await?;
        Ok(())
    }

    /// Restarts the process of a container.
    pub async fn restart(
        &self,
        node: &NodeId,
        container: ContainerId,
        deadline: Instant,
    ) -> Result<(), NodeError> {
        let (call, request) = (&method::RESTART_CONTAINER, container.proto());
        self.call(node, call, &request, deadline, Safety::Once).await?;
        Ok(())
    }

    /// Restores the process from before [`NmClient::reinitialise`].
    pub async fn roll_back(
        &self,
        node: &NodeId,
        container: ContainerId,
        deadline: Instant,
    ) -> Result<(), NodeError> {
        let (call, request) = (&method::ROLLBACK_LAST_RE_INITIALIZATION, container.proto());
        self.call(node, call, &request, deadline, Safety::Once).await?;
        Ok(())
    }

    /// Makes the last [`NmClient::reinitialise`] final.
    pub async fn commit(
        &self,
        node: &NodeId,
        container: ContainerId,
        deadline: Instant,
    ) -> Result<(), NodeError> {
        let (call, request) = (&method::COMMIT_LAST_RE_INITIALIZATION, container.proto());
        self.call(node, call, &request, deadline, Safety::Once).await?;
        Ok(())
    }
}

/// Returns the error for a container that a response leaves out.
fn missing<T>() -> Result<T, ContainerError> {
    Err(ContainerError::missing())
}

/// Collects the results of a response in the order of the request; `missing` provides those it
/// leaves out.
fn each<T>(
    requested: &[ContainerId],
    succeeded: impl Iterator<Item = Result<(ContainerId, T), InvalidMessage>>,
    failed: &[ContainerExceptionMapProto],
    missing: impl Fn() -> Result<T, ContainerError>,
) -> Result<PerContainer<T>, InvalidMessage> {
    let mut results = std::collections::HashMap::new();
    for one in succeeded {
        let (id, value) = one?;
        results.insert(id, Ok(value));
    }
    for one in failed {
        let (id, error) = ContainerError::of(one)?;
        results.insert(id, Err(error));
    }
    let one = |id: &ContainerId| {
        let outcome = results.remove(id);
        (*id, outcome.unwrap_or_else(&missing))
    };
    Ok(requested.iter().map(one).collect())
}
