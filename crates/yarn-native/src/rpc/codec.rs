//! Encoding and decoding of frames, protected once a handshake has negotiated it.

use bytes::{Bytes, BytesMut};
use zeroize::Zeroizing;

use crate::proto::common::RpcSaslProto;
use crate::proto::common::rpc_response_header_proto::RpcStatusProto;
use crate::proto::common::rpc_sasl_proto::SaslState;
use crate::rpc::Exception;
use crate::rpc::connection::ConnectionError;
use crate::rpc::frame::{self, FrameDecoder, Response, SASL_RESPONSE};
use crate::security::layer::Layer;

/// Maximum overhead of a protected message over its plaintext.
const PROTECTION_BYTES_MAX: usize = 4096;

/// Encoder and decoder for the frames of one connection.
pub(crate) struct Codec {
    received: FrameDecoder,
    protection: Option<Protection>,
    frame_max: usize,
}

/// State of a protected connection. The frames form an inner stream of tokens: a frame may span
/// several tokens, and a token may contain several frames.
struct Protection {
    layer: Layer,
    plain: FrameDecoder,
}

impl Codec {
    pub(crate) fn new(frame_max: usize) -> Self {
        let received = FrameDecoder::new(frame_max.saturating_add(PROTECTION_BYTES_MAX));
        Self { received, protection: None, frame_max }
    }

    /// Protects all further messages in both directions.
    pub(crate) fn protect(&mut self, layer: Layer) {
        let plain = FrameDecoder::new(self.frame_max);
        self.protection = Some(Protection { layer, plain });
    }

    /// Returns the buffer for data read from the stream.
    pub(crate) fn read_buffer(&mut self) -> &mut BytesMut {
        self.received.read_buffer()
    }

    /// Returns whether the stream ended in the middle of a frame.
    pub(crate) fn is_mid_frame(&self) -> bool {
        self.received.is_mid_frame()
            || self.protection.as_ref().is_some_and(|p| p.plain.is_mid_frame())
    }

    /// Appends an encoded frame to `out`.
    pub(crate) fn encode(
        &mut self,
        whole: &[u8],
        out: &mut BytesMut,
    ) -> Result<(), ConnectionError> {
        let Some(Protection { layer, .. }) = &mut self.protection else {
            out.extend_from_slice(whole);
            return Ok(());
        };
        for piece in whole.chunks(layer.plain_max()) {
            let token = Some(layer.wrap(piece).map_err(ConnectionError::Security)?);
            let state = SaslState::Wrap.into();
            let message = RpcSaslProto { state, token, ..RpcSaslProto::default() };
            out.extend_from_slice(&frame::sasl(&message));
        }
        Ok(())
    }

    /// Returns the next complete frame, if any.
    pub(crate) fn decode(&mut self) -> Result<Option<Bytes>, ConnectionError> {
        let Some(Protection { layer, plain }) = &mut self.protection else {
            return Ok(self.received.next()?);
        };
        loop {
            if let Some(frame) = plain.next()? {
                return Ok(Some(frame));
            }
            let Some(frame) = self.received.next()? else {
                return Ok(None);
            };
            let response = Response::parse(frame)?;
            if response.header.status() != RpcStatusProto::Success {
                return Err(ConnectionError::Fatal(Exception::of_header(&response.header)));
            }
            if response.header.call_id != SASL_RESPONSE {
                return Err(ConnectionError::protocol(
                    "unprotected message on a protected connection",
                ));
            }
            let message = response.sasl()?;
            if message.state() != SaslState::Wrap {
                return Err(ConnectionError::protocol("handshake message after the handshake"));
            }
            let unwrapped = layer.unwrap(&message.token.unwrap_or_default())?;
            plain.extend(&Zeroizing::new(unwrapped));
        }
    }
}
