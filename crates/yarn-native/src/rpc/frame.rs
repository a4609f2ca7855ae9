//! Wire format: connection header, frames and messages.

use bytes::{Buf, Bytes, BytesMut};
use prost::Message;
use zeroize::{Zeroize, Zeroizing};

use crate::proto::common::rpc_request_header_proto::OperationProto;
use crate::proto::common::{
    IpcConnectionContextProto, RequestHeaderProto, RpcKindProto, RpcRequestHeaderProto,
    RpcResponseHeaderProto, RpcSaslProto,
};
use crate::rpc::Protocol;

/// Reserved call ids of control messages.
const CONTEXT_CALL: i32 = -3;
const PING_CALL: i32 = -4;
const SASL_CALL: i32 = -33;
/// Responses carry unsigned call ids.
pub(crate) const SASL_RESPONSE: u32 = SASL_CALL.cast_unsigned();
/// Version of all protocols.
const PROTOCOL_VERSION: u64 = 1;
/// Bounds of the buffer space reserved per read. Announced lengths are not trusted, so little more
/// is reserved than has been received.
const READ_MIN: usize = 8 << 10;
const READ_MAX: usize = 256 << 10;

/// Id of a client across its connections.
pub(crate) type ClientId = [u8; 16];

/// Malformed frame or message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct FrameError(pub(crate) String);

impl FrameError {
    fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

/// Returns the header that opens a connection.
pub(crate) fn connection_header(sasl: bool) -> [u8; 7] {
    let authentication = if sasl { 0xdf } else { 0 };
    [b'h', b'r', b'p', b'c', 9, 0, authentication]
}

pub(crate) fn request(
    client: &ClientId,
    call: u32,
    retry: i32,
    protocol: Protocol,
    method: &str,
    body: &[u8],
) -> Zeroizing<Vec<u8>> {
    let header = RequestHeaderProto {
        method_name: method.to_owned(),
        declaring_class_protocol_name: protocol.name().to_owned(),
        client_protocol_version: PROTOCOL_VERSION,
    };
    let mut rest = Zeroizing::new(Vec::with_capacity(header.encoded_len() + body.len() + 16));
    put(&mut rest, &header);
    // Writing to a vector cannot fail.
    prost::encode_length_delimiter(body.len(), &mut *rest).expect("a vector grows");
    rest.extend_from_slice(body);
    let header = rpc_header(call.cast_signed(), client, retry);
    Zeroizing::new(frame(&header, &rest))
}

pub(crate) fn context(client: &ClientId, context: &IpcConnectionContextProto) -> Vec<u8> {
    let mut rest = Vec::new();
    put(&mut rest, context);
    frame(&rpc_header(CONTEXT_CALL, client, -1), &rest)
}

pub(crate) fn ping(client: &ClientId) -> Vec<u8> {
    frame(&rpc_header(PING_CALL, client, -1), &[])
}

pub(crate) fn sasl(message: &RpcSaslProto) -> Vec<u8> {
    let mut rest = Vec::with_capacity(message.encoded_len() + 8);
    put(&mut rest, message);
    frame(&rpc_header(SASL_CALL, &[], -1), &rest)
}

fn rpc_header(call: i32, client: &[u8], retry: i32) -> RpcRequestHeaderProto {
    RpcRequestHeaderProto {
        rpc_kind: Some(RpcKindProto::RpcProtocolBuffer.into()),
        rpc_op: Some(OperationProto::RpcFinalPacket.into()),
        call_id: call,
        client_id: client.to_vec(),
        retry_count: Some(retry),
        ..RpcRequestHeaderProto::default()
    }
}

fn frame(header: &RpcRequestHeaderProto, rest: &[u8]) -> Vec<u8> {
    let mut whole = Vec::with_capacity(header.encoded_len() + rest.len() + 8);
    whole.extend_from_slice(&[0; 4]);
    put(&mut whole, header);
    whole.extend_from_slice(rest);
    // The caller has checked the request size.
    let length = u32::try_from(whole.len() - 4).expect("requests are shorter than 4 GiB");
    whole[..4].copy_from_slice(&length.to_be_bytes());
    whole
}

fn put(buffer: &mut Vec<u8>, message: &impl Message) {
    message.encode_length_delimited(buffer).expect("a vector grows");
}

/// A response with its header and remaining bytes.
pub(crate) struct Response {
    pub(crate) header: RpcResponseHeaderProto,
    rest: Bytes,
}

impl Response {
    pub(crate) fn parse(frame: Bytes) -> Result<Self, FrameError> {
        let mut rest = frame;
        let header = take(&mut rest, "response header")?;
        let header = RpcResponseHeaderProto::decode(header)
            .map_err(|error| FrameError::new(format!("malformed response header: {error}")))?;
        Ok(Self { header, rest })
    }

