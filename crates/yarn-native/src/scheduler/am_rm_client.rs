//! A master's line to the scheduler.

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

/// The ResourceManager needs a moment to write an end down.
const FINISH_PAUSE: Duration = Duration::from_millis(100);
/// Pause before a registration is tried again whose answer was lost.
const REGISTER_PAUSE: Duration = Duration::from_millis(200);

/// A master's line to the scheduler of the ResourceManager, or of whichever of several is active.
///
/// There is one for each attempt, and one call at a time. Calls can be cut short: what was said and
/// not answered is said again by the next.
#[derive(Debug)]
pub struct AmRmClient {
    channel: Channel,
    session: Session,
    /// The last registration, for a master that has to register again only to finish.
    registration: Option<Registration>,
    /// Whether the ResourceManager may have heard of the end.
    finishing: bool,
}

impl AmRmClient {
    /// A line to the scheduler at any of `addresses`, for the master that holds the attempt's token
    /// (of the kind `YARN_AM_RM_TOKEN`).
    pub fn new(addresses: Vec<Address>, token: Token, options: Options) -> Result<Self, RpcError> {
        let identity = Identity::token(token);
        let channel = Channel::new(Protocol::APPLICATION_MASTER, addresses, identity, options)?;
        Ok(Self::with_channel(channel))
    }

    /// A line to the scheduler that a configuration names.
    pub fn from_config(config: &Config, token: Token) -> Result<Self, SetupError> {
        let managers = config.resource_managers()?.into_iter();
        let addresses = managers.map(|manager| manager.scheduler).collect();
        let options = config.resource_manager_options()?;
        Ok(Self::new(addresses, token, options)?)
    }

    /// A line on a channel that speaks [`Protocol::APPLICATION_MASTER`].
    pub fn with_channel(channel: Channel) -> Self {
        Self { channel, session: Session::Unregistered, registration: None, finishing: false }
    }

    /// Whether the master is registered, as far as it knows.
    pub fn is_registered(&self) -> bool {
        self.session.is_registered()
    }

    /// Registers the master; also again, when the ResourceManager has forgotten it
    /// ([`SchedulerError::NotRegistered`]).
    pub async fn register(
        &mut self,
        registration: &Registration,
        deadline: Instant,
    ) -> Result<RegisterResponse, SchedulerError> {
        let request = registration.proto();
        let call = &method::REGISTER_APPLICATION_MASTER;
        let answer = loop {
            // A second registration is refused, so it has to be known whether there was a first.
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

    /// One beat: says what has changed, and hears what has happened. `fresh` is asked for what to
    /// say when everything said before has been answered; otherwise that is said again. So asks are
    /// best counted in it, and not before.
    ///
    /// Grants come with a later beat than the ask: after an ask 20 ms later, and then less and less
    /// often, up to a second, is a good pace. With nothing to wait for a master still has to beat
    /// (`yarn.am.liveness-monitor.expiry-interval-ms`, ten minutes or more), and learns of ends and
    /// preemption only when it does.
    pub async fn allocate(
        &mut self,
        fresh: impl FnOnce() -> AllocateRequest,
        deadline: Instant,
    ) -> Result<AllocateResponse, SchedulerError> {
        let call = &method::ALLOCATE;
        let request = self.session.next_request(fresh)?;
        // Repeated with its number it does no harm.
        let answer = self.channel.call(call, request, deadline, Safety::Idempotent);
        let heard = match answer.await {
            Ok(answer) => self.on_response(answer),
            Err(error) => Err(error.into()),
        };
        if let Err(error) = &heard {
            self.session.on_error(error);
        }
        heard
    }

    fn on_response(
        &mut self,
        mut answer: AllocateResponseProto,
    ) -> Result<AllocateResponse, SchedulerError> {
        let command = answer.a_m_command.map(AmCommandProto::try_from);
        match command {
            Some(Ok(AmCommandProto::AmResync)) => return Err(SchedulerError::NotRegistered),
            Some(Ok(AmCommandProto::AmShutdown)) => {
                let reason = "the ResourceManager told the master to end".to_owned();
                return Err(SchedulerError::AttemptEnded { reason });
            }
            Some(Err(_)) | None => {}
        }
        let token = answer.am_rm_token.take().map(Token::of);
        let mut heard = self.read(method::ALLOCATE.name, AllocateResponse::of(answer))?;
        // An answer to something else says nothing of what became of this.
        if self.session.expected_response() != Some(heard.response_id) {
            return Err(
                self.invalid_response(&format!("answer {} is out of turn", heard.response_id))
            );
        }
        self.session.on_response(heard.response_id);
        if let Some(token) = token {
            // It is sent until a connection is made with it, and the old one ends some time later.
            self.channel.replace_identity(Identity::token(token));
            heard.token_replaced = true;
        }
        Ok(heard)
    }

    /// Ends the application. The master has to stay until this returns.
    pub async fn finish(
        &mut self,
        finish: &Finish,
        deadline: Instant,
    ) -> Result<(), SchedulerError> {
        let request = finish.proto();
        let call = &method::FINISH_APPLICATION_MASTER;
        loop {
            let answer = self.channel.call(call, &request, deadline, Safety::Once);
            let heard = match answer.await {
                Ok(answer) => Ok(answer.is_unregistered()),
                Err(RpcError::Unanswered { .. }) => Ok(false),
                Err(error) => Err(SchedulerError::from(error)),
            };
            match heard {
                Ok(true) => break,
                Ok(false) => self.finishing = true,
                // An earlier call has been carried out to its end.
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
        // Nobody is to be registered again only to hear of an end twice.
        self.registration = None;
        self.session = Session::Unregistered;
        Ok(())
    }

    /// An answer that makes no sense is the server's fault.
    fn read<T>(
        &self,
        method: &str,
        answer: Result<T, InvalidMessage>,
    ) -> Result<T, SchedulerError> {
        answer.map_err(|unfit| {
            SchedulerError::NoResponse(self.channel.invalid_response(method, &unfit.to_string()))
        })
    }

    /// What an answer to a beat is that makes no sense.
    pub(super) fn invalid_response(&self, why: &str) -> SchedulerError {
        SchedulerError::NoResponse(self.channel.invalid_response(method::ALLOCATE.name, why))
    }
}
