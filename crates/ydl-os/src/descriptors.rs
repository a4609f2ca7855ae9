//! Limit on open file descriptors.

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};

/// Soft and hard limit of this process.
#[derive(Clone, Debug)]
pub struct Descriptors(Rlimit);

impl Descriptors {
    /// Raises the soft limit to the hard limit: a thousand agents need more descriptors than the usual thousand. Returns the
    /// limit as it was before.
    pub fn raise() -> Descriptors {
        let before = getrlimit(Resource::Nofile);
        let raised = Rlimit { current: before.maximum, maximum: before.maximum };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::warn!("cannot have more descriptors: {error}");
        }
        Descriptors(before)
    }

    /// Sets this limit for another process. Programs get the limit that the user set: some close every possible descriptor at
    /// start.
    pub fn apply_to(&self, pid: u32) {
        let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
            return;
        };
        if let Err(error) = prlimit(Some(pid), Resource::Nofile, self.0) {
            tracing::debug!("cannot set a limit on descriptors: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raise_sets_the_soft_limit_to_the_hard_limit() {
        let before = getrlimit(Resource::Nofile);
        let few = Rlimit { current: Some(256), maximum: before.maximum };
        setrlimit(Resource::Nofile, few).unwrap();
        assert_eq!(Descriptors::raise().0.current, Some(256));
        assert_eq!(getrlimit(Resource::Nofile).current, before.maximum);
        Descriptors(before).apply_to(std::process::id());
        assert_eq!(getrlimit(Resource::Nofile).current, before.current);
    }
}
