//! Client of the ApplicationMaster protocol.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::config::{Config, SetupError};
use crate::proto::yarn::application_master_protocol as method;
use crate::proto::yarn::{AllocateResponseProto, AmCommandProto};
use crate::rpc::{Address, Channel, Options, Protocol, RpcError, Safety};
use crate::scheduler::session::Session;
use crate::scheduler::{
    AllocateRequest, AllocateResponse, Finish, RegisterResponse, Registration, SchedulerError,
};
use crate::security::Identity;
use crate::token::Token;
use crate::types::InvalidMessage;

/// Pause between calls while the ResourceManager stores the end of the application.
const FINISH_PAUSE: Duration = Duration::from_millis(100);
/// Pause before a registration with a lost response is retried.
const REGISTER_PAUSE: Duration = Duration::from_millis(200);

/// Client of the active ResourceManager's scheduler, for one attempt of an application.
///
/// There is one per attempt, and one call at a time. A call may be cancelled: a request without a
/// response is sent again by the next call.
#[derive(Debug)]
pub struct AmRmClient {
    channel: Channel,
    session: Session,
    /// Last registration, for a master that has to register again only to finish.
    registration: Option<Registration>,
    /// True once the ResourceManager may have processed a finish call.
    finishing: bool,
}

impl AmRmClient {
    /// Creates a client for the scheduler at any of `addresses`. `token` is the attempt's token, of
    /// the kind `YARN_AM_RM_TOKEN`.
    pub fn new(addresses: Vec<Address>, token: Token, options: Options) -> Result<Self, RpcError> {
        let identity = Identity::token(token);
        let channel = Channel::new(Protocol::APPLICATION_MASTER, addresses, identity, options)?;
        Ok(Self::with_channel(channel))
    }

    /// Creates a client for the scheduler named by a configuration.
    pub fn from_config(config: &Config, token: Token) -> Result<Self, SetupError> {
        let managers = config.resource_managers()?.into_iter();
        let addresses = managers.map(|manager| manager.scheduler).collect();
        let options = config.resource_manager_options()?;
        Ok(Self::new(addresses, token, options)?)
    }

    /// Creates a client on a channel that speaks [`Protocol::APPLICATION_MASTER`].
    pub fn with_channel(channel: Channel) -> Self {
        Self { channel, session: Session::Unregistered, registration: None, finishing: false }
    }

    /// Returns true if the master is registered, as far as it knows.
    pub fn is_registered(&self) -> bool {
        self.session.is_registered()
    }

    /// Registers the master, also again after [`SchedulerError::NotRegistered`].
    pub async fn register(
        &mut self,
        registration: &Registration,
        deadline: Instant,
    ) -> Result<RegisterResponse, SchedulerError> {
        let request = registration.proto();
        let call = &method::REGISTER_APPLICATION_MASTER;
        let answer = loop {
            // A second registration is rejected, so it must be known whether the first one
            // succeeded.
            let answer = self.channel.call(call, &request, deadline, Safety::Once);
            match answer.await {
                Ok(answer) => break answer,
                Err(RpcError::Unanswered { .. }) if Instant::now() + REGISTER_PAUSE < deadline => {
                    sleep(REGISTER_PAUSE).await;
                }
                Err(error) => {
                    let error = SchedulerError::from(error);
                    if let SchedulerError::AlreadyRegistered { .. } = error
                        && !self.session.is_registered()
                    {
                        self.session.on_registered();
                        self.registration = Some(registration.clone());
                    }
                    return Err(error);
                }
            }
        };
        self.session.on_registered();
        self.registration = Some(registration.clone());
        self.read(call.name, RegisterResponse::of(answer))
    }

