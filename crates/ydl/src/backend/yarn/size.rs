//! Conversion of container sizes between the core and YARN, and size limits of the cluster.

use yarn_native::{
    scheduler::RegisterResponse,
    types::{Resource, ResourceTypeInfo},
};
use ydl_core::{
    RoleName,
    spec::{Memory, Resources},
};

/// YARN's resource name of GPUs.
pub(super) const GPU: &str = "yarn.io/gpu";

pub(super) fn to_yarn(size: &Resources) -> Resource {
    let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let vcores = i32::try_from(size.vcores).unwrap_or(i32::MAX);
    let mut resource = Resource::new(number(size.memory_mib), vcores);
    for (name, count) in size.other.iter().filter(|(_, count)| **count > 0) {
        resource.others.insert(name.clone(), number(*count));
    }
    if size.gpus > 0 {
        resource.others.insert(GPU.to_owned(), size.gpus.into());
    }
    resource
}

pub(super) fn from_yarn(resource: &Resource) -> Resources {
    let number = |n: i64| u64::try_from(n).unwrap_or(0);
    let mut size = Resources {
        memory_mib: number(resource.memory_mib),
        vcores: u32::try_from(resource.vcores).unwrap_or(0),
        ..Resources::default()
    };
    for (name, count) in resource.others.iter().filter(|(_, count)| **count > 0) {
        match name.as_str() {
            GPU => size.gpus = u32::try_from(*count).unwrap_or(u32::MAX),
            _ => drop(size.other.insert(name.clone(), number(*count))),
        }
    }
    size
}

/// Returns true if `size` fits into `available`.
pub(super) fn fits(size: &Resource, available: &Resource) -> bool {
    let other = |name: &String| available.others.get(name).copied().unwrap_or(0);
    size.memory_mib <= available.memory_mib
        && size.vcores <= available.vcores
        && size.others.iter().all(|(name, count)| *count <= other(name))
}

/// Maximum allocation of a cluster and its resource types.
#[derive(Clone, Debug)]
pub(super) struct MaxAllocation {
    max: Resource,
    kinds: Vec<ResourceTypeInfo>,
}

impl MaxAllocation {
    pub(super) fn of(registered: &RegisterResponse) -> MaxAllocation {
        MaxAllocation {
            max: registered.capability_max.clone(),
            kinds: registered.resource_types.clone(),
        }
    }

    /// Returns the reason if a container of this size can never be granted.
    pub(super) fn exceeded(&self, role: &RoleName, size: &Resources) -> Option<String> {
        let task = format!("a task of role `{role}` needs");
        let requested = to_yarn(size);
        let max = &self.max;
        if requested.memory_mib > max.memory_mib {
            let max_count = Memory(u64::try_from(max.memory_mib).unwrap_or(0));
            let needs = Memory(size.memory_mib);
            return Some(format!(
                "{task} {needs} of memory, but the cluster's largest container has {max_count}"
            ));
        }
        if requested.vcores > max.vcores {
            return Some(format!(
                "{task} {} vcores, but the cluster's largest container has {}",
                requested.vcores, max.vcores
            ));
        }
        // Old versions do not list their resource types; they reject unknown ones.
        let is_known = |name: &str| self.kinds.iter().any(|kind| kind.name == name);
        for (name, count) in &requested.others {
            if !self.kinds.is_empty() && !is_known(name) {
                return Some(format!(
                    "{task} {count} `{name}`, which the cluster does not provide"
                ));
            }
            if let Some(max_count) = max.others.get(name).filter(|max_count| count > max_count) {
                return Some(format!(
                    "{task} {count} `{name}`, but the cluster's largest container has {max_count}"
                ));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_survives_the_round_trip_to_yarn() {
        let mut size = Resources { memory_mib: 512, vcores: 2, gpus: 1, ..Resources::default() };
        size.other.insert("yarn.io/fpga".to_owned(), 3);
        let yarn = to_yarn(&size);
        assert_eq!(yarn.others.get(GPU), Some(&1));
        assert_eq!(from_yarn(&yarn), size);
        let plain = from_yarn(&Resource::new(-1, -1));
        assert_eq!(plain, Resources::default());
    }

    #[test]
    fn unsatisfiable_sizes_are_reported_with_numbers() {
        let mut max = Resource::new(8192, 8);
        max.others.insert(GPU.to_owned(), 4);
        let largest = MaxAllocation { max, kinds: Vec::new() };
        let size = |memory_mib, vcores, gpus| Resources {
            memory_mib,
            vcores,
            gpus,
            ..Resources::default()
        };
        let exceeded_for = |size| largest.exceeded(&RoleName::from("worker"), &size);
        assert_eq!(exceeded_for(size(8192, 8, 4)), None);
        let memory = "a task of role `worker` needs 16 GiB of memory, but the cluster's largest container has 8 GiB";
        assert_eq!(exceeded_for(size(16384, 8, 4)).as_deref(), Some(memory));
        let vcores =
            "a task of role `worker` needs 9 vcores, but the cluster's largest container has 8";
        assert_eq!(exceeded_for(size(1, 9, 0)).as_deref(), Some(vcores));
        let gpus = "a task of role `worker` needs 5 `yarn.io/gpu`, but the cluster's largest container has 4";
        assert_eq!(exceeded_for(size(1, 1, 5)).as_deref(), Some(gpus));
    }
}
