//! Resource amounts.

use std::collections::BTreeMap;
use std::fmt;

use crate::proto::yarn::{ResourceInformationProto, ResourceProto, ResourceTypesProto};
use crate::types::InvalidMessage;

/// Names under which memory and cores also appear among the other resources.
const MEMORY: &str = "memory-mb";
const VCORES: &str = "vcores";

/// Amount of memory, cores and other counted resources.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource {
    /// Memory in MiB.
    pub memory_mib: i64,
    /// Virtual cores.
    pub vcores: i32,
    /// Other resources by name, such as `yarn.io/gpu`, in the cluster's unit.
    pub others: BTreeMap<String, i64>,
}

impl Resource {
    /// Creates an amount of memory and cores.
    pub fn new(memory_mib: i64, vcores: i32) -> Self {
        Self { memory_mib, vcores, others: BTreeMap::new() }
    }

    pub(crate) fn of(proto: Option<&ResourceProto>) -> Result<Self, InvalidMessage> {
        let proto = proto.ok_or(InvalidMessage("a resource"))?;
        let others = proto
            .resource_value_map
            .iter()
            .filter(|entry| entry.key != MEMORY && entry.key != VCORES)
            .map(|entry| (entry.key.clone(), entry.value()))
            .collect();
        Ok(Self { memory_mib: proto.memory(), vcores: proto.virtual_cores(), others })
    }

    /// Encodes the amount for asks and submissions.
    pub(crate) fn proto(&self) -> ResourceProto {
        let entry = |(key, value): (&String, &i64)| ResourceInformationProto {
            key: key.clone(),
            value: Some(*value),
            units: Some(String::new()),
            r#type: Some(ResourceTypesProto::Countable.into()),
            ..ResourceInformationProto::default()
        };
        ResourceProto {
            memory: Some(self.memory_mib),
            virtual_cores: Some(self.vcores),
            resource_value_map: self.others.iter().map(entry).collect(),
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} MiB, {} vcores", self.memory_mib, self.vcores)?;
        for (name, value) in &self.others {
            write!(f, ", {value} {name}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_other_resources_are_encoded_by_name() {
        let mut resource = Resource::new(1024, 2);
        resource.others.insert("yarn.io/gpu".into(), 1);
        let mut proto = resource.proto();
        assert_eq!(proto.resource_value_map.len(), 1);
        proto.resource_value_map.push(ResourceInformationProto {
            key: MEMORY.into(),
            value: Some(7),
            ..ResourceInformationProto::default()
        });
        assert_eq!(Resource::of(Some(&proto)), Ok(resource.clone()));
        assert_eq!(resource.to_string(), "1024 MiB, 2 vcores, 1 yarn.io/gpu");
    }
}
