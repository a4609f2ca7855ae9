//! Sizes of containers in the core's words and in YARN's, and whether a cluster can have one so large.

use yarn_native::{
    scheduler::RegisterResponse,
    types::{Resource, ResourceTypeInfo},
};
use ydl_core::{
    RoleName,
    spec::{Memory, Resources},
};

/// The name under which YARN counts graphics processors.
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

/// Whether one of them fits into the other.
pub(super) fn fits(size: &Resource, room: &Resource) -> bool {
    let other = |name: &String| room.others.get(name).copied().unwrap_or(0);
    size.memory_mib <= room.memory_mib
        && size.vcores <= room.vcores
        && size.others.iter().all(|(name, count)| *count <= other(name))
}

/// The largest container that a cluster gives, and what it counts.
#[derive(Clone, Debug)]
pub(super) struct Largest {
    max: Resource,
    kinds: Vec<ResourceTypeInfo>,
}

impl Largest {
    pub(super) fn of(registered: &RegisterResponse) -> Largest {
        Largest { max: registered.capability_max.clone(), kinds: registered.resource_types.clone() }
    }

    /// Why a container of this size can never be had here.
    pub(super) fn complaint(&self, role: &RoleName, size: &Resources) -> Option<String> {
        let task = format!("a task of role `{role}` needs");
        let wanted = to_yarn(size);
        let max = &self.max;
        if wanted.memory_mib > max.memory_mib {
            let most = Memory(u64::try_from(max.memory_mib).unwrap_or(0));
            let needs = Memory(size.memory_mib);
            return Some(format!(
                "{task} {needs} memory, and the cluster's largest container has {most}"
            ));
        }
        if wanted.vcores > max.vcores {
            return Some(format!(
                "{task} {} vcores, and the cluster's largest container has {}",
                wanted.vcores, max.vcores
            ));
        }
        // Old versions do not tell what they count; they refuse what they do not know.
        let known = |name: &str| self.kinds.iter().any(|kind| kind.name == name);
        for (name, count) in &wanted.others {
            if !self.kinds.is_empty() && !known(name) {
                return Some(format!("{task} {count} `{name}`, which the cluster does not count"));
            }
            if let Some(most) = max.others.get(name).filter(|most| count > most) {
                return Some(format!(
                    "{task} {count} `{name}`, and the cluster's largest container has {most}"
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
    fn a_size_comes_back_as_it_went() {
        let mut size = Resources { memory_mib: 512, vcores: 2, gpus: 1, ..Resources::default() };
        size.other.insert("yarn.io/fpga".to_owned(), 3);
        let yarn = to_yarn(&size);
        assert_eq!(yarn.others.get(GPU), Some(&1));
        assert_eq!(from_yarn(&yarn), size);
        let plain = from_yarn(&Resource::new(-1, -1));
        assert_eq!(plain, Resources::default());
    }

    #[test]
    fn a_container_that_can_never_be_had_is_told_with_numbers() {
        let mut max = Resource::new(8192, 8);
        max.others.insert(GPU.to_owned(), 4);
        let largest = Largest { max, kinds: Vec::new() };
        let size = |memory_mib, vcores, gpus| Resources {
            memory_mib,
            vcores,
            gpus,
            ..Resources::default()
        };
        let said = |size| largest.complaint(&RoleName::from("worker"), &size);
        assert_eq!(said(size(8192, 8, 4)), None);
        let memory = "a task of role `worker` needs 16 GiB memory, and the cluster's largest container has 8 GiB";
        assert_eq!(said(size(16384, 8, 4)).as_deref(), Some(memory));
        let vcores =
            "a task of role `worker` needs 9 vcores, and the cluster's largest container has 8";
        assert_eq!(said(size(1, 9, 0)).as_deref(), Some(vcores));
        let gpus = "a task of role `worker` needs 5 `yarn.io/gpu`, and the cluster's largest container has 4";
        assert_eq!(said(size(1, 1, 5)).as_deref(), Some(gpus));
    }
}
