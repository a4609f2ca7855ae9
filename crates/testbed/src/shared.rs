//! Clusters shared by all tests of a binary that use the same options.

use crate::{cluster::Cluster, error::Error, options::Options};
use std::sync::{Mutex, OnceLock, PoisonError};

type Slot = &'static OnceLock<Result<Cluster, Error>>;

static SHARED: Mutex<Vec<(Options, Slot)>> = Mutex::new(Vec::new());

impl Cluster {
    /// Returns the cluster of this process with these options. The first caller starts it and the
    /// others wait; an error is returned to all. It lives until the process exits: Rust does not drop
    /// statics, but the watcher detects the exit.
    pub fn shared(options: Options) -> Result<&'static Cluster, Error> {
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
        slot.get_or_init(|| Cluster::start(options)).as_ref().map_err(Error::clone)
    }
}
