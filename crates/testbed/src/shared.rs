//! One cluster for all tests of a binary that ask for the same.

use crate::{cluster::Cluster, failure::Failure, options::Options};
use std::sync::{Mutex, OnceLock, PoisonError};

type Slot = &'static OnceLock<Result<Cluster, Failure>>;

static SHARED: Mutex<Vec<(Options, Slot)>> = Mutex::new(Vec::new());

impl Cluster {
    /// The cluster of this process with these options: the first test that asks starts it, the
    /// others wait for it, and a failure is told to all. It lives until the process ends; Rust drops
    /// no statics, but the watcher sees the end.
    pub fn shared(options: Options) -> Result<&'static Cluster, Failure> {
        let slot = {
            let mut all = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
            let found = all.iter().find(|(known, _)| *known == options);
            match found {
                Some((_, slot)) => *slot,
                None => {
                    let slot: Slot = Box::leak(Box::new(OnceLock::new()));
                    all.push((options.clone(), slot));
                    slot
                }
            }
        };
        slot.get_or_init(|| Cluster::start(options)).as_ref().map_err(Failure::clone)
    }
}
