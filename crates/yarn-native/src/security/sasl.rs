//! SASL handshake of a connection: the server offers methods, the client chooses one and
//! authenticates.

use crate::proto::common::RpcSaslProto;
use crate::proto::common::rpc_sasl_proto::{SaslAuth, SaslState};
use crate::security::digest::DigestClient;
use crate::security::error::SecurityError;
use crate::security::gssapi;
use crate::security::identity::{AuthMethod, Kerberos};
use crate::security::kerberos::KerberosClient;
use crate::security::layer::Layer;
use crate::security::principal::ClaimedPrincipal;
use crate::security::{Policy, ServerPrincipal};
use crate::token::Token;

/// Maximum number of rounds; Kerberos needs three.
const ROUNDS_MAX: u32 = 16;
/// Maximum number of offered methods.
const OFFERS_MAX: usize = 16;

/// Handshake of one connection. Messages in, messages out.
pub(crate) struct Handshake {
    auth: AuthMethod,
    policy: Policy,
    /// The host that was called, for principals with `_HOST`.
    server_host: String,
    state: HandshakeState,
    rounds: u32,
}

enum HandshakeState {
    Negotiating,
    Token(DigestClient),
    Kerberos(KerberosClient),
    Closed,
}

/// Next step of the handshake.
pub(crate) enum Step {
    /// Send this message and wait for a response.
    Send(RpcSaslProto),
    /// The handshake is complete; send this message if there is one.
    Done(Option<RpcSaslProto>, HandshakeOutcome),
}

/// Result of a handshake.
pub(crate) struct HandshakeOutcome {
    pub(crate) method: NegotiatedAuth,
    pub(crate) layer: Option<Layer>,
}

/// Authentication used by the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NegotiatedAuth {
    Simple { user: String },
    Token,
    Kerberos,
}

impl Handshake {
    pub(crate) fn new(auth: AuthMethod, policy: Policy, server_host: String) -> Self {
        Self { auth, policy, server_host, state: HandshakeState::Negotiating, rounds: 0 }
    }

    /// Returns the client's first message.
    pub(crate) fn negotiate_message() -> RpcSaslProto {
        message(SaslState::Negotiate, None)
    }

    /// Returns whether processing this message may block on a Kerberos server.
    pub(crate) fn may_block(&self, message: &RpcSaslProto) -> bool {
        let offered = || message.auths.iter().any(|offer| offer.method == "KERBEROS");
        match self.state {
            HandshakeState::Kerberos(_) => true,
            HandshakeState::Negotiating => {
                matches!(self.auth, AuthMethod::Kerberos(_)) && offered()
            }
            HandshakeState::Token(_) | HandshakeState::Closed => false,
        }
    }

    /// Returns the host to resolve before this offer can be verified.
    pub(crate) fn host_to_look_up(&self, offer: &RpcSaslProto) -> Option<String> {
        let principal = self.policy.server.as_ref()?;
        let (HandshakeState::Negotiating, AuthMethod::Kerberos(_)) = (&self.state, &self.auth)
        else {
            return None;
        };
        let auth = offer.auths.iter().find(|auth| auth.method == "KERBEROS")?;
        let claim = ClaimedPrincipal::new(auth.protocol(), auth.server_id()).ok()?;
        principal.needs_lookup(&claim, &self.server_host).then(|| claim.host().to_owned())
    }

    /// Processes the server's message. `is_peer` tells that the host from [`Self::host_to_look_up`]
    /// resolves to the peer's address.
    pub(crate) fn on_message(
        &mut self,
        message: RpcSaslProto,
        is_peer: bool,
    ) -> Result<Step, SecurityError> {
        self.rounds += 1;
        if self.rounds > ROUNDS_MAX {
            return Err(SecurityError::protocol("too many handshake rounds"));
        }
        let state = SaslState::try_from(message.state)
            .map_err(|_| SecurityError::protocol("unknown SASL state"))?;
        match (std::mem::replace(&mut self.state, HandshakeState::Closed), state) {
            (HandshakeState::Negotiating, SaslState::Success) => {
                self.simple("no authentication").map(|outcome| Step::Done(None, outcome))
            }
            (HandshakeState::Negotiating, SaslState::Negotiate) => {
                self.choose(message.auths, is_peer)
            }
            (HandshakeState::Token(client), SaslState::Success) => {
                let answer = message.token.unwrap_or_default();
                let layer = client.finish(&answer)?.map(Layer::Digest);
                Ok(Step::Done(None, HandshakeOutcome { method: NegotiatedAuth::Token, layer }))
            }
            (HandshakeState::Kerberos(mut client), SaslState::Challenge) => {
                let token = client.respond(&message.token.unwrap_or_default())?;
                self.state = HandshakeState::Kerberos(client);
                Ok(Step::Send(self::message(SaslState::Response, Some(token))))
            }
            (HandshakeState::Kerberos(client), SaslState::Success) => {
                let layer = client.finish()?.map(Layer::Gssapi);
                Ok(Step::Done(None, HandshakeOutcome { method: NegotiatedAuth::Kerberos, layer }))
            }
            (_, state) => Err(SecurityError::protocol(format!(
                "unexpected SASL state `{}`",
                state.as_str_name()
            ))),
        }
    }

