//! Free resources of this machine.

use ydl_core::{
    Ask, JobSpec,
    spec::{Memory, Resources},
};
use ydl_proto::files::LocalResources;

/// Smallest container: the agent and the shim count against its memory and use up to 20 MiB.
const MIN_MEMORY_MIB: u64 = 32;

#[derive(Debug)]
pub(super) struct Capacity {
    offer: LocalResources,
    /// Free memory and vcores; none if they are not counted.
    free: Option<(u64, u32)>,
}

impl Capacity {
    pub(super) fn new(offer: &LocalResources, oversubscribe: bool) -> Capacity {
        let free = (!oversubscribe).then_some((offer.memory_mib, offer.vcores));
        Capacity { offer: offer.clone(), free }
    }

    /// Returns true if memory and vcores are not limited.
    pub(super) fn is_unlimited(&self) -> bool {
        self.free.is_none()
    }

    pub(super) fn fits(&self, size: &Resources) -> bool {
        let fits = |(memory_mib, vcores)| size.memory_mib <= memory_mib && size.vcores <= vcores;
        self.free.is_none_or(fits)
    }

    pub(super) fn reserve(&mut self, size: &Resources) {
        if let Some((memory_mib, vcores)) = &mut self.free {
            *memory_mib -= size.memory_mib;
            *vcores -= size.vcores;
        }
    }

    pub(super) fn release(&mut self, size: &Resources) {
        if let Some((memory_mib, vcores)) = &mut self.free {
            *memory_mib += size.memory_mib;
            *vcores += size.vcores;
        }
    }

    /// Returns the reason if a container of this size can never be granted.
    pub(super) fn unsatisfiable(&self, ask: &Ask) -> Option<String> {
        let shortfall = shortfall(&ask.resources, &self.offer, self.is_unlimited())?;
        Some(format!("a task of role `{}` needs {shortfall}", ask.role))
    }
}

/// Reason why a job can never run on this machine.
#[derive(Debug, PartialEq, Eq)]
pub enum Misfit {
    /// Exceeds the available resources.
    TooLarge(String),
    /// Requires a resource that no local machine provides.
    Impossible(String),
    /// Smaller than an agent needs.
    TooSmall(String),
}

/// Checks that every task, and a gang as a whole, fits the available resources. Independent tasks may run one
/// after another.
pub fn check_fit(spec: &JobSpec, offer: &LocalResources) -> Option<Misfit> {
    find_misfit(spec, offer, spec.local.oversubscribe)
}

/// Describes by how much a job that may oversubscribe this machine does so.
pub fn oversubscription(spec: &JobSpec, offer: &LocalResources) -> Option<String> {
    match spec.local.oversubscribe.then(|| find_misfit(spec, offer, false))?? {
        Misfit::TooLarge(what) => Some(what),
        Misfit::Impossible(_) | Misfit::TooSmall(_) => None,
    }
}

fn find_misfit(spec: &JobSpec, offer: &LocalResources, oversubscribe: bool) -> Option<Misfit> {
    for role in &spec.roles {
        if role.resources.memory_mib < MIN_MEMORY_MIB && !spec.local.oversubscribe {
            let (given, min) = (Memory(role.resources.memory_mib), Memory(MIN_MEMORY_MIB));
            let name = &role.name;
            return Some(Misfit::TooSmall(format!(
                "a task of role `{name}` has {given} of memory; the minimum is {min}"
            )));
        }
        if let Some(shortfall) = shortfall(&role.resources, offer, oversubscribe) {
            let what = format!("a task of role `{}` needs {shortfall}", role.name);
            return Some(match role.resources.other.is_empty() {
                true => Misfit::TooLarge(what),
                false => Misfit::Impossible(what),
            });
        }
    }
    // Without counting, all tasks start together in any job.
    if !spec.gang.together && !spec.local.oversubscribe {
        return None;
    }
    let mut total = Resources::default();
    for role in &spec.roles {
        let n = role.min_instances();
        total.memory_mib =
            total.memory_mib.saturating_add(role.resources.memory_mib.saturating_mul(u64::from(n)));
        total.vcores = total.vcores.saturating_add(role.resources.vcores.saturating_mul(n));
        total.gpus = total.gpus.saturating_add(role.resources.gpus.saturating_mul(n));
    }
    let shortfall = shortfall(&total, offer, oversubscribe)?;
    let tasks: u64 = spec.roles.iter().map(|role| u64::from(role.min_instances())).sum();
    Some(Misfit::TooLarge(format!("the job's {tasks} tasks start together and need {shortfall}")))
}

/// Describes the first resource of which `size` exceeds `offer`. `oversubscribe` is true if memory and vcores do not count.
fn shortfall(size: &Resources, offer: &LocalResources, oversubscribe: bool) -> Option<String> {
    let gpus = offer.gpus.len() as u32;
    if let Some((name, count)) = size.other.iter().next() {
        Some(format!("{count} `{name}`, which this machine does not have"))
    } else if size.memory_mib > offer.memory_mib && !oversubscribe {
        let (needed, available) = (Memory(size.memory_mib), Memory(offer.memory_mib));
        Some(format!("{needed} of memory, but only {available} is available"))
    } else if size.vcores > offer.vcores && !oversubscribe {
        Some(format!("{} vcores, but only {} are available", size.vcores, offer.vcores))
    } else if size.gpus > gpus {
        Some(format!("{} GPUs, but only {gpus} are available", size.gpus))
    } else {
        None
    }
}
