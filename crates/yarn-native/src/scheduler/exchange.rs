//! A beat of a master that keeps a [`Ledger`], and how the ledger's words become the scheduler's.

use std::collections::BTreeSet;

use tokio::time::Instant;

use crate::ledger::{Execution, Grant, Key, Ledger, LedgerReply, ReplyOutcome, Row};
use crate::scheduler::{AllocateRequest, AllocateResponse, AmRmClient, Ask, SchedulerError};
use crate::types::{Container, ContainerId, ExecutionType};

impl AmRmClient {
    /// One beat in which a ledger decides what is asked for, given back and avoided. `rest` is asked
    /// for all else there is to say; what it says of those matters is left out. Of the containers
    /// granted the answer has those that were wanted; the others are given back with the next beat.
    ///
    /// A master that uses it says nothing by [`AmRmClient::allocate`], or the ledger would not know.
    /// After [`SchedulerError::NotRegistered`] it registers again and goes on: the ledger then says
    /// everything anew. After [`SchedulerError::Rejected`] the same would be said again, so something
    /// else has to be wanted first.
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
        let mut answer = match self.allocate(request, deadline).await {
            Ok(answer) => answer,
            Err(error) => {
                match error {
                    SchedulerError::NotRegistered => ledger.on_resync(),
                    // What has no answer is said again, by the ledger as by the session.
                    SchedulerError::NoResponse(_) => {}
                    _ => ledger.on_rejected(),
                }
                return Err(error);
            }
        };
        let taken = ledger.on_reply(LedgerReply::from(&answer));
        let taken = taken.map_err(|error| self.invalid_response(&error.to_string()))?;
        for container in &answer.recovered {
            ledger.adopt(container.id);
        }
        let wanted: BTreeSet<ContainerId> = taken.wanted.iter().map(|g| g.container).collect();
        answer.granted.retain(|one| wanted.contains(&one.id));
        Ok((answer, taken))
    }
}

impl AllocateRequest {
    fn with_rest(self, rest: AllocateRequest) -> Self {
        Self {
            asks: self.asks,
            releases: self.releases,
            exclude: self.exclude,
            readmit: self.readmit,
            ..rest
        }
    }
}

/// A ledger's line is one row of an ask.
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

/// What a ledger has to say, and nothing else. Its number is left out: the [`AmRmClient`] counts.
impl From<crate::ledger::LedgerRequest<ContainerId>> for AllocateRequest {
    fn from(said: crate::ledger::LedgerRequest<ContainerId>) -> Self {
        Self {
            asks: said.rows.iter().map(Ask::from).collect(),
            releases: said.releases,
            exclude: said.exclude,
            readmit: said.readmit,
            ..Self::default()
        }
    }
}

/// What a ledger needs to know of a container.
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

/// What a ledger needs to know of an answer.
impl From<&AllocateResponse> for LedgerReply<ContainerId> {
    fn from(answer: &AllocateResponse) -> Self {
        Self {
            response_id: answer.response_id,
            granted: answer.granted.iter().map(Grant::from).collect(),
            completed: answer.completed.iter().map(|status| status.id).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::Locality;
    use crate::types::Resource;

    #[test]
    fn a_line_says_as_an_ask_all_that_it_means() {
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
