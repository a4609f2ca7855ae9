//! Readiness for a round: inputs are fetched, ports and devices are reserved.

use super::Agent;
use crate::agent::{
    ports::{PortRequest, PortReservation, PortSlot},
    yarn_container::is_of_this_node,
};
use std::net::{IpAddr, Ipv4Addr};
use ydl_core::{Endpoint, TaskId};
use ydl_proto::messages::AgentReport;
use ydl_storage::data::DataError;

/// Round and ports of the latest readiness report.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Readiness {
    round: u32,
    ports: Vec<(String, bool)>,
    slot: (u32, u32),
}

impl Agent {
    /// Returns true if the task's inputs are complete; otherwise starts fetching them.
    pub(super) fn has_inputs(&mut self, task: &TaskId, round: u32) -> bool {
        let wanted = Some((task.clone(), round));
        // A failure is reported once per round; the master decides what follows.
        if self.latest_fetch == wanted {
            return self.inputs_complete;
        }
        // Files that a program has changed or removed are fetched again for the next round; the rest is verified and
        // stays.
        self.latest_fetch = wanted;
        self.inputs_complete = false;
        if self.fetch.as_ref().is_some_and(|fetch| fetch.task == *task) {
            return false;
        }
        self.fetch = None;
        let plan = match self.task_env.plan(&self.submitted, task) {
            Ok(plan) if plan.is_empty() => {
                self.inputs_complete = true;
                return true;
            }
            Ok(plan) => plan,
            Err(why) => {
                self.report(AgentReport::SetupFailed { reason: why, node_fault: false });
                return false;
            }
        };
        let started = self.task_env.fetch(plan, &self.submitted, task.clone());
        match started {
            Ok(fetch) => self.fetch = Some(fetch),
            Err(error) => {
                let why = format!("cannot fetch its inputs: {error}");
                self.report(AgentReport::SetupFailed { reason: why, node_fault: true });
            }
        }
        false
    }

    pub(super) fn on_inputs_fetched(&mut self, fetched: Result<(), DataError>) {
        self.fetch = None;
        match fetched {
            Ok(()) => self.inputs_complete = true,
            // Another node may have space, or access to HDFS. An input that is unavailable everywhere is the task's
            // failure.
            Err(error) => {
                let (reason, node_fault) = (error.sentence(), error.of_node);
                self.report(AgentReport::SetupFailed { reason, node_fault });
            }
        }
    }

    pub(super) fn prepare_round(
        &mut self,
        round: u32,
        ports: Vec<(String, bool)>,
        slot: (u32, u32),
    ) {
        let ready = Readiness { round, ports, slot };
        if self.ready.as_ref() == Some(&ready) {
            return;
        }
        let held =
            self.ready.as_ref().is_some_and(|old| old.ports == ready.ports && old.slot == slot);
        let report = match (
            self.unfit_reason.clone().or_else(|| self.devices.short.clone()),
            self.take_ports(&ready.ports, slot, held),
        ) {
            (None, Ok(endpoint)) => AgentReport::Ready { round, endpoint },
            (None, Err(why)) => AgentReport::SetupFailed { reason: why, node_fault: false },
            (Some(why), _) => AgentReport::SetupFailed { reason: why, node_fault: true },
        };
        // Reported once per round; the master decides what follows.
        self.ready = Some(ready);
        self.report(report);
    }

    fn take_ports(
        &mut self,
        ports: &[(String, bool)],
        slot: (u32, u32),
        same: bool,
    ) -> Result<Endpoint, String> {
        let host = self.bootstrap.host.clone();
        // A node that peers reach by name, or by an address that is not its own, listens on all interfaces.
        let own = host.parse().ok().filter(|ip| is_of_this_node(*ip));
        let ip = own.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let range = self.submitted.spec.ports;
        match &mut self.port_reservation {
            Some(reservation) if same => reservation.retake().map_err(|e| e.to_string())?,
            _ => {
                self.port_reservation = None;
                let need =
                    |(name, keep): &(String, bool)| PortRequest { name: name.clone(), keep: *keep };
                let needs: Vec<_> = ports.iter().map(need).collect();
                let slot = PortSlot { index: slot.0, of: slot.1 };
                let reservation = PortReservation::take(ip, &needs, range.first..=range.last, slot);
                self.port_reservation = Some(reservation.map_err(|e| e.to_string())?);
            }
        }
        let ports = self.port_reservation.as_ref().map(PortReservation::ports).unwrap_or_default();
        Ok(Endpoint { host, ports })
    }
}
