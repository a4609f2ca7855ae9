//! The dialogue that opens a connection: the server offers, the client chooses and proves.

use crate::proto::common::RpcSaslProto;
use crate::proto::common::rpc_sasl_proto::{SaslAuth, SaslState};
use crate::security::digest::DigestClient;
use crate::security::error::SecurityError;
use crate::security::gssapi;
use crate::security::identity::{Kerberos, Proof};
use crate::security::kerberos::KerberosClient;
use crate::security::layer::Layer;
use crate::security::principal::Claim;
use crate::security::{Policy, ServerPrincipal};
use crate::token::Token;

/// Longer dialogues are cut; Kerberos needs three rounds.
const ROUNDS_MAX: u32 = 16;
/// A server that offers more than this is not taken seriously.
const OFFERS_MAX: usize = 16;

/// One connection's handshake. Messages in, messages out.
pub(crate) struct Handshake {
    proof: Proof,
    policy: Policy,
    /// The host that was called, for principals with `_HOST`.
    called: String,
    state: State,
    rounds: u32,
}

enum State {
    Asked,
    Token(DigestClient),
    Kerberos(KerberosClient),
    Over,
}

/// What to do next.
pub(crate) enum Step {
    /// Send this, and wait for an answer.
    Send(RpcSaslProto),
    /// Send this if there is something; the dialogue is over.
    Done(Option<RpcSaslProto>, Agreed),
}

/// How the dialogue ended.
pub(crate) struct Agreed {
    pub(crate) method: Method,
    pub(crate) layer: Option<Layer>,
}

/// How the caller is known to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Simple { user: String },
    Token,
    Kerberos,
}

impl Handshake {
    pub(crate) fn new(proof: Proof, policy: Policy, called: String) -> Self {
        Self { proof, policy, called, state: State::Asked, rounds: 0 }
    }

    /// What the client says first.
    pub(crate) fn opening() -> RpcSaslProto {
        message(SaslState::Negotiate, None)
    }

    /// Whether the step that takes this message may wait for a Kerberos server.
    pub(crate) fn may_block(&self, message: &RpcSaslProto) -> bool {
        let offered = || message.auths.iter().any(|offer| offer.method == "KERBEROS");
        match self.state {
            State::Kerberos(_) => true,
            State::Asked => matches!(self.proof, Proof::Kerberos(_)) && offered(),
            State::Token(_) | State::Over => false,
        }
    }

    /// The host whose address has to be looked up before this offer can be judged.
    pub(crate) fn host_to_look_up(&self, offer: &RpcSaslProto) -> Option<String> {
        let principal = self.policy.server.as_ref()?;
        let (State::Asked, Proof::Kerberos(_)) = (&self.state, &self.proof) else {
            return None;
        };
        let auth = offer.auths.iter().find(|auth| auth.method == "KERBEROS")?;
        let claim = Claim::new(auth.protocol(), auth.server_id()).ok()?;
        principal.needs_lookup(&claim, &self.called).then(|| claim.host().to_owned())
    }

    /// Takes the server's message. `is_peer` says that the host it claims to be, as far as
    /// [`Self::host_to_look_up`] asked, leads to the address that answered.
    pub(crate) fn on_message(
        &mut self,
        message: RpcSaslProto,
        is_peer: bool,
    ) -> Result<Step, SecurityError> {
        self.rounds += 1;
        if self.rounds > ROUNDS_MAX {
            return Err(SecurityError::broken("the dialogue does not end"));
        }
        let state = SaslState::try_from(message.state)
            .map_err(|_| SecurityError::broken("its message has an unknown state"))?;
        match (std::mem::replace(&mut self.state, State::Over), state) {
            (State::Asked, SaslState::Success) => {
                self.simple("no authentication").map(|agreed| Step::Done(None, agreed))
            }
            (State::Asked, SaslState::Negotiate) => self.choose(message.auths, is_peer),
            (State::Token(client), SaslState::Success) => {
                let answer = message.token.unwrap_or_default();
                let layer = client.finish(&answer)?.map(Layer::Digest);
                Ok(Step::Done(None, Agreed { method: Method::Token, layer }))
            }
            (State::Kerberos(mut client), SaslState::Challenge) => {
                let token = client.respond(&message.token.unwrap_or_default())?;
                self.state = State::Kerberos(client);
                Ok(Step::Send(self::message(SaslState::Response, Some(token))))
            }
            (State::Kerberos(client), SaslState::Success) => {
                let layer = client.finish()?.map(Layer::Gssapi);
                Ok(Step::Done(None, Agreed { method: Method::Kerberos, layer }))
            }
            (_, state) => Err(SecurityError::broken(format!(
                "it says `{}` where that has no meaning",
                state.as_str_name()
            ))),
        }
    }

