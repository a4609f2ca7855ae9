//! Notifications from the driver to a worker of an elastic job, and their replies.
//!
//! A worker listens on its own port, which it has stored together with a key. A message starts with the HMAC-SHA256 of
//! its body and the length of the body, and so does the reply. Bodies are pickles. Those sent are constant except for
//! two numbers; those received are compared, not executed.

use std::fmt;

use ring::hmac;

use super::pickle::{self, PickleValue};
use crate::{Rejection, base64};

const DIGEST: usize = 32;
const LENGTH: usize = size_of::<i32>();
/// Maximum length of a reply. Known ones have less than 200 bytes.
const REPLY_MAX: usize = 64 << 10;
/// Maximum number of addresses of a worker.
const ADDRESSES_MAX: usize = 256;

/// Kind of a change of the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum HostChange {
    /// Hosts will leave. The state need not be synchronized.
    Removed = 1,
    /// Hosts have joined.
    Added = 2,
    /// Hosts have joined and will leave.
    Mixed = 3,
}

/// Notification endpoint of a worker, as stored by the worker: its addresses and its key.
#[derive(Clone)]
pub struct NotificationEndpoint {
    /// Interface, address and port of each.
    pub addresses: Vec<(String, String, u16)>,
    key: Vec<u8>,
}

/// Omits the key.
impl fmt::Debug for NotificationEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NotificationEndpoint")
            .field("addresses", &self.addresses)
            .finish_non_exhaustive()
    }
}

impl NotificationEndpoint {
    /// Parses a stored endpoint: base64 of a pickle of `({interface: [(address, port)]}, key)`.
    pub fn parse(value: &[u8]) -> Option<NotificationEndpoint> {
        NotificationEndpoint::from_pickle(&base64::decode(value)?)
    }

    pub(crate) fn from_pickle(pickle: &[u8]) -> Option<NotificationEndpoint> {
        let PickleValue::Pair(pair) = pickle::parse(pickle)? else {
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

    /// Creates an endpoint.
    pub fn new(addresses: Vec<(String, String, u16)>, key: Vec<u8>) -> NotificationEndpoint {
        NotificationEndpoint { addresses, key }
    }

    /// Returns the port, which is the same on all interfaces.
    pub fn port(&self) -> Option<u16> {
        self.addresses.first().map(|(_, _, port)| *port)
    }

    fn signed(&self, body: &[u8]) -> Vec<u8> {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.key);
        let digest = hmac::sign(&key, body);
        let length = (body.len() as u32).to_le_bytes();
        [digest.as_ref(), &length, body].concat()
    }

    /// Returns a signed notification of changed hosts. Timestamps must increase.
    pub fn hosts_changed(&self, time: i32, change: HostChange) -> Vec<u8> {
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

    /// Parses the acknowledgement of a notification and returns its length. Returns `None` if it is incomplete.
    pub fn parse_reply(&self, bytes: &[u8]) -> Result<Option<usize>, Rejection> {
        let Some((digest, rest)) = bytes.split_at_checked(DIGEST) else {
            return Ok(None);
        };
        let Some((length, rest)) = rest.split_first_chunk::<LENGTH>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        if length > REPLY_MAX {
            return Err(Rejection::new(format!(
                "reply of `{length}` bytes exceeds the maximum of `{REPLY_MAX}`"
            )));
        }
        let Some(body) = rest.get(..length) else {
            return Ok(None);
        };
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.key);
        hmac::verify(&key, body, digest)
            .map_err(|_| Rejection::new("reply is not signed with the worker's key"))?;
        match pickle::class(body) {
            Some(("horovod.runner.common.util.network", "AckResponse")) => {
                Ok(Some(DIGEST + LENGTH + length))
            }
            _ => Err(Rejection::new("unknown reply type")),
        }
    }
}
