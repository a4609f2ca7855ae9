//! Ids in Hadoop's text form.

use std::fmt;
use std::str::FromStr;

use crate::proto::yarn::{
    ApplicationAttemptIdProto, ApplicationIdProto, ContainerIdProto, NodeIdProto,
};
use crate::types::InvalidMessage;

/// Bits of a container's number below the ResourceManager's epoch.
const EPOCH_SHIFT: u32 = 40;
const SEQUENCE_MASK: i64 = (1 << EPOCH_SHIFT) - 1;

/// Error for a malformed id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid id `{text}`: expected the form `{form}`")]
pub struct BadId {
    text: String,
    form: &'static str,
}

impl BadId {
    fn new(text: &str, form: &'static str) -> Self {
        Self { text: text.chars().take(200).collect(), form }
    }
}

/// Application id, as in `application_1700000000000_0042`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ApplicationId {
    /// Start time of the ResourceManager in milliseconds.
    pub cluster: i64,
    /// Sequence number from 1 within that ResourceManager.
    pub number: i32,
}

/// Attempt id, as in `appattempt_1700000000000_0042_000001`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AttemptId {
    /// Application.
    pub application: ApplicationId,
    /// Number from 1.
    pub number: i32,
}

/// Container id, as in `container_e01_1700000000000_0042_01_000003`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContainerId {
    /// Attempt it was granted to.
    pub attempt: AttemptId,
    /// Number of ResourceManager restarts; not printed while it is 0.
    pub epoch: i64,
    /// Number from 1 within the attempt.
    pub number: i64,
}

/// NodeManager id, as in `node17.example.com:45454`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId {
    /// Host that the NodeManager registered.
    pub host: String,
    /// Port for container management.
    pub port: u16,
}

impl fmt::Display for ApplicationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "application_{}_{:04}", self.cluster, self.number)
    }
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ApplicationId { cluster, number } = self.application;
        write!(f, "appattempt_{cluster}_{number:04}_{:06}", self.number)
    }
}

impl fmt::Display for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AttemptId { application: ApplicationId { cluster, number }, number: attempt } =
            self.attempt;
        f.write_str("container_")?;
        if self.epoch != 0 {
            write!(f, "e{:02}_", self.epoch)?;
        }
        write!(f, "{cluster}_{number:04}_{attempt:02}_{:06}", self.number)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Parses the numbers between underscores. Signs and blanks are invalid.
fn numbers<const N: usize>(text: &str) -> Option<[i64; N]> {
    let mut found = [0; N];
    let mut parts = text.split('_');
    for slot in &mut found {
        let part = parts.next()?;
        if part.is_empty() || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        *slot = part.parse().ok()?;
    }
    parts.next().is_none().then_some(found)
}

impl FromStr for ApplicationId {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        let parse = || {
            let [cluster, number] = numbers(text.strip_prefix("application_")?)?;
            Some(Self { cluster, number: number.try_into().ok()? })
        };
        parse().ok_or_else(|| BadId::new(text, "application_TIME_NUMBER"))
    }
}

impl FromStr for AttemptId {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        let parse = || {
            let [cluster, number, attempt] = numbers(text.strip_prefix("appattempt_")?)?;
            let application = ApplicationId { cluster, number: number.try_into().ok()? };
            Some(Self { application, number: attempt.try_into().ok()? })
        };
        parse().ok_or_else(|| BadId::new(text, "appattempt_TIME_NUMBER_ATTEMPT"))
    }
}

impl FromStr for ContainerId {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        let parse = || {
            let rest = text.strip_prefix("container_")?;
            let (epoch, rest) = match rest.strip_prefix('e') {
                Some(rest) => {
                    let (epoch, rest) = rest.split_once('_')?;
                    let [epoch] = numbers(epoch)?;
                    (epoch, rest)
                }
                None => (0, rest),
            };
            let [cluster, number, attempt, container] = numbers(rest)?;
            let application = ApplicationId { cluster, number: number.try_into().ok()? };
            let attempt = AttemptId { application, number: attempt.try_into().ok()? };
            let fits = epoch <= i64::MAX >> EPOCH_SHIFT && container <= SEQUENCE_MASK;
            fits.then_some(Self { attempt, epoch, number: container })
        };
        parse().ok_or_else(|| BadId::new(text, "container_[eEPOCH_]TIME_NUMBER_ATTEMPT_CONTAINER"))
    }
}