    fn choose(&mut self, offers: Vec<SaslAuth>, is_peer: bool) -> Result<Step, SecurityError> {
        if offers.len() > OFFERS_MAX {
            return Err(SecurityError::broken("it offers too many methods"));
        }
        let find = |method: &str| offers.iter().find(|offer| offer.method == method).cloned();
        match &self.proof {
            Proof::Token(token) => {
                if let Some(offer) = find("TOKEN") {
                    let (client, answer) = start_token(&offer, token, &self.policy)?;
                    self.state = State::Token(client);
                    return Ok(Step::Send(initiate(offer, Some(answer))));
                }
            }
            Proof::Kerberos(kerberos) => {
                if let Some(offer) = find("KERBEROS") {
                    let (policy, called) = (&self.policy, &self.called);
                    let (client, first) =
                        start_kerberos(&offer, kerberos, policy, called, is_peer)?;
                    self.state = State::Kerberos(client);
                    return Ok(Step::Send(initiate(offer, Some(first))));
                }
            }
            Proof::Simple { .. } => {}
        }
        match find("SIMPLE") {
            Some(offer) => {
                let agreed = self.simple(&named(&offers))?;
                Ok(Step::Done(Some(initiate(offer, None)), agreed))
            }
            None => Err(self.nothing_in_common(&named(&offers))),
        }
    }

    /// Goes on without proof, if the caller has none to show or has allowed it.
    fn simple(&self, offered: &str) -> Result<Agreed, SecurityError> {
        let user = match (&self.proof, &self.policy.fallback_to_simple) {
            (Proof::Simple { user }, _) => user,
            (Proof::Kerberos(_), Some(user)) => user,
            (Proof::Kerberos(_), None) => return Err(SecurityError::SimpleRefused),
            // A token names its user, and a server that cannot read it would have to guess.
            (Proof::Token(_), _) => return Err(self.nothing_in_common(offered)),
        };
        Ok(Agreed { method: Method::Simple { user: user.clone() }, layer: None })
    }

    fn nothing_in_common(&self, offered: &str) -> SecurityError {
        let have = match self.proof {
            Proof::Simple { .. } => "no proof (SIMPLE)",
            Proof::Token(_) => "a token",
            Proof::Kerberos(_) => "a Kerberos ticket",
        };
        SecurityError::NoCommonMethod { offered: offered.to_owned(), have }
    }
}

/// The methods of an offer, for a message to people.
fn named(offers: &[SaslAuth]) -> String {
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
    demand_mechanism(offer, "TOKEN", "DIGEST-MD5")?;
    let challenge = offer
        .challenge
        .as_deref()
        .ok_or_else(|| SecurityError::broken("it offers TOKEN without a challenge"))?;
    let name = |part: &str| part.bytes().all(|b| b.is_ascii_graphic() && b != b'"' && b != b'\\');
    if !name(offer.protocol()) || !name(offer.server_id()) {
        return Err(SecurityError::broken("it calls itself by something that is no name"));
    }
    let uri = format!("{}/{}", offer.protocol(), offer.server_id());
    DigestClient::answer(challenge, token, &uri, &policy.protection)
}

fn start_kerberos(
    offer: &SaslAuth,
    kerberos: &Kerberos,
    policy: &Policy,
    called: &str,
    is_peer: bool,
) -> Result<(KerberosClient, Vec<u8>), SecurityError> {
    demand_mechanism(offer, "KERBEROS", "GSSAPI")?;
    let claim = Claim::new(offer.protocol(), offer.server_id())?;
    let principal: &ServerPrincipal =
        policy.server.as_ref().ok_or(SecurityError::NoServerPrincipal)?;
    let target = principal.target(&claim, called, is_peer)?;
    let context = gssapi::Context::new(kerberos, &target)?;
    KerberosClient::start(Box::new(context), &policy.protection)
}

fn demand_mechanism(
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

/// The server compares the entry with its own, fields that are present and empty included: it goes
/// back as it came, without the challenge.
fn initiate(offer: SaslAuth, token: Option<Vec<u8>>) -> RpcSaslProto {
    let chosen = SaslAuth { challenge: None, ..offer };
    RpcSaslProto { auths: vec![chosen], ..message(SaslState::Initiate, token) }
}

fn message(state: SaslState, token: Option<Vec<u8>>) -> RpcSaslProto {
    RpcSaslProto { version: None, state: state.into(), token, auths: Vec::new() }
}

#[cfg(test)]
mod tests;
