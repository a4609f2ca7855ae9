//! Handlers of heartbeat responses: grants, completions, warnings, recovered containers.

use super::{HeldContainer, RmClient, RmClientEnd};
use crate::backend::yarn::{BackendEvent, completions, size};
use std::collections::BTreeSet;
use tokio::time::Instant;
use yarn_native::{
    ledger::{Key, LedgerReply},
    scheduler::AllocateResponse,
    types::{Container, ContainerId, NodeState},
};
use ydl_core::Event;

impl RmClient {
    pub(super) fn on_response(&mut self, response: AllocateResponse) -> Option<RmClientEnd> {
        self.nm_client.add_tokens(response.node_tokens.iter().cloned());
        let outcome = match self.ledger.on_reply(LedgerReply::from(&response)) {
            Ok(outcome) => outcome,
            Err(error) => return Some(RmClientEnd::Fenced(error.to_string())),
        };
        let wanted: BTreeSet<ContainerId> = outcome.wanted.iter().map(|g| g.container).collect();
        // Some versions do not report it.
        if response.priority.is_some() {
            self.priority.send_replace(response.priority);
        }
        let mut events = Vec::new();
        if response.cluster_nodes != self.node_count {
            self.node_count = response.cluster_nodes;
            let nodes = u32::try_from(self.node_count).unwrap_or(0);
            events.push(Event::NodesCounted { nodes });
        }
        self.on_completed(&response, &mut events);
        let granted = response.granted.iter().filter(|one| wanted.contains(&one.id));
        let granted = self.on_granted(granted.cloned().collect(), &mut events);
        self.on_recovered(&response.recovered);
        self.on_warnings(&response, &mut events);
        let now = Instant::now();
        let changed = !events.is_empty() || !outcome.surplus.is_empty();
        if !events.is_empty() {
            let reply = outcome.reply_count;
            let event = BackendEvent::Heartbeat { reply, granted, events };
            // The receiver lives as long as the master.
            let _ = self.backend_events.send(event);
        }
        if !response.nodes.is_empty() {
            self.update_required_nodes();
        }
        let awaiting = self.ledger.outstanding() > 0;
        self.interval.on_heartbeat(changed, awaiting, now);
        None
    }

    fn on_completed(&mut self, response: &AllocateResponse, events: &mut Vec<Event>) {
        let mut ended = Vec::new();
        for status in &response.completed {
            let Some(held) = self.held.remove(&status.id) else {
                continue;
            };
            let diagnostics = completions::summary_line(&status.diagnostics).unwrap_or_default();
            tracing::info!(container = %status.id, exit = %status.exit, "ended: {diagnostics}");
            let end =
                completions::container_exit(status.exit, &status.diagnostics, held.memory_mib);
            ended.push((status.id.to_string().into(), end));
        }
        if !ended.is_empty() {
            events.push(Event::Ended { containers: ended });
        }
    }

    fn on_granted(&mut self, granted: Vec<Container>, events: &mut Vec<Event>) -> Vec<Container> {
        let mut grants = Vec::new();
        let mut accepted = Vec::new();
        for container in granted {
            let key = key_of(&container);
            let Some(role) = self.ask_builder.role_of(key).cloned() else {
                self.ledger.release(container.id);
                continue;
            };
            self.hosts.on_grant(key, &container.node.host, &container.resource);
            self.track(&container);
            grants.push(ydl_core::Grant {
                container: container.id.to_string().into(),
                role,
                node: container.node.host.as_str().into(),
                resources: size::from_yarn(&container.resource),
            });
            accepted.push(container);
        }
        if !grants.is_empty() {
            events.push(Event::Granted { grants });
        }
        accepted
    }

    pub(in crate::backend::yarn) fn track(&mut self, container: &Container) {
        let held = HeldContainer {
            node: Some(container.node.clone()),
            memory_mib: u64::try_from(container.resource.memory_mib).unwrap_or(0),
        };
        self.held.insert(container.id, held);
    }

    /// Handles containers of earlier attempts that nodes reported late. Releases those that were given up.
    pub(super) fn on_recovered(&mut self, containers: &[Container]) {
        for container in containers {
            self.ledger.adopt(container.id);
            match self.held.contains_key(&container.id) {
                true => self.track(container),
                false => self.ledger.release(container.id),
            }
        }
    }

    /// Warns of containers that will be preempted or run on a node that is being decommissioned.
    fn on_warnings(&mut self, response: &AllocateResponse, events: &mut Vec<Event>) {
        let mut warned = BTreeSet::new();
        if let Some(preemption) = &response.preemption {
            let named = preemption.strict.iter().chain(&preemption.negotiable);
            warned.extend(named.filter(|id| self.held.contains_key(id)).copied());
        }
        for report in &response.nodes {
            tracing::info!(node = %report.id, state = %report.state, "node state changed");
            self.hosts.update(report);
            if report.state == NodeState::Decommissioning {
                let affected =
                    self.held.iter().filter(|(_, held)| held.node.as_ref() == Some(&report.id));
                warned.extend(affected.map(|(id, _)| *id));
            }
        }
        events.extend(
            warned
                .into_iter()
                .map(|id| Event::PreemptionWarned { container: id.to_string().into() }),
        );
    }
}

fn key_of(container: &Container) -> Key {
    Key { priority: container.priority, allocation: container.request_id }
}
