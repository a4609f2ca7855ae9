//! Fields of responses.

use prost::Message;

use super::response;
use crate::noise::Noise;
use crate::proto::common::TokenProto;
use crate::proto::yarn::{
    AllocateResponseProto, ContainerProto, ContainerStateProto, ContainerStatusProto, NmTokenProto,
    NodeReportProto, PreemptionContainerProto, PreemptionContractProto, PreemptionMessageProto,
    RegisterApplicationMasterResponseProto, RejectedSchedulingRequestProto, RejectionReasonProto,
    SchedulingRequestProto, StrictPreemptionContractProto,
};
use crate::scheduler::{AllocateResponse, RegisterResponse};
use crate::types::{ContainerId, ExitStatus, NodeId, Resource};

/// Returns a response with something in every list.
fn full_answer(id: ContainerId, node: &NodeId) -> AllocateResponseProto {
    let status = ContainerStatusProto {
        container_id: Some(id.proto()),
        state: Some(ContainerStateProto::CComplete.into()),
        exit_status: Some(-102),
        diagnostics: Some("Container preempted by scheduler".into()),
        ..ContainerStatusProto::default()
    };
    let preempted = || vec![PreemptionContainerProto { id: Some(id.proto()) }];
    AllocateResponseProto {
        allocated_containers: vec![ContainerProto {
            id: Some(id.proto()),
            node_id: Some(node.proto()),
            resource: Some(Resource::new(64, 1).proto()),
            container_token: Some(TokenProto::default()),
            allocation_request_id: Some(7),
            ..ContainerProto::default()
        }],
        completed_container_statuses: vec![status],
        nm_tokens: vec![NmTokenProto {
            node_id: Some(node.proto()),
            token: Some(TokenProto::default()),
        }],
        // With a state that only a later version knows.
        updated_nodes: vec![NodeReportProto {
            node_id: Some(node.proto()),
            node_state: Some(99),
            ..NodeReportProto::default()
        }],
        preempt: Some(PreemptionMessageProto {
            strict_contract: Some(StrictPreemptionContractProto { container: preempted() }),
            contract: Some(PreemptionContractProto {
                resource: Vec::new(),
                container: preempted(),
            }),
        }),
        num_cluster_nodes: Some(3),
        limit: Some(Resource::new(1, 1).proto()),
        rejected_scheduling_requests: vec![RejectedSchedulingRequestProto {
            reason: RejectionReasonProto::RrpCouldNotPlaceOnNode.into(),
            request: SchedulingRequestProto::default(),
        }],
        ..response(1)
    }
}

#[test]
fn all_fields_of_a_response_are_read() {
    let id: ContainerId = "container_e01_1_0001_01_000002".parse().expect("an id");
    let node: NodeId = "n:1".parse().expect("an id");
    let answer = AllocateResponse::of(full_answer(id, &node)).expect("an answer");
    assert_eq!(answer.granted[0].request_id, 7);
    assert_eq!(answer.completed[0].exit, ExitStatus::Preempted);
    assert_eq!(answer.node_tokens[0].node, node);
    assert_eq!(answer.nodes, []);
    let preemption = answer.preemption.expect("a notice");
    assert_eq!((preemption.strict, preemption.negotiable), (vec![id], vec![id]));
    assert_eq!(answer.cluster_nodes, 3);
    let nameless = AllocateResponseProto {
        allocated_containers: vec![ContainerProto::default()],
        ..response(1)
    };
    assert!(AllocateResponse::of(nameless).is_err());
}

#[test]
fn damaged_responses_do_not_panic() {
    let id: ContainerId = "container_e01_1_0001_01_000002".parse().expect("an id");
    let node: NodeId = "n:1".parse().expect("an id");
    let sound = full_answer(id, &node).encode_to_vec();
    let mut noise = Noise::new(4);
    let mut read = 0;
    for _ in 0..20_000 {
        let bytes = noise.mutated(&sound);
        let Ok(proto) = AllocateResponseProto::decode(&bytes[..]) else {
            continue;
        };
        if let Ok(answer) = AllocateResponse::of(proto) {
            read += 1;
            let _ = format!("{answer:?}");
        }
        if let Ok(proto) = RegisterApplicationMasterResponseProto::decode(&bytes[..]) {
            let _ = format!("{:?}", RegisterResponse::of(proto));
        }
    }
    assert!(read > 100, "only {read} were read");
}
