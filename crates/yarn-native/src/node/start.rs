//! Starting containers exactly once; a response may cover only some of them.

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::Instant;

use crate::node::{ContainerError, ContainerErrorKind, NmClient, NodeError};
use crate::proto::yarn::container_management_protocol as method;
use crate::proto::yarn::{
    StartContainerRequestProto, StartContainersRequestProto, StartContainersResponseProto,
};
use crate::rpc::Safety;
use crate::types::{Container, ContainerId, InvalidMessage, LaunchContext, NodeId};

/// Start of a container.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// Container, as granted by the scheduler.
    pub container: &'a Container,
    /// Launch context.
    pub launch: &'a LaunchContext,
}

/// Results of a start call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StartOutcome {
    /// Containers that are being started.
    pub started: Vec<ContainerId>,
    /// Containers that were rejected.
    pub failed: Vec<(ContainerId, ContainerError)>,
    /// Data of the node's auxiliary services, by service name.
    pub services: BTreeMap<String, Vec<u8>>,
}

impl NmClient {
    /// Starts containers on one node. Some may be rejected while the others are started.
    ///
    /// If a response is lost the call is repeated, and containers that the node reports as already
    /// started count as started.
    pub async fn start(
        &self,
        node: &NodeId,
        starts: &[Start<'_>],
        deadline: Instant,
    ) -> Result<StartOutcome, NodeError> {
        let one = |start: &Start<'_>| StartContainerRequestProto {
            container_launch_context: Some(start.launch.proto()),
            container_token: Some(start.container.token.proto()),
        };
        let request = StartContainersRequestProto {
            start_container_request: starts.iter().map(one).collect(),
        };
        let ids: Vec<ContainerId> = starts.iter().map(|start| start.container.id).collect();
        let mut repeated = false;
        loop {
            let call = &method::START_CONTAINERS;
            let answer = self.call(node, call, &request, deadline, Safety::Once);
            match answer.await {
                Ok(answer) => {
                    return self.read(node, call.name, StartOutcome::of(&answer, &ids, repeated));
                }
                Err(error) if error.is_connection_lost() && self.may_wait(deadline) => {
                    repeated = true;
                    self.wait().await;
                }
                // Failing to reach the node a second time says nothing about the first call.
                Err(NodeError::Unreachable { node, source }) if repeated => {
                    return Err(NodeError::NoResponse { node, source });
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl StartOutcome {
    pub(crate) fn of(
        proto: &StartContainersResponseProto,
        requested: &[ContainerId],
        repeated: bool,
    ) -> Result<Self, InvalidMessage> {
        let mut outcome = Self::default();
        for id in &proto.succeeded_requests {
            outcome.started.push(ContainerId::of(Some(id))?);
        }
        for failure in &proto.failed_requests {
            let (id, error) = ContainerError::of(failure)?;
            if repeated && error.kind == ContainerErrorKind::AlreadyStarted {
                outcome.started.push(id);
            } else {
                outcome.failed.push((id, error));
            }
        }
        for service in &proto.services_meta_data {
            let (name, data) = (service.key().to_owned(), service.value().to_vec());
            outcome.services.insert(name, data);
        }
        outcome.account_for(requested);
        Ok(outcome)
    }

    /// Adds an error for every container that the response does not mention, and drops containers
    /// that were not requested.
    fn account_for(&mut self, requested: &[ContainerId]) {
        let mut unreported: BTreeSet<ContainerId> = requested.iter().copied().collect();
        self.started.retain(|id| unreported.remove(id));
        self.failed.retain(|(id, _)| unreported.remove(id));
        let missing = unreported.into_iter().map(|id| (id, ContainerError::missing()));
        self.failed.extend(missing);
    }
}
