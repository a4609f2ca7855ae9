//! Events of an agent's loop, and the wait for the next one.

use super::{Agent, CALL_MAX, LEAVE_MAX, master_connection::MasterConnection};
use crate::agent::{
    exec::ExecError,
    program::{Program, StartError},
    shim_protocol::ShimExit,
};
use hyper::{Method, StatusCode};
use std::time::Duration;
use tokio::{
    signal::unix::Signal,
    time::{Instant, sleep_until},
};
use ydl_core::Order;
use ydl_net::client::CallError;
use ydl_proto::messages::{NumberedRequest, SyncReply};
use ydl_storage::data::DataError;

/// Reply of the master to a sync.
pub(super) enum MasterReply {
    NoChange,
    Order(SyncReply),
    Requests(Vec<NumberedRequest>),
}

/// Event that the agent's loop handles.
pub(super) enum AgentEvent {
    Replied {
        /// Time of the request.
        sent_at: Instant,
        reply: Result<MasterReply, CallError>,
    },
    Started(Result<Program, StartError>),
    Exited(ShimExit),
    KillIsDue,
    InputsFetched(Result<(), DataError>),
    Restored(Option<(u32, Result<(), String>)>),
    CheckpointsSaved,
    /// The last logs, checkpoints and outputs are saved, as far as ordered; with the error of the outputs.
    Finished(Option<String>),
    MasterMoved(String),
    TokensFetched(bool),
    Terminated,
    CutOff,
}

impl Agent {
    /// Waits for the next event: a reply to the sync that starts at `next_sync`, a step of the program, a signal, or
    /// `cut_off`, the time at which the master counts as lost.
    pub(super) async fn next_event(
        &mut self,
        term: &mut Signal,
        next_sync: Instant,
        cut_off: Instant,
    ) -> AgentEvent {
        let payload = self.build_sync();
        self.end_if_halted();
        let interval = self.heartbeat_interval();
        let path = format!("/v1/sync?wait_ms={}", interval.as_millis());
        let (client, mut moved) = self.master.split();
        let sync = async {
            sleep_until(next_sync).await;
            let Some(payload) = payload else {
                return std::future::pending().await;
            };
            let sent_at = Instant::now();
            let call = client.call(Method::POST, &path, payload, interval + CALL_MAX);
            let reply = match call.await {
                Ok(response) if response.status == StatusCode::NO_CONTENT => {
                    Ok(MasterReply::NoChange)
                }
                Ok(response) if response.status == StatusCode::ACCEPTED => {
                    response.json().map(MasterReply::Requests)
                }
                Ok(response) => response.json().map(MasterReply::Order),
                Err(error) => Err(error),
            };
            AgentEvent::Replied { sent_at, reply }
        };
        let abort_at = self.starting.as_ref().and_then(|it| it.abort_at);
        let kill_at = self.running.as_ref().and_then(|it| it.kill_at);
        let kill_at = kill_at.or(abort_at);
        let start = async {
            match &mut self.starting {
                Some(starting) => (&mut starting.program).await,
                None => std::future::pending().await,
            }
        };
        // After a termination signal there may be no master: on one machine there is no successor.
        let timeout = match self.is_terminating {
            true => LEAVE_MAX,
            false => Duration::from_millis(self.submitted.spec.timeouts.heartbeat.0),
        };
        let exit = async {
            match &mut self.running {
                Some(running) => running.exited(timeout).await,
                None => std::future::pending().await,
            }
        };
        let kill = async {
            match kill_at {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let finished = async {
            match &mut self.finishing {
                Some(finishing) => finishing.await,
                None => std::future::pending().await,
            }
        };
        let tokens_fetched = async {
            match &mut self.tokens.fetching {
                Some(fetching) => fetching.await.unwrap_or(false),
                None => std::future::pending().await,
            }
        };
        let inputs_fetched = async {
            match &mut self.fetch {
                Some(fetch) => fetch.wait().await,
                None => std::future::pending().await,
            }
        };
        let restored = async {
            match &mut self.restore {
                Some(restoring) => restoring.await.ok(),
                None => std::future::pending().await,
            }
        };
        let waits = matches!(self.order, Some(Order::Wait { .. }));
        let saving = waits && !self.uploads.is_saved();
        let lost = |_| Err(StartError::Program(ExecError::other("starting it failed".into())));
        tokio::select! {
            started = start => AgentEvent::Started(started.unwrap_or_else(lost)),
            exit = exit => AgentEvent::Exited(exit),
            () = kill => AgentEvent::KillIsDue,
            fetched = inputs_fetched => AgentEvent::InputsFetched(fetched),
            restored = restored => AgentEvent::Restored(restored),
            () = self.uploads.saved(), if saving => AgentEvent::CheckpointsSaved,
            finished = finished => AgentEvent::Finished(finished.unwrap_or_else(|_| Some("copying them failed".into()))),
            Some(()) = term.recv() => AgentEvent::Terminated,
            () = sleep_until(cut_off), if !self.is_terminating => AgentEvent::CutOff,
            fetched = tokens_fetched => AgentEvent::TokensFetched(fetched),
            address = MasterConnection::moved(&mut moved) => AgentEvent::MasterMoved(address),
            replied = sync => replied,
        }
    }
}
