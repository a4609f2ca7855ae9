//! Allocate calls of a master with a [`Ledger`], and the conversions between both.

use std::collections::BTreeSet;

use tokio::time::Instant;

use crate::ledger::{Execution, Grant, Key, Ledger, LedgerReply, ReplyOutcome, Row};
use crate::scheduler::{AllocateRequest, AllocateResponse, AmRmClient, Ask, SchedulerError};
use crate::types::{Container, ContainerId, ExecutionType};

impl AmRmClient {
    /// Sends one allocate call in which the ledger determines asks, releases and exclusions. `rest`
    /// provides all other fields; its asks, releases and exclusions are ignored. The response lists
    /// only the granted containers that were wanted; the next call releases the others.
    ///
    /// A master that uses it must not call [`AmRmClient::allocate`], which would bypass the ledger.
    /// After [`SchedulerError::NotRegistered`] it registers again and continues: the ledger then
    /// sends everything again. After [`SchedulerError::Rejected`] it has to change the wants first,
    /// or the same request is sent again.
    ///
    /// ```no_run
    /// # use std::{collections::BTreeMap, time::Duration};
    /// # use tokio::time::{Instant, sleep};
    /// # use yarn_native::{ledger::{Key, Ledger, Want}, scheduler::*, types::*};
    /// # async fn example(scheduler: &mut AmRmClient) -> Result<(), Box<dyn std::error::Error>> {
    /// # let soon = || Instant::now() + Duration::from_secs(30);
    /// let mut ledger: Ledger<ContainerId> = Ledger::new();
    /// let two = Want::anywhere(2, Resource::new(512, 1));
    /// let key = Key { priority: 1, allocation: 7 };
    /// ledger.set_wants(BTreeMap::from([(key, two)]), ledger.reply_count());
    /// while ledger.outstanding() > 0 {
    ///     let (answer, _) = scheduler.exchange(&mut ledger, AllocateRequest::default, soon()).await?;
    ///     // Start what is in `answer.granted`.
    ///     sleep(Duration::from_millis(100)).await;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn exchange(
        &mut self,
        ledger: &mut Ledger<ContainerId>,
        rest: impl FnOnce() -> AllocateRequest,
        deadline: Instant,
    ) -> Result<(AllocateResponse, ReplyOutcome<ContainerId>), SchedulerError> {
        let request = || AllocateRequest::from(ledger.request()).with_rest(rest());
        let mut response = match self.allocate(request, deadline).await {
            Ok(response) => response,
            Err(error) => {
                match error {
                    SchedulerError::NotRegistered => ledger.on_resync(),
                    // A request without a response is sent again, by the ledger as by the session.
                    SchedulerError::NoResponse(_) => {}
                    _ => ledger.on_rejected(),
                }
                return Err(error);
            }
        };
        let outcome = ledger.on_reply(LedgerReply::from(&response));
        let outcome = outcome.map_err(|error| self.invalid_response(&error.to_string()))?;
        for container in &response.recovered {
            ledger.adopt(container.id);
        }
        let wanted: BTreeSet<ContainerId> = outcome.wanted.iter().map(|g| g.container).collect();
        response.granted.retain(|one| wanted.contains(&one.id));
        Ok((response, outcome))
    }
}

impl AllocateRequest {
    fn with_rest(self, mut rest: AllocateRequest) -> Self {
        let mut scheduling_requests = self.scheduling_requests;
        scheduling_requests.append(&mut rest.scheduling_requests);
        Self {
            asks: self.asks,
            releases: self.releases,
            exclude: self.exclude,
            readmit: self.readmit,
            scheduling_requests,
            ..rest
        }
    }
}

/// Converts a ledger row to an ask.
impl From<&Row> for Ask {
    fn from(row: &Row) -> Self {
        let (execution, enforce_execution) = match row.execution {
            Execution::Guaranteed => (ExecutionType::Guaranteed, false),
            Execution::Opportunistic { enforce } => (ExecutionType::Opportunistic, enforce),
        };
        Self {
            priority: row.key.priority,
            request_id: row.key.allocation,
            locality: row.name.as_str().into(),
            resource: row.resource.clone(),
            count: row.count,
            relax_locality: row.relax,
            label: row.label.clone(),
            execution,
            enforce_execution,
        }
    }
}

/// Converts a ledger request. The response id is left out: the [`AmRmClient`] counts.
impl From<crate::ledger::LedgerRequest<ContainerId>> for AllocateRequest {
    fn from(request: crate::ledger::LedgerRequest<ContainerId>) -> Self {
        Self {
            asks: request.rows.iter().map(Ask::from).collect(),
            releases: request.releases,
            exclude: request.exclude,
            readmit: request.readmit,
            scheduling_requests: request.scheduling_requests,
            ..Self::default()
        }
    }
}

/// Extracts the fields of a container that the ledger needs.
impl From<&Container> for Grant<ContainerId> {
    fn from(container: &Container) -> Self {
        Self {
            container: container.id,
            key: Key { priority: container.priority, allocation: container.request_id },
            host: container.node.host.clone(),
            resource: container.resource.clone(),
            opportunistic: container.execution == ExecutionType::Opportunistic,
        }
    }
}

/// Extracts the fields of a response that the ledger needs.
impl From<&AllocateResponse> for LedgerReply<ContainerId> {
    fn from(response: &AllocateResponse) -> Self {
        Self {
            response_id: response.response_id,
            granted: response.granted.iter().map(Grant::from).collect(),
            completed: response.completed.iter().map(|status| status.id).collect(),
            rejected: response.rejected.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::Locality;
    use crate::types::Resource;

    #[test]
    fn a_row_converts_to_an_ask_with_all_fields() {
        let row = Row {
            key: Key { priority: 3, allocation: 7 },
            name: "/rack".into(),
            count: 2,
            resource: Resource::new(64, 1),
            relax: false,
            label: Some("fast".into()),
            execution: Execution::Opportunistic { enforce: true },
        };
        let expected = Ask {
            priority: 3,
            request_id: 7,
            locality: Locality::Rack("/rack".into()),
            resource: Resource::new(64, 1),
            count: 2,
            relax_locality: false,
            label: Some("fast".into()),
            execution: ExecutionType::Opportunistic,
            enforce_execution: true,
        };
        assert_eq!(Ask::from(&row), expected);
    }
}