    /// Sends one heartbeat with the changes since the last one, and returns what has happened.
    /// `fresh` builds the request if every earlier request has a response; otherwise the earlier
    /// one is sent again. So compute the asks in it, not before.
    ///
    /// Grants come with a later heartbeat than the ask: wait 20 ms after an ask, then increasingly
    /// longer, up to a second. A master must heartbeat even with nothing to wait for
    /// (`yarn.am.liveness-monitor.expiry-interval-ms`, ten minutes or more), and learns of
    /// completed containers and preemption only by heartbeats.
    pub async fn allocate(
        &mut self,
        fresh: impl FnOnce() -> AllocateRequest,
        deadline: Instant,
    ) -> Result<AllocateResponse, SchedulerError> {
        let call = &method::ALLOCATE;
        let request = self.session.next_request(fresh)?;
        // A repeated request is applied once, thanks to its response id.
        let answer = self.channel.call(call, request, deadline, Safety::Idempotent);
        let response = match answer.await {
            Ok(answer) => self.on_response(answer),
            Err(error) => Err(error.into()),
        };
        if let Err(error) = &response {
            self.session.on_error(error);
        }
        response
    }

    fn on_response(
        &mut self,
        mut answer: AllocateResponseProto,
    ) -> Result<AllocateResponse, SchedulerError> {
        let command = answer.a_m_command.map(AmCommandProto::try_from);
        match command {
            Some(Ok(AmCommandProto::AmResync)) => return Err(SchedulerError::NotRegistered),
            Some(Ok(AmCommandProto::AmShutdown)) => {
                let reason = "the ResourceManager ordered the master to shut down".to_owned();
                return Err(SchedulerError::AttemptEnded { reason });
            }
            Some(Err(_)) | None => {}
        }
        let token = answer.am_rm_token.take().map(Token::of);
        let mut response = self.read(method::ALLOCATE.name, AllocateResponse::of(answer))?;
        // A response to another request does not tell the result of this one.
        if self.session.expected_response() != Some(response.response_id) {
            return Err(
                self.invalid_response(&format!("unexpected response id {}", response.response_id))
            );
        }
        self.session.on_response(response.response_id);
        if let Some(token) = token {
            // It is used for new connections; the old token stays valid for some time.
            self.channel.replace_identity(Identity::token(token));
            response.token_replaced = true;
        }
        Ok(response)
    }

    /// Finishes the application. The master has to keep running until this returns.
    pub async fn finish(
        &mut self,
        finish: &Finish,
        deadline: Instant,
    ) -> Result<(), SchedulerError> {
        let request = finish.proto();
        let call = &method::FINISH_APPLICATION_MASTER;
        loop {
            let answer = self.channel.call(call, &request, deadline, Safety::Once);
            let response = match answer.await {
                Ok(answer) => Ok(answer.is_unregistered()),
                Err(RpcError::Unanswered { .. }) => Ok(false),
                Err(error) => Err(SchedulerError::from(error)),
            };
            match response {
                Ok(true) => break,
                Ok(false) => self.finishing = true,
                // An earlier call succeeded, but its response was lost.
                Err(SchedulerError::AttemptEnded { .. }) if self.finishing => break,
                Err(SchedulerError::NotRegistered) => {
                    self.session = Session::Unregistered;
                    let registration = self.registration.clone();
                    let registration = registration.ok_or(SchedulerError::NotRegistered)?;
                    self.register(&registration, deadline).await?;
                }
                Err(error) => {
                    self.finishing |= matches!(error, SchedulerError::NoResponse(_));
                    self.session.on_error(&error);
                    return Err(error);
                }
            }
            if Instant::now() + FINISH_PAUSE >= deadline {
                return Err(SchedulerError::FinishTimeout);
            }
            sleep(FINISH_PAUSE).await;
        }
        // Prevents another registration by a repeated finish call.
        self.registration = None;
        self.session = Session::Unregistered;
        Ok(())
    }

    /// Reports an invalid response as a protocol error of the server.
    fn read<T>(
        &self,
        method: &str,
        answer: Result<T, InvalidMessage>,
    ) -> Result<T, SchedulerError> {
        answer.map_err(|invalid| {
            SchedulerError::NoResponse(self.channel.invalid_response(method, &invalid.to_string()))
        })
    }

    /// Returns the error for an invalid allocate response.
    pub(super) fn invalid_response(&self, why: &str) -> SchedulerError {
        SchedulerError::NoResponse(self.channel.invalid_response(method::ALLOCATE.name, why))
    }
}
