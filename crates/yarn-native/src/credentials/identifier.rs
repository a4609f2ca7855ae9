//! Token identifiers. Only the issuing server can verify them; here they serve diagnostics and
//! expiry checks.

use std::fmt;

use super::FormatError;
use super::protobuf::{FieldReader, FieldValue, text};
use super::writable::WritableReader;
use crate::token::Token;

/// Decoded identifier of a token. Ids are formatted as Hadoop prints them; times are milliseconds
/// since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenIdentifier {
    /// `YARN_AM_RM_TOKEN`: authenticates an ApplicationMaster to the ResourceManager.
    Master {
        /// Application attempt, such as `appattempt_1700000000000_0007_000001`.
        attempt: String,
        /// Id of the master key; a new key means a new token.
        key: i32,
    },
    /// `NMToken`: authenticates an ApplicationMaster to a NodeManager.
    Node {
        /// Application attempt.
        attempt: String,
        /// Node as `host:port`.
        node: String,
        /// Submitter of the application.
        user: String,
        /// Id of the master key.
        key: i32,
    },
    /// `ContainerToken`: authorizes the start of a container.
    Container {
        /// Container, such as `container_1700000000000_0007_01_000002`.
        container: String,
        /// Node as `host:port`.
        node: String,
        /// User of the container.
        user: String,
        /// Time until which the container can be started, by the node's clock.
        expires_ms: i64,
    },
    /// `YARN_CLIENT_TOKEN`: authenticates a client to an ApplicationMaster.
    Client {
        /// Application attempt.
        attempt: String,
        /// User of the client.
        user: String,
    },
    /// A delegation token: its holder acts as the owner on HDFS, the ResourceManager, a key server,
    /// ….
    Delegation {
        /// Owner.
        owner: String,
        /// Renewer.
        renewer: String,
        /// User that fetched it for the owner; empty if the owner did.
        real_user: String,
        /// Time of issue.
        issued_ms: i64,
        /// Maximum lifetime: expiry regardless of renewals.
        max_date_ms: i64,
        /// Sequence number.
        number: i32,
        /// Id of the master key.
        key: i32,
    },
    /// A kind that is not decoded.
    Other,
}

/// Error decoding the identifier of a token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot decode the identifier of a `{kind}` token: {why}")]
pub struct IdentifierError {
    /// Token kind.
    pub kind: String,
    /// The format error.
    pub why: FormatError,
}

impl TokenIdentifier {
    /// Decodes the identifier of a token.
    pub fn decode(token: &Token) -> Result<Self, IdentifierError> {
        let bytes = token.identifier.as_slice();
        let result = match token.kind.as_str() {
            "YARN_AM_RM_TOKEN" => master(bytes),
            "NMToken" => node(bytes),
            "ContainerToken" => container(bytes),
            "YARN_CLIENT_TOKEN" => client(bytes),
            "RM_DELEGATION_TOKEN" | "TIMELINE_DELEGATION_TOKEN" => match bytes.first() {
                // Before Hadoop 2.6 these used the HDFS encoding; its version byte 0 is no valid
                // tag.
                Some(0) => writable_delegation(bytes),
                _ => delegation(bytes),
            },
            "HDFS_DELEGATION_TOKEN"
            | "WEBHDFS delegation"
            | "SWEBHDFS delegation"
            | "HTTPFS_DELEGATION_TOKEN"
            | "MR_DELEGATION_TOKEN"
            | "kms-dt" => writable_delegation(bytes),
            _ => Ok(Self::Other),
        };
        result.map_err(|why| IdentifierError { kind: token.kind.clone(), why })
    }

    /// Returns the expiry time, if the identifier contains one.
    pub fn expires_ms(&self) -> Option<i64> {
        match self {
            Self::Container { expires_ms, .. } => Some(*expires_ms),
            Self::Delegation { max_date_ms, .. } => Some(*max_date_ms),
            Self::Master { .. } | Self::Node { .. } | Self::Client { .. } | Self::Other => None,
        }
    }
}

