//! What a driver tells a worker of an elastic job, and what it hears from it.
//!
//! A worker listens on a port of its own, which it has put into the store together with a key. A message has the
//! HMAC-SHA256 of its body before it, and the length of its body; so has the answer. Bodies are pickles: what is said
//! here is constant but for two numbers, and what is heard is compared, not run.

use std::fmt;

use ring::hmac;

use super::pickle::{self, PickleValue};
use crate::{Rejection, base64};

const DIGEST: usize = 32;
const LENGTH: usize = size_of::<i32>();
/// The body of an answer; those known have less than two hundred bytes.
const ANSWER_MAX: usize = 64 << 10;
/// More interfaces than a node has.
const ADDRESSES_MAX: usize = 256;

/// What has happened to the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum HostChange {
    /// Some will go; nobody has to be told the state anew.
    Removed = 1,
    /// Some have come.
    Added = 2,
    /// Both.
    Both = 3,
}

/// What a worker has put into the store: where it listens, and with which key.
#[derive(Clone)]
pub struct NotificationEndpoint {
    /// Interface, address and port.
    pub addresses: Vec<(String, String, u16)>,
    key: Vec<u8>,
}

/// Without the key.
impl fmt::Debug for NotificationEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NotificationEndpoint")
            .field("addresses", &self.addresses)
            .finish_non_exhaustive()
    }
}

/// An answer of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotificationReply {
    /// It has understood.
    Ack,
    /// It is there.
    Pong,
}

impl NotificationEndpoint {
    /// Out of what it has put into the store: base64 of a pickle of `({interface: [(address, port)]}, key)`.
    pub fn read(put: &[u8]) -> Option<NotificationEndpoint> {
        NotificationEndpoint::unpickled(&base64::decode(put)?)
    }

    pub(crate) fn unpickled(pickle: &[u8]) -> Option<NotificationEndpoint> {
        let PickleValue::Pair(pair) = pickle::read(pickle)? else {
            return None;
        };
        let (PickleValue::Dictionary(interfaces), PickleValue::Bytes(key)) = *pair else {
            return None;
        };
        let mut addresses = Vec::new();
        for interface in interfaces {
            let (PickleValue::Text(interface), PickleValue::List(list)) = interface else {
                return None;
            };
            for address in list {
                let PickleValue::Pair(address) = address else {
                    return None;
                };
                let (PickleValue::Text(address), PickleValue::Number(port)) = *address else {
                    return None;
                };
                addresses.push((interface.clone(), address, port));
                if addresses.len() > ADDRESSES_MAX {
                    return None;
                }
            }
        }
        Some(NotificationEndpoint { addresses, key })
    }

    /// With a key that is known already.
    pub fn new(addresses: Vec<(String, String, u16)>, key: Vec<u8>) -> NotificationEndpoint {
        NotificationEndpoint { addresses, key }
    }

    /// The port on which it listens. It is the same on all interfaces.
    pub fn port(&self) -> Option<u16> {
        self.addresses.first().map(|(_, _, port)| *port)
    }

    fn signed(&self, body: &[u8]) -> Vec<u8> {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.key);
        let digest = hmac::sign(&key, body);
        let length = (body.len() as u32).to_le_bytes();
        [digest.as_ref(), &length, body].concat()
    }

    /// Whether it is there.
    pub fn ping(&self) -> Vec<u8> {
        self.signed(b"\x80\x02chorovod.runner.common.util.network\nPingRequest\n)\x81.")
    }

    /// That the hosts have changed. Times must grow.
    pub fn changed(&self, time: i32, change: HostChange) -> Vec<u8> {
        let body = [
            b"\x80\x02chorovod.runner.elastic.worker\nHostsUpdatedRequest\n)\x81}(X\x09\0\0\0timestampJ".as_slice(),
            &time.to_le_bytes(),
            b"X\x03\0\0\0reschorovod.runner.elastic.worker\nHostUpdateResult\nK",
            &[change as u8],
            b"\x85Rub.",
        ]
        .concat();
        self.signed(&body)
    }

    /// What it answers, and how long that was; `None` if more must come first.
    pub fn answer(&self, bytes: &[u8]) -> Result<Option<(NotificationReply, usize)>, Rejection> {
        let Some((digest, rest)) = bytes.split_at_checked(DIGEST) else {
            return Ok(None);
        };
        let Some((length, rest)) = rest.split_first_chunk::<LENGTH>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        if length > ANSWER_MAX {
            return Err(Rejection::new(format!(
                "reply of `{length}` bytes exceeds the maximum of `{ANSWER_MAX}`"
            )));
        }
        let Some(body) = rest.get(..length) else {
            return Ok(None);
        };
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.key);
        hmac::verify(&key, body, digest)
            .map_err(|_| Rejection::new("reply is not signed with the worker's key"))?;
        let answer = match pickle::class(body) {
            Some(("horovod.runner.common.util.network", "AckResponse")) => NotificationReply::Ack,
            Some(("horovod.runner.common.util.network", "PingResponse")) => NotificationReply::Pong,
            _ => return Err(Rejection::new("unknown reply type")),
        };
        Ok(Some((answer, DIGEST + LENGTH + length)))
    }
}