impl FromStr for NodeId {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        let parse = || {
            let (host, port) = text.rsplit_once(':')?;
            let (host, port) = (host.to_owned(), port.parse().ok()?);
            (!host.is_empty()).then_some(Self { host, port })
        };
        parse().ok_or_else(|| BadId::new(text, "HOST:PORT"))
    }
}

impl ApplicationId {
    pub(crate) fn of(proto: Option<&ApplicationIdProto>) -> Result<Self, InvalidMessage> {
        let proto = proto.ok_or(InvalidMessage("an application's id"))?;
        Ok(Self { cluster: proto.cluster_timestamp(), number: proto.id() })
    }

    pub(crate) fn proto(&self) -> ApplicationIdProto {
        ApplicationIdProto { id: Some(self.number), cluster_timestamp: Some(self.cluster) }
    }
}

impl AttemptId {
    pub(crate) fn of(proto: Option<&ApplicationAttemptIdProto>) -> Result<Self, InvalidMessage> {
        let proto = proto.ok_or(InvalidMessage("an attempt's id"))?;
        let application = ApplicationId::of(proto.application_id.as_ref())?;
        Ok(Self { application, number: proto.attempt_id() })
    }

    pub(crate) fn proto(&self) -> ApplicationAttemptIdProto {
        ApplicationAttemptIdProto {
            application_id: Some(self.application.proto()),
            attempt_id: Some(self.number),
        }
    }
}

impl ContainerId {
    pub(crate) fn of(proto: Option<&ContainerIdProto>) -> Result<Self, InvalidMessage> {
        let proto = proto.ok_or(InvalidMessage("a container's id"))?;
        let attempt = AttemptId::of(proto.app_attempt_id.as_ref())?;
        let (epoch, number) = (proto.id() >> EPOCH_SHIFT, proto.id() & SEQUENCE_MASK);
        Ok(Self { attempt, epoch, number })
    }

    pub(crate) fn proto(&self) -> ContainerIdProto {
        ContainerIdProto {
            app_id: None,
            app_attempt_id: Some(self.attempt.proto()),
            id: Some(self.epoch << EPOCH_SHIFT | self.number),
        }
    }
}

impl NodeId {
    pub(crate) fn of(proto: Option<&NodeIdProto>) -> Result<Self, InvalidMessage> {
        let proto = proto.ok_or(InvalidMessage("a node's id"))?;
        let port = u16::try_from(proto.port()).map_err(|_| InvalidMessage("a node's port"))?;
        Ok(Self { host: proto.host().to_owned(), port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip<T: FromStr<Err = BadId> + fmt::Display>(text: &str) {
        let id: T = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(id.to_string(), text);
    }

    #[test]
    fn ids_round_trip() {
        round_trip::<ApplicationId>("application_1700000000000_0042");
        round_trip::<ApplicationId>("application_1700000000000_123456");
        round_trip::<AttemptId>("appattempt_1700000000000_0042_000001");
        round_trip::<ContainerId>("container_1700000000000_0042_01_000003");
        round_trip::<ContainerId>("container_e17_1700000000000_0042_01_000003");
        round_trip::<NodeId>("node17.example.com:45454");
    }

    #[test]
    fn malformed_ids_are_rejected() {
        for bad in [
            "",
            "application_",
            "application_1",
            "application_1_x",
            "application_1_-2",
            "application_1_2_3",
            "application_1_99999999999",
            "application_+1_2",
            "job_1_2",
        ] {
            assert!(bad.parse::<ApplicationId>().is_err(), "{bad}");
        }
        for bad in ["container_e_1_2_3_4", "container_1_2_3", "container_1_2_3_2199023255552"] {
            assert!(bad.parse::<ContainerId>().is_err(), "{bad}");
        }
        assert!(":1".parse::<NodeId>().is_err());
    }

    #[test]
    fn container_number_holds_the_epoch_in_its_upper_bits() {
        let id: ContainerId = "container_e02_5_0001_01_000007".parse().expect("an id");
        let proto = id.proto();
        assert_eq!(proto.id(), (2 << 40) + 7);
        assert_eq!(ContainerId::of(Some(&proto)), Ok(id));
    }
}