impl fmt::Display for TokenIdentifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Master { attempt, .. } => write!(f, "master of {attempt}"),
            Self::Node { attempt, node, .. } => write!(f, "master of {attempt} on node {node}"),
            Self::Container { container, node, .. } => write!(f, "{container} on node {node}"),
            Self::Client { attempt, user } => write!(f, "client {user} of {attempt}"),
            Self::Delegation { owner, renewer, real_user, number, .. } => {
                write!(f, "token {number} of {owner}")?;
                if !real_user.is_empty() {
                    write!(f, ", fetched by {real_user}")?;
                }
                match renewer.is_empty() {
                    true => f.write_str(", not renewed"),
                    false => write!(f, ", renewed by {renewer}"),
                }
            }
            Self::Other => f.write_str("opaque identifier"),
        }
    }
}

/// Calls `take` for each field with its value and offset.
fn for_each_field<'a>(
    bytes: &'a [u8],
    mut take: impl FnMut(u32, FieldValue<'a>, usize) -> Result<(), FormatError>,
) -> Result<(), FormatError> {
    let mut fields = FieldReader::new(bytes, 0);
    while let Some((field, value)) = fields.next()? {
        take(field, value, fields.position())?;
    }
    Ok(())
}

/// Id of an application; the numbers are unsigned only on the wire.
#[derive(Clone, Copy, Default)]
struct ApplicationParts {
    id: i32,
    cluster: i64,
}

fn application(bytes: &[u8]) -> Result<ApplicationParts, FormatError> {
    let mut found = ApplicationParts::default();
    for_each_field(bytes, |field, value, _| {
        match (field, value) {
            (1, FieldValue::Number(id)) => found.id = id as i32,
            (2, FieldValue::Number(cluster)) => found.cluster = cluster as i64,
            _ => {}
        }
        Ok(())
    })?;
    Ok(found)
}

fn attempt(bytes: &[u8]) -> Result<(ApplicationParts, i32), FormatError> {
    let mut found = (ApplicationParts::default(), 0);
    for_each_field(bytes, |field, value, _| {
        match (field, value) {
            (1, FieldValue::Bytes(inner)) => found.0 = application(inner)?,
            (2, FieldValue::Number(attempt)) => found.1 = attempt as i32,
            _ => {}
        }
        Ok(())
    })?;
    Ok(found)
}

fn attempt_text(bytes: &[u8]) -> Result<String, FormatError> {
    let (application, attempt) = attempt(bytes)?;
    let ApplicationParts { id, cluster } = application;
    Ok(format!("appattempt_{cluster}_{id:04}_{attempt:06}"))
}

fn container_text(bytes: &[u8]) -> Result<String, FormatError> {
    let mut of = (ApplicationParts::default(), 0);
    let mut id = 0u64;
    for_each_field(bytes, |field, value, _| {
        match (field, value) {
            (2, FieldValue::Bytes(inner)) => of = attempt(inner)?,
            (3, FieldValue::Number(number)) => id = number,
            _ => {}
        }
        Ok(())
    })?;
    // The upper bits are the ResourceManager's restart epoch.
    let (epoch, number) = (id >> 40, id & 0xff_ffff_ffff);
    let (ApplicationParts { id, cluster }, attempt) = of;
    let epoch = match epoch {
        0 => String::new(),
        epoch => format!("e{epoch:02}_"),
    };
    Ok(format!("container_{epoch}{cluster}_{id:04}_{attempt:02}_{number:06}"))
}

fn node_text(bytes: &[u8]) -> Result<String, FormatError> {
    let mut found = (String::new(), 0);
    for_each_field(bytes, |field, value, at| {
        match (field, value) {
            (1, FieldValue::Bytes(host)) => found.0 = text(host, at)?,
            (2, FieldValue::Number(port)) => found.1 = port as i32,
            _ => {}
        }
        Ok(())
    })?;
    Ok(format!("{}:{}", found.0, found.1))
}

