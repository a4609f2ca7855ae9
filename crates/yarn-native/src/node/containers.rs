//! What can be done with containers that have been started.

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

/// For each container what came of it, in the order in which they were named.
pub type PerContainer<T> = Vec<(ContainerId, Result<T, ContainerError>)>;

named! {
    /// How far the fetching of a file has come.
    pub enum LocalisationState: LocalizationStateProto, "state of localisation" {
        /// It is under way.
        Pending = LPending "PENDING",
        /// The file is there.
        Completed = LCompleted "COMPLETED",
        /// It could not be fetched.
        Failed = LFailed "FAILED",
    }
}

/// A file that is fetched for a container.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Localisation {
    /// Its name in the container's directory.
    pub name: String,
    /// How far it has come.
    pub state: LocalisationState,
    /// What went wrong.
    pub diagnostics: String,
}

impl Localisation {
    pub(crate) fn of(proto: &LocalizationStatusProto) -> Result<Self, InvalidMessage> {
        let state = proto.localization_state;
        Ok(Self {
            name: proto.resource_key().to_owned(),
            state: LocalisationState::of(state.ok_or(InvalidMessage("a state of localisation"))?)?,
            diagnostics: proto.diagnostics().to_owned(),
        })
    }
}

impl NmClient {
    /// Stops containers: SIGTERM, and SIGKILL a quarter of a second later
    /// (`yarn.nodemanager.sleep-delay-before-sigkill.ms`). That they have ended, the scheduler
    /// tells.
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
        // What is stopped can be stopped again.
        let answer = self.call(node, call, &request, deadline, Safety::Idempotent);
        let answer = answer.await?;
        let done = || {
            let stopped = answer.succeeded_requests.iter();
            let stopped = stopped.map(|id| Ok((ContainerId::of(Some(id))?, ())));
            each(containers, stopped, &answer.failed_requests, missing)
        };
        self.read(node, call.name, done())
    }

    /// How containers are. One that ended a while ago is not known to its node any more.
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
        let told = || {
            let statuses = answer.status.into_iter();
            let statuses = statuses.map(|status| {
                let status = ContainerStatus::of(status)?;
                Ok((status.id, status))
            });
            each(containers, statuses, &answer.failed_requests, missing)
        };
        self.read(node, call.name, told())
    }

    /// Tells a node of containers that the scheduler has changed, each by its new token
    /// ([`AllocateResponse::updated`](crate::scheduler::AllocateResponse::updated)): larger or promoted ones. Until
    /// then they are as before.
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
        let done = || {
            let updated = answer.succeeded_requests.iter();
            let updated = updated.map(|id| Ok((ContainerId::of(Some(id))?, ())));
            each(&ids, updated, &answer.failed_requests, missing)
        };
        self.read(node, call.name, done())
    }

    /// Sends a signal to a container's process. One that has ended gets none, and that is no error.
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

    /// How far the fetching of containers' files has come (Hadoop 3.3). Right after its start a
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
        let told = || {
            let files = answer.cntn_localization_statuses.iter().map(|told| {
                let files = told.localization_statuses.iter().map(Localisation::of);
                let id = ContainerId::of(told.container_id.as_ref())?;
                Ok((id, files.collect::<Result<_, _>>()?))
            });
            each(containers, files, &answer.failed_requests, || Ok(Vec::new()))
        };
        self.read(node, call.name, told())
    }

    /// Fetches more files for a running container, by the names they get in its directory.
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

    /// Ends what runs in a container, and starts something else in it. Unless it is committed at
    /// once, [`NmClient::commit`] makes it final and [`NmClient::roll_back`] undoes it.
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

    /// Ends what runs in a container, and starts it again in the same container.
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

    /// Goes back to what ran in a container before [`NmClient::reinitialise`].
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

    /// Makes final what [`NmClient::reinitialise`] started.
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

/// For a container that a node's answer leaves out.
fn missing<T>() -> Result<T, ContainerError> {
    Err(ContainerError::missing())
}

/// What a node said of each container that was asked about, or `missing` of one it left out.
fn each<T>(
    asked: &[ContainerId],
    done: impl Iterator<Item = Result<(ContainerId, T), InvalidMessage>>,
    refused: &[ContainerExceptionMapProto],
    missing: impl Fn() -> Result<T, ContainerError>,
) -> Result<PerContainer<T>, InvalidMessage> {
    let mut told = std::collections::HashMap::new();
    for one in done {
        let (id, value) = one?;
        told.insert(id, Ok(value));
    }
    for one in refused {
        let (id, error) = ContainerError::of(one)?;
        told.insert(id, Err(error));
    }
    let one = |id: &ContainerId| {
        let outcome = told.remove(id);
        (*id, outcome.unwrap_or_else(&missing))
    };
    Ok(asked.iter().map(one).collect())
}
