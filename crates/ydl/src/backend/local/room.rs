//! What is left of this machine.

use super::gpus::Gpus;
use crate::jobs::Offer;
use ydl_core::{
    Ask,
    spec::{Memory, Resources},
};

#[derive(Debug)]
pub(super) struct Room {
    offer: Offer,
    memory_mib: u64,
    vcores: u32,
}

impl Room {
    pub(super) fn new(offer: &Offer) -> Room {
        Room {
            memory_mib: offer.memory_mib,
            vcores: offer.vcores,
            offer: offer.clone(),
        }
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
    pub(super) fn never_fits(&self, ask: &Ask, gpus: &Gpus) -> Option<String> {
        let size = &ask.resources;
        let short = if size.memory_mib > self.offer.memory_mib {
            format!(
                "{} memory, there are {}",
                Memory(size.memory_mib),
                Memory(self.offer.memory_mib)
            )
        } else if size.vcores > self.offer.vcores {
            format!("{} vcores, there are {}", size.vcores, self.offer.vcores)
        } else if size.gpus > gpus.all() {
            format!("{} GPUs, there are {}", size.gpus, gpus.all())
        } else if let Some((name, count)) = size.other.iter().next() {
            format!("{count} `{name}`, which one machine does not have")
        } else {
            return None;
        };
        Some(format!("a task of role `{}` needs {short}", ask.role))
    }
}
