//! Setup of a connection: header, handshake, context.

use std::net::IpAddr;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;

use crate::proto::common::rpc_response_header_proto::RpcStatusProto;
use crate::proto::common::{IpcConnectionContextProto, RpcSaslProto, UserInformationProto};
use crate::rpc::codec::Codec;
use crate::rpc::connection::{Connection, ConnectionError};
use crate::rpc::dial::{DialedStream, Stream, resolves_to};
use crate::rpc::frame::{self, ClientId, Response, SASL_RESPONSE};
use crate::rpc::{Address, Exception, ExceptionKind, Options, Protocol};
use crate::security::sasl::{Handshake, HandshakeOutcome, NegotiatedAuth, Step};
use crate::security::{AuthMethod, Identity, SecurityError};

/// Maximum size of a handshake message. A ticket with large group lists takes some tens of
/// kilobytes.
const HANDSHAKE_FRAME_MAX: usize = 1 << 20;

/// Parameters of a connection setup.
pub(crate) struct ConnectionSetup<'a> {
    pub(crate) protocol: Protocol,
    pub(crate) address: &'a Address,
    pub(crate) client: ClientId,
    pub(crate) identity: &'a Identity,
    pub(crate) options: &'a Options,
}

impl ConnectionSetup<'_> {
    /// Sets up a connection on a stream. The caller enforces the timeout.
    pub(crate) async fn open(&self, stream: DialedStream) -> Result<Connection, ConnectionError> {
        let DialedStream { mut stream, peer } = stream;
        let mut codec = Codec::new(self.options.response_bytes_max);
        let mut out = BytesMut::new();
        let method = match &self.identity.auth {
            AuthMethod::Simple { user } => {
                out.extend_from_slice(&frame::connection_header(false));
                NegotiatedAuth::Simple { user: user.clone() }
            }
            AuthMethod::Token(_) | AuthMethod::Kerberos(_) => {
                out.extend_from_slice(&frame::connection_header(true));
                let (outcome, last) = self.handshake(&mut stream, peer, &mut out).await?;
                if let Some(message) = last {
                    out.extend_from_slice(&frame::sasl(&message));
                }
                if let Some(layer) = outcome.layer {
                    codec.protect(layer);
                }
                outcome.method
            }
        };
        let context = self.context(method);
        codec.encode(&frame::context(&self.client, &context), &mut out)?;
        // Write errors are handled by the connection's task, which first reads the server's reason.
        let _ = stream.write_all(&out).await;
        Ok(Connection::spawn(stream, codec, self.client, self.options))
    }

    /// Performs the SASL handshake. Returns its outcome and a final message that is sent without
    /// waiting for a response.
    async fn handshake(
        &self,
        stream: &mut Box<dyn Stream>,
        peer: Option<IpAddr>,
        out: &mut BytesMut,
    ) -> Result<(HandshakeOutcome, Option<RpcSaslProto>), ConnectionError> {
        let policy = self.options.security.clone();
        let server_host = self.address.host.to_lowercase();
        let mut handshake = Handshake::new(self.identity.auth.clone(), policy, server_host);
        let mut received = Codec::new(HANDSHAKE_FRAME_MAX);
        out.extend_from_slice(&frame::sasl(&Handshake::negotiate_message()));
        loop {
            let written = stream.write_all(out).await;
            out.clear();
            let message = match read(stream, &mut received).await {
                // The write error explains more than the closed connection.
                Err(ConnectionError::Closed { .. } | ConnectionError::Io(_))
                    if written.is_err() =>
                {
                    return Err(written
                        .map_err(ConnectionError::from)
                        .err()
                        .unwrap_or(ConnectionError::ReadTimeout));
                }
                message => message?,
            };
            let is_peer = match (handshake.host_to_look_up(&message), peer) {
                (Some(host), Some(peer)) => resolves_to(&host, peer).await,
                _ => false,
            };
            let (next, step) = handshake_step(handshake, message, is_peer).await?;
            handshake = next;
            match step? {
                Step::Send(message) => out.extend_from_slice(&frame::sasl(&message)),
                Step::Done(last, outcome) if !received.is_mid_frame() => {
                    return Ok((outcome, last));
                }
                Step::Done(..) => {
                    return Err(ConnectionError::protocol("data after the end of the handshake"));
                }
            }
        }
    }

    fn context(&self, method: NegotiatedAuth) -> IpcConnectionContextProto {
        let acting_for = self.identity.acting_for.clone();
        let user_info = match method {
            NegotiatedAuth::Simple { user } => Some(match acting_for {
                Some(effective) => {
                    UserInformationProto { effective_user: Some(effective), real_user: Some(user) }
                }
                None => UserInformationProto { effective_user: Some(user), real_user: None },
            }),
            // The ticket identifies the user; any name, even the caller's short name, would request
            // impersonation.
            NegotiatedAuth::Kerberos => acting_for.map(|effective| UserInformationProto {
                effective_user: Some(effective),
                real_user: None,
            }),
            // The token identifies the user; a name is an error.
            NegotiatedAuth::Token => None,
        };
        let protocol = Some(self.protocol.name().to_owned());
        IpcConnectionContextProto { user_info, protocol }
    }
}

async fn read(
    stream: &mut Box<dyn Stream>,
    received: &mut Codec,
) -> Result<RpcSaslProto, ConnectionError> {
    loop {
        if let Some(frame) = received.decode()? {
            let response = Response::parse(frame)?;
            if response.header.status() != RpcStatusProto::Success {
                return Err(handshake_error(Exception::of_header(&response.header)));
            }
            if response.header.call_id != SASL_RESPONSE {
                return Err(ConnectionError::protocol("response to a call during the handshake"));
            }
            return Ok(response.sasl()?);
        }
        if stream.read_buf(received.read_buffer()).await? == 0 {
            return Err(ConnectionError::Closed { mid_frame: received.is_mid_frame() });
        }
    }
}

/// Converts an exception during the handshake. Not every exception concerns authentication.
fn handshake_error(exception: Exception) -> ConnectionError {
    match exception.kind() {
        ExceptionKind::Standby | ExceptionKind::Retriable | ExceptionKind::Busy => {
            ConnectionError::Fatal(exception)
        }
        _ => ConnectionError::Security(SecurityError::rejected(exception.class, exception.message)),
    }
}

/// Performs a handshake step. Kerberos may block on its server, so its steps run on a separate
/// thread that the runtime does not wait for at shutdown.
async fn handshake_step(
    mut handshake: Handshake,
    message: RpcSaslProto,
    is_peer: bool,
) -> Result<(Handshake, Result<Step, SecurityError>), ConnectionError> {
    if !handshake.may_block(&message) {
        let step = handshake.on_message(message, is_peer);
        return Ok((handshake, step));
    }
    let (done, outcome) = oneshot::channel();
    std::thread::Builder::new().name("kerberos".into()).spawn(move || {
        let step = handshake.on_message(message, is_peer);
        // The receiver is gone if the connection attempt was abandoned.
        let _ = done.send((handshake, step));
    })?;
    outcome.await.map_err(|_| ConnectionError::protocol("the Kerberos thread ended unexpectedly"))
}
