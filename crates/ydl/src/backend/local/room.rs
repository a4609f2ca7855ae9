//! What is left of this machine.

use ydl_core::{
    Ask, JobSpec,
    spec::{Memory, Resources},
};
use ydl_proto::files::Offer;

/// Agent and keeper count towards a container's memory, as they do on a cluster. Together they are below 20 MiB.
const LEAST_MIB: u64 = 32;

#[derive(Debug)]
pub(super) struct Room {
    offer: Offer,
    memory_mib: u64,
    vcores: u32,
}

impl Room {
    pub(super) fn new(offer: &Offer) -> Room {
        Room { memory_mib: offer.memory_mib, vcores: offer.vcores, offer: offer.clone() }
    }

    pub(super) fn fits(&self, size: &Resources) -> bool {
        size.memory_mib <= self.memory_mib && size.vcores <= self.vcores
    }

    pub(super) fn take(&mut self, size: &Resources) {
        self.memory_mib -= size.memory_mib;
        self.vcores -= size.vcores;
    }

    pub(super) fn give_back(&mut self, size: &Resources) {
        self.memory_mib += size.memory_mib;
        self.vcores += size.vcores;
    }

    /// Why a container of this size can never be had here.
    pub(super) fn never_fits(&self, ask: &Ask) -> Option<String> {
        let short = short(&ask.resources, &self.offer)?;
        Some(format!("a task of role `{}` needs {short}", ask.role))
    }
}

/// Why a job can never run here.
#[derive(Debug, PartialEq, Eq)]
pub enum Misfit {
    /// More than is offered.
    TooLarge(String),
    /// More, or something else, than any offer could have.
    Impossible(String),
    /// Less than an agent needs.
    TooSmall(String),
}

/// Why a job can never run on what is offered: a task that is too large, or a gang that is. Tasks that start on their
/// own may take turns.
pub fn complaint(spec: &JobSpec, offer: &Offer) -> Option<Misfit> {
    for role in &spec.roles {
        if role.resources.memory_mib < LEAST_MIB {
            let (given, least) = (Memory(role.resources.memory_mib), Memory(LEAST_MIB));
            let name = &role.name;
            return Some(Misfit::TooSmall(format!(
                "a task of role `{name}` has {given} memory, and {least} is the least"
            )));
        }
        if let Some(short) = short(&role.resources, offer) {
            let what = format!("a task of role `{}` needs {short}", role.name);
            return Some(match role.resources.other.is_empty() {
                true => Misfit::TooLarge(what),
                false => Misfit::Impossible(what),
            });
        }
    }
    if !spec.gang.together {
        return None;
    }
    let mut all = Resources::default();
    for role in &spec.roles {
        let n = role.min_instances();
        all.memory_mib =
            all.memory_mib.saturating_add(role.resources.memory_mib.saturating_mul(u64::from(n)));
        all.vcores = all.vcores.saturating_add(role.resources.vcores.saturating_mul(n));
        all.gpus = all.gpus.saturating_add(role.resources.gpus.saturating_mul(n));
    }
    let short = short(&all, offer)?;
    let tasks: u64 = spec.roles.iter().map(|role| u64::from(role.min_instances())).sum();
    Some(Misfit::TooLarge(format!("the job's {tasks} tasks, which start together, need {short}")))
}

/// What of this size the offer does not have.
fn short(size: &Resources, offer: &Offer) -> Option<String> {
    let gpus = offer.gpus.len() as u32;
    if let Some((name, count)) = size.other.iter().next() {
        Some(format!("{count} `{name}`, which one machine does not have"))
    } else if size.memory_mib > offer.memory_mib {
        let (needed, there) = (Memory(size.memory_mib), Memory(offer.memory_mib));
        Some(format!("{needed} memory, and {there} are offered"))
    } else if size.vcores > offer.vcores {
        Some(format!("{} vcores, and {} are offered", size.vcores, offer.vcores))
    } else if size.gpus > gpus {
        Some(format!("{} GPUs, and {gpus} are offered", size.gpus))
    } else {
        None
    }
}
