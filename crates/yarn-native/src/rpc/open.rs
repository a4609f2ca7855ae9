//! From a fresh stream to one that takes calls: greeting, handshake, context.

use std::net::IpAddr;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;

use crate::proto::common::rpc_response_header_proto::RpcStatusProto;
use crate::proto::common::{IpcConnectionContextProto, RpcSaslProto, UserInformationProto};
use crate::rpc::codec::Codec;
use crate::rpc::connection::{Broken, Connection};
use crate::rpc::dial::{Dialed, Stream, leads_to};
use crate::rpc::frame::{self, ClientId, Response, SASL_ANSWER};
use crate::rpc::{Address, Exception, ExceptionKind, Options, Protocol};
use crate::security::sasl::{Agreed, Handshake, Method, Step};
use crate::security::{Identity, Proof, SecurityError};

/// A handshake's messages are short: a ticket with large group lists is some tens of kilobytes.
const HANDSHAKE_FRAME_MAX: usize = 1 << 20;

/// Who opens a connection, to whom, and how.
pub(crate) struct Opening<'a> {
    pub(crate) protocol: Protocol,
    pub(crate) address: &'a Address,
    pub(crate) client: ClientId,
    pub(crate) identity: &'a Identity,
    pub(crate) options: &'a Options,
}

impl Opening<'_> {
    /// Makes a connection of a stream. The caller sees to the time it may take.
    pub(crate) async fn open(&self, dialed: Dialed) -> Result<Connection, Broken> {
        let Dialed { mut stream, peer } = dialed;
        let mut codec = Codec::new(self.options.response_bytes_max);
        let mut out = BytesMut::new();
        let method = match &self.identity.proof {
            Proof::Simple { user } => {
                out.extend_from_slice(&frame::greeting(false));
                Method::Simple { user: user.clone() }
            }
            Proof::Token(_) | Proof::Kerberos(_) => {
                out.extend_from_slice(&frame::greeting(true));
                let (agreed, last) = self.shake_hands(&mut stream, peer, &mut out).await?;
                if let Some(message) = last {
                    out.extend_from_slice(&frame::sasl(&message));
                }
                if let Some(layer) = agreed.layer {
                    codec.protect(layer);
                }
                agreed.method
            }
        };
        let context = self.context(method);
        codec.encode(&frame::context(&self.client, &context), &mut out)?;
        // A failure to write is left to the connection's task, which first reads what the server
        // said about it.
        let _ = stream.write_all(&out).await;
        Ok(Connection::spawn(stream, codec, self.client, self.options))
    }

    /// The dialogue; gives what was agreed, and a last message that has no answer.
    async fn shake_hands(
        &self,
        stream: &mut Box<dyn Stream>,
        peer: Option<IpAddr>,
        out: &mut BytesMut,
    ) -> Result<(Agreed, Option<RpcSaslProto>), Broken> {
        let policy = self.options.security.clone();
        let called = self.address.host.to_lowercase();
        let mut handshake = Handshake::new(self.identity.proof.clone(), policy, called);
        let mut received = Codec::new(HANDSHAKE_FRAME_MAX);
        out.extend_from_slice(&frame::sasl(&Handshake::opening()));
        loop {
            let wrote = stream.write_all(out).await;
            out.clear();
            let message = match read(stream, &mut received).await {
                // What the server said explains more than that it takes no more.
                Err(Broken::Closed { .. } | Broken::Io(_)) if wrote.is_err() => {
                    return Err(wrote.map_err(Broken::from).err().unwrap_or(Broken::Silent));
                }
                message => message?,
            };
            let is_peer = match (handshake.host_to_look_up(&message), peer) {
                (Some(host), Some(peer)) => leads_to(&host, peer).await,
                _ => false,
            };
            let (next, step) = advance(handshake, message, is_peer).await?;
            handshake = next;
            match step? {
                Step::Send(message) => out.extend_from_slice(&frame::sasl(&message)),
                Step::Done(last, agreed) if !received.is_amid() => return Ok((agreed, last)),
                Step::Done(..) => {
                    return Err(Broken::protocol("it said more than its handshake"));
                }
            }
        }
    }

    fn context(&self, method: Method) -> IpcConnectionContextProto {
        let acting_for = self.identity.acting_for.clone();
        let user_info = match method {
            Method::Simple { user } => Some(match acting_for {
                Some(effective) => {
                    UserInformationProto { effective_user: Some(effective), real_user: Some(user) }
                }
                None => UserInformationProto { effective_user: Some(user), real_user: None },
            }),
            // The ticket says who calls; a name, even the caller's own short one, would be a
            // request to act for somebody.
            Method::Kerberos => acting_for.map(|effective| UserInformationProto {
                effective_user: Some(effective),
                real_user: None,
            }),
            // The token says all, and another name is an error.
            Method::Token => None,
        };
        let protocol = Some(self.protocol.name().to_owned());
        IpcConnectionContextProto { user_info, protocol }
    }
}

async fn read(stream: &mut Box<dyn Stream>, received: &mut Codec) -> Result<RpcSaslProto, Broken> {
    loop {
        if let Some(frame) = received.decode()? {
            let response = Response::parse(frame)?;
            if response.header.status() != RpcStatusProto::Success {
                return Err(refusal(Exception::of_header(&response.header)));
            }
            if response.header.call_id != SASL_ANSWER {
                return Err(Broken::protocol("it answers a call in the middle of the handshake"));
            }
            return Ok(response.sasl()?);
        }
        if stream.read_buf(received.room()).await? == 0 {
            return Err(Broken::Closed { amid: received.is_amid() });
        }
    }
}

/// A server may refuse for reasons that have nothing to do with who calls.
fn refusal(exception: Exception) -> Broken {
    match exception.kind() {
        ExceptionKind::Standby | ExceptionKind::Retriable | ExceptionKind::Busy => {
            Broken::Fatal(exception)
        }
        _ => Broken::Security(SecurityError::refused(exception.class, exception.message)),
    }
}

/// Takes a step of the handshake. Kerberos may wait for its server, which must not stop others: it
/// gets a thread of its own, which the runtime need not wait for at its end.
async fn advance(
    mut handshake: Handshake,
    message: RpcSaslProto,
    is_peer: bool,
) -> Result<(Handshake, Result<Step, SecurityError>), Broken> {
    if !handshake.may_block(&message) {
        let step = handshake.on_message(message, is_peer);
        return Ok((handshake, step));
    }
    let (done, outcome) = oneshot::channel();
    std::thread::Builder::new().name("kerberos".into()).spawn(move || {
        let step = handshake.on_message(message, is_peer);
        // Nobody waits any more when the connection was given up meanwhile.
        let _ = done.send((handshake, step));
    })?;
    outcome.await.map_err(|_| Broken::protocol("the Kerberos library failed"))
}
