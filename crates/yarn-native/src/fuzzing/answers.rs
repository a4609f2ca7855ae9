//! Responses of ResourceManagers and NodeManagers, from bytes to the public types.

use std::fmt::Debug;

use prost::Message;

use super::split_selector;
use crate::node::{ContainerError, Localisation, StartOutcome};
use crate::proto::yarn;
use crate::scheduler::{AllocateResponse, RegisterResponse};
use crate::token::Token;
use crate::types::{
    ApplicationReport, AttemptReport, Attribute, AttributeName, ClusterMetrics, ContainerReport,
    ContainerStatus, NodeLabel, NodeReport, Queue, QueuePermissions, ResourceTypeInfo,
};

/// Decodes a response; the first byte selects the call.
pub fn answers(bytes: &[u8]) {
    let Some((pick, rest)) = split_selector(bytes) else {
        return;
    };
    match pick % 12 {
        0 => read(rest, |answer: yarn::AllocateResponseProto| shown(AllocateResponse::of(answer))),
        1 => read(rest, |answer: yarn::RegisterApplicationMasterResponseProto| {
            shown(RegisterResponse::of(answer));
        }),
        2 => read(rest, |answer: yarn::GetApplicationsResponseProto| {
            each(&answer.applications, ApplicationReport::of);
        }),
        3 => read(rest, |answer: yarn::GetApplicationReportResponseProto| {
            let report = answer.application_report.unwrap_or_default();
            shown(ApplicationReport::of(&report));
            shown(report.am_rm_token.map(Token::of));
        }),
        4 => read(rest, |answer: yarn::GetClusterNodesResponseProto| {
            each(&answer.node_reports, NodeReport::of);
        }),
        5 => read(rest, |answer: yarn::GetQueueInfoResponseProto| {
            shown(answer.queue_info.as_ref().map(Queue::of));
        }),
        6 => read(rest, |answer: yarn::GetApplicationAttemptsResponseProto| {
            each(&answer.application_attempts, AttemptReport::of);
        }),
        7 => read(rest, |answer: yarn::GetContainersResponseProto| {
            each(&answer.containers, ContainerReport::of);
        }),
        8 => read(rest, |answer: yarn::StartContainersResponseProto| {
            each(&answer.failed_requests, ContainerError::of);
            shown(StartOutcome::of(&answer, &[], true));
        }),
        9 => read(rest, |answer: yarn::GetContainerStatusesResponseProto| {
            each(&answer.failed_requests, ContainerError::of);
            answer.status.into_iter().map(ContainerStatus::of).for_each(shown);
        }),
        10 => read(rest, |answer: yarn::GetLocalizationStatusesResponseProto| {
            for container in &answer.cntn_localization_statuses {
                each(&container.localization_statuses, Localisation::of);
            }
        }),
        _ => cluster(rest),
    }
}

/// Decodes the small responses about the cluster.
fn cluster(bytes: &[u8]) {
    read(bytes, |answer: yarn::GetClusterMetricsResponseProto| {
        shown(answer.cluster_metrics.as_ref().map(ClusterMetrics::of));
    });
    read(bytes, |answer: yarn::GetQueueUserAclsInfoResponseProto| {
        each(&answer.queue_user_acls, QueuePermissions::of);
    });
    read(bytes, |answer: yarn::GetClusterNodeLabelsResponseProto| {
        each(&answer.node_labels, NodeLabel::of);
    });
    read(bytes, |answer: yarn::GetNodesToAttributesResponseProto| {
        for entry in &answer.nodes_to_attributes {
            each(&entry.node_attributes, Attribute::of);
        }
    });
    read(bytes, |answer: yarn::GetAttributesToNodesResponseProto| {
        for entry in &answer.attributes_to_nodes {
            shown(AttributeName::of(&entry.node_attribute));
        }
    });
    read(bytes, |answer: yarn::GetAllResourceTypeInfoResponseProto| {
        each(&answer.resource_type_info, ResourceTypeInfo::of);
    });
}

fn read<M: Message + Default>(bytes: &[u8], then: impl FnOnce(M)) {
    if let Ok(message) = M::decode(bytes) {
        then(message);
    }
}

fn each<P, T: Debug>(protos: &[P], of: impl Fn(&P) -> T) {
    protos.iter().map(of).for_each(shown);
}

fn shown(value: impl Debug) {
    let _ = format!("{value:?}");
}