    /// Returns the encoded response message.
    pub(crate) fn body(mut self) -> Result<Bytes, FrameError> {
        take(&mut self.rest, "response")
    }

    pub(crate) fn sasl(self) -> Result<RpcSaslProto, FrameError> {
        RpcSaslProto::decode(self.body()?)
            .map_err(|error| FrameError::new(format!("malformed SASL message: {error}")))
    }
}

/// Takes a length-delimited message.
fn take(bytes: &mut Bytes, part: &str) -> Result<Bytes, FrameError> {
    let length = prost::decode_length_delimiter(&mut *bytes)
        .ok()
        .filter(|&length| length <= bytes.remaining())
        .ok_or_else(|| FrameError::new(format!("{part} exceeds its frame")))?;
    Ok(bytes.split_to(length))
}

/// Splits received bytes into frames.
pub(crate) struct FrameDecoder {
    buffer: BytesMut,
    frame_max: usize,
    /// No frame has been decoded yet: the peer may not be a Hadoop server.
    first: bool,
}

impl FrameDecoder {
    pub(crate) fn new(frame_max: usize) -> Self {
        Self { buffer: BytesMut::new(), frame_max, first: true }
    }

    /// Returns the buffer for received data.
    pub(crate) fn read_buffer(&mut self) -> &mut BytesMut {
        let announced = self.buffer.first_chunk().map_or(0, |&prefix| u32::from_be_bytes(prefix));
        let missing = (announced as usize).saturating_sub(self.buffer.len());
        self.buffer.reserve(missing.clamp(READ_MIN, READ_MAX));
        &mut self.buffer
    }

    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns whether a frame is incomplete.
    pub(crate) fn is_mid_frame(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// Returns the next complete frame, if any.
    pub(crate) fn next(&mut self) -> Result<Option<Bytes>, FrameError> {
        let Some(&prefix) = self.buffer.first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(prefix);
        if self.first {
            check_protocol(prefix)?;
        }
        let length = usize::try_from(length)
            .ok()
            .filter(|&length| length <= self.frame_max)
            .ok_or_else(|| {
                let limit = self.frame_max;
                FrameError::new(format!("frame of {length} bytes exceeds the limit of {limit}"))
            })?;
        if self.buffer.len() - 4 < length {
            return Ok(None);
        }
        self.first = false;
        self.buffer.advance(4);
        let frame = Bytes::from_owner(ZeroizingFrame(self.buffer.split_to(length)));
        if self.buffer.is_empty() && length > READ_MAX {
            // The buffer of a large frame is not kept for later small ones.
            self.buffer = BytesMut::new();
        }
        Ok(Some(frame))
    }
}

/// A frame that is erased when dropped, since it may contain token passwords.
struct ZeroizingFrame(BytesMut);

impl AsRef<[u8]> for ZeroizingFrame {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for ZeroizingFrame {
    fn drop(&mut self) {
        self.0.as_mut().zeroize();
    }
}

/// Detects peers that speak another protocol.
fn check_protocol(prefix: [u8; 4]) -> Result<(), FrameError> {
    match &prefix {
        b"HTTP" => {
            Err(FrameError::new("the server speaks HTTP: this is a web port, not an RPC port"))
        }
        [0xff, 0xff, 0xff, 0xff] => {
            Err(FrameError::new("the server speaks an older version of Hadoop RPC than 9"))
        }
        // A TLS alert.
        [0x15, 0x03, ..] => Err(FrameError::new("the server speaks TLS: this is not an RPC port")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