    fn choose(&mut self, offers: Vec<SaslAuth>, is_peer: bool) -> Result<Step, SecurityError> {
        if offers.len() > OFFERS_MAX {
            return Err(SecurityError::protocol("too many methods offered"));
        }
        let find = |method: &str| offers.iter().find(|offer| offer.method == method).cloned();
        match &self.auth {
            AuthMethod::Token(token) => {
                if let Some(offer) = find("TOKEN") {
                    let (client, answer) = start_token(&offer, token, &self.policy)?;
                    self.state = HandshakeState::Token(client);
                    return Ok(Step::Send(initiate(offer, Some(answer))));
                }
            }
            AuthMethod::Kerberos(kerberos) => {
                if let Some(offer) = find("KERBEROS") {
                    let (policy, server_host) = (&self.policy, &self.server_host);
                    let (client, first) =
                        start_kerberos(&offer, kerberos, policy, server_host, is_peer)?;
                    self.state = HandshakeState::Kerberos(client);
                    return Ok(Step::Send(initiate(offer, Some(first))));
                }
            }
            AuthMethod::Simple { .. } => {}
        }
        match find("SIMPLE") {
            Some(offer) => {
                let outcome = self.simple(&method_names(&offers))?;
                Ok(Step::Done(Some(initiate(offer, None)), outcome))
            }
            None => Err(self.no_common_method(&method_names(&offers))),
        }
    }

    /// Continues with SIMPLE, if the client uses it or allows the fallback.
    fn simple(&self, offered: &str) -> Result<HandshakeOutcome, SecurityError> {
        let user = match (&self.auth, &self.policy.fallback_to_simple) {
            (AuthMethod::Simple { user }, _) => user,
            (AuthMethod::Kerberos(_), Some(user)) => user,
            (AuthMethod::Kerberos(_), None) => return Err(SecurityError::SimpleNotAllowed),
            // A token identifies its user; a server that cannot read it does not know the user.
            (AuthMethod::Token(_), _) => return Err(self.no_common_method(offered)),
        };
        Ok(HandshakeOutcome { method: NegotiatedAuth::Simple { user: user.clone() }, layer: None })
    }

    fn no_common_method(&self, offered: &str) -> SecurityError {
        let have = match self.auth {
            AuthMethod::Simple { .. } => "no credentials (SIMPLE)",
            AuthMethod::Token(_) => "a token",
            AuthMethod::Kerberos(_) => "a Kerberos ticket",
        };
        SecurityError::NoCommonMethod { offered: offered.to_owned(), have }
    }
}

/// Formats the methods of an offer for messages.
fn method_names(offers: &[SaslAuth]) -> String {
    let short = |offer: &SaslAuth| offer.method.chars().take(32).collect::<String>();
    match offers.iter().map(short).collect::<Vec<_>>() {
        names if names.is_empty() => "nothing".to_owned(),
        names => names.join(", "),
    }
}

fn start_token(
    offer: &SaslAuth,
    token: &Token,
    policy: &Policy,
) -> Result<(DigestClient, Vec<u8>), SecurityError> {
    require_mechanism(offer, "TOKEN", "DIGEST-MD5")?;
    let challenge = offer
        .challenge
        .as_deref()
        .ok_or_else(|| SecurityError::protocol("TOKEN offered without a challenge"))?;
    let is_valid =
        |part: &str| part.bytes().all(|b| b.is_ascii_graphic() && b != b'"' && b != b'\\');
    if !is_valid(offer.protocol()) || !is_valid(offer.server_id()) {
        return Err(SecurityError::protocol("invalid server name"));
    }
    let uri = format!("{}/{}", offer.protocol(), offer.server_id());
    DigestClient::answer(challenge, token, &uri, &policy.protection)
}

fn start_kerberos(
    offer: &SaslAuth,
    kerberos: &Kerberos,
    policy: &Policy,
    server_host: &str,
    is_peer: bool,
) -> Result<(KerberosClient, Vec<u8>), SecurityError> {
    require_mechanism(offer, "KERBEROS", "GSSAPI")?;
    let claim = ClaimedPrincipal::new(offer.protocol(), offer.server_id())?;
    let principal: &ServerPrincipal =
        policy.server.as_ref().ok_or(SecurityError::NoServerPrincipal)?;
    let target = principal.target(&claim, server_host, is_peer)?;
    let context = gssapi::GssapiContext::new(kerberos, &target)?;
    KerberosClient::start(Box::new(context), &policy.protection)
}

fn require_mechanism(
    offer: &SaslAuth,
    method: &'static str,
    mechanism: &str,
) -> Result<(), SecurityError> {
    if offer.mechanism == mechanism {
        return Ok(());
    }
    let mechanism = offer.mechanism.chars().take(64).collect();
    Err(SecurityError::UnknownMechanism { method, mechanism })
}

/// Returns the message choosing an offer. The server compares the entry with its own, including
/// empty fields, so it is sent back unchanged except for the challenge.
fn initiate(offer: SaslAuth, token: Option<Vec<u8>>) -> RpcSaslProto {
    let chosen = SaslAuth { challenge: None, ..offer };
    RpcSaslProto { auths: vec![chosen], ..message(SaslState::Initiate, token) }
}

fn message(state: SaslState, token: Option<Vec<u8>>) -> RpcSaslProto {
    RpcSaslProto { version: None, state: state.into(), token, auths: Vec::new() }
}

#[cfg(test)]
mod tests;
