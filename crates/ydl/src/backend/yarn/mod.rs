//! Containers of a Hadoop cluster.
//!
//! * `setting`: what a master knows when it begins.

mod setting;

pub use setting::YarnSetting;

use super::{Backend, Deposed, Launch};
use crate::report::Report;
use ydl_core::{Asks, ContainerId, Event, Outcome};

/// The backend of one job on YARN.
#[derive(Debug)]
pub struct Yarn {
    _private: (),
}

impl Yarn {
    /// Registers the master with the ResourceManager. The containers are those of earlier attempts that are still
    /// the job's, or were until their end was told: what becomes of them follows as events.
    pub async fn register(setting: YarnSetting) -> Result<(Yarn, Vec<ContainerId>), Report> {
        let address = setting.address;
        Err(Report::trouble(format!(
            "the master at `{address}` cannot register yet"
        )))
    }
}

impl Backend for Yarn {
    fn want(&mut self, _asks: Asks) {}

    fn launch(&mut self, _container: ContainerId, _launch: Launch) {}

    fn release(&mut self, _container: ContainerId) {}

    async fn next(&mut self) -> Result<Event, Deposed> {
        std::future::pending().await
    }

    async fn close(&mut self, _outcome: &Outcome) {}
}