fn master(bytes: &[u8]) -> Result<TokenIdentifier, FormatError> {
    let mut found = (String::new(), -1);
    for_each_field(bytes, |field, value, _| {
        match (field, value) {
            (1, FieldValue::Bytes(inner)) => found.0 = attempt_text(inner)?,
            (2, FieldValue::Number(key)) => found.1 = key as i32,
            _ => {}
        }
        Ok(())
    })?;
    let (attempt, key) = found;
    Ok(TokenIdentifier::Master { attempt, key })
}

fn node(bytes: &[u8]) -> Result<TokenIdentifier, FormatError> {
    let (mut attempt, mut node, mut user, mut key) = Default::default();
    for_each_field(bytes, |field, value, at| {
        match (field, value) {
            (1, FieldValue::Bytes(inner)) => attempt = attempt_text(inner)?,
            (2, FieldValue::Bytes(inner)) => node = node_text(inner)?,
            (3, FieldValue::Bytes(name)) => user = text(name, at)?,
            (4, FieldValue::Number(number)) => key = number as i32,
            _ => {}
        }
        Ok(())
    })?;
    Ok(TokenIdentifier::Node { attempt, node, user, key })
}

fn container(bytes: &[u8]) -> Result<TokenIdentifier, FormatError> {
    let (mut container, mut node, mut user, mut expires_ms) = Default::default();
    for_each_field(bytes, |field, value, at| {
        match (field, value) {
            (1, FieldValue::Bytes(inner)) => container = container_text(inner)?,
            (2, FieldValue::Bytes(address)) => node = text(address, at)?,
            (3, FieldValue::Bytes(name)) => user = text(name, at)?,
            (5, FieldValue::Number(time)) => expires_ms = time as i64,
            _ => {}
        }
        Ok(())
    })?;
    Ok(TokenIdentifier::Container { container, node, user, expires_ms })
}

fn client(bytes: &[u8]) -> Result<TokenIdentifier, FormatError> {
    let (mut attempt, mut user) = Default::default();
    for_each_field(bytes, |field, value, at| {
        match (field, value) {
            (1, FieldValue::Bytes(inner)) => attempt = attempt_text(inner)?,
            (2, FieldValue::Bytes(name)) => user = text(name, at)?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(TokenIdentifier::Client { attempt, user })
}

fn delegation(bytes: &[u8]) -> Result<TokenIdentifier, FormatError> {
    let [mut owner, mut renewer, mut real_user] = <[String; 3]>::default();
    let [mut issued_ms, mut max_date_ms] = [0; 2];
    let [mut number, mut key] = [0; 2];
    for_each_field(bytes, |field, value, at| {
        match (field, value) {
            (1, FieldValue::Bytes(name)) => owner = text(name, at)?,
            (2, FieldValue::Bytes(name)) => renewer = text(name, at)?,
            (3, FieldValue::Bytes(name)) => real_user = text(name, at)?,
            (4, FieldValue::Number(time)) => issued_ms = time as i64,
            (5, FieldValue::Number(time)) => max_date_ms = time as i64,
            (6, FieldValue::Number(value)) => number = value as i32,
            (7, FieldValue::Number(value)) => key = value as i32,
            _ => {}
        }
        Ok(())
    })?;
    Ok(TokenIdentifier::Delegation {
        owner,
        renewer,
        real_user,
        issued_ms,
        max_date_ms,
        number,
        key,
    })
}

/// Decodes the Writable form: a version, names, times, numbers.
fn writable_delegation(bytes: &[u8]) -> Result<TokenIdentifier, FormatError> {
    let mut reader = WritableReader::new(bytes, 0);
    let version = reader.byte()?;
    if version != 0 {
        return Err(FormatError::Format(version));
    }
    Ok(TokenIdentifier::Delegation {
        owner: reader.text()?,
        renewer: reader.text()?,
        real_user: reader.text()?,
        issued_ms: reader.long()?,
        max_date_ms: reader.long()?,
        number: reader.long()? as i32,
        key: reader.long()? as i32,
    })
}
