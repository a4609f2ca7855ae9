//! Starting containers, which must not happen twice and may be answered in part.

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::Instant;

use crate::node::{ContainerError, ContainerErrorKind, NmClient, NodeError};
use crate::proto::yarn::container_management_protocol as method;
use crate::proto::yarn::{
    StartContainerRequestProto, StartContainersRequestProto, StartContainersResponseProto,
};
use crate::rpc::Safety;
use crate::types::{Container, ContainerId, InvalidMessage, LaunchContext, NodeId};

/// A container, and what to start in it.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// The container, as the scheduler gave it.
    pub container: &'a Container,
    /// What to start.
    pub launch: &'a LaunchContext,
}

/// What became of the containers of one call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StartOutcome {
    /// Those that are being started.
    pub started: Vec<ContainerId>,
    /// Those that are not.
    pub failed: Vec<(ContainerId, ContainerError)>,
    /// What the node's auxiliary services tell, by their names.
    pub services: BTreeMap<String, Vec<u8>>,
}

impl NmClient {
    /// Starts containers of one node. Each can be refused, while the others are started.
    ///
    /// Where an answer is lost the call is made again, and what the node then says it has started
    /// before counts as started.
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
                Err(error) if error.is_cut_off() && self.may_wait(deadline) => {
                    repeated = true;
                    self.wait().await;
                }
                // That the node could not be reached a second time says nothing of the first.
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
        asked: &[ContainerId],
        repeated: bool,
    ) -> Result<Self, InvalidMessage> {
        let mut outcome = Self::default();
        for id in &proto.succeeded_requests {
            outcome.started.push(ContainerId::of(Some(id))?);
        }
        for refused in &proto.failed_requests {
            let (id, error) = ContainerError::of(refused)?;
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
        outcome.account_for(asked);
        Ok(outcome)
    }

    /// Nobody is left waiting for a container that the node forgot to mention, or told of one that
    /// was not asked for.
    fn account_for(&mut self, asked: &[ContainerId]) {
        let mut untold: BTreeSet<ContainerId> = asked.iter().copied().collect();
        self.started.retain(|id| untold.remove(id));
        self.failed.retain(|(id, _)| untold.remove(id));
        let missing = untold.into_iter().map(|id| (id, ContainerError::missing()));
        self.failed.extend(missing);
    }
}
