//! How many files, pipes and sockets a process may have open.

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};

/// How many it is allowed, and could allow itself.
#[derive(Clone, Debug)]
pub struct Descriptors(Rlimit);

impl Descriptors {
    /// As many as there can be: a thousand agents need more descriptors than the thousand or so a process is usually
    /// given. Says what it was before.
    pub fn raise() -> Descriptors {
        let before = getrlimit(Resource::Nofile);
        let raised = Rlimit { current: before.maximum, maximum: before.maximum };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::warn!("cannot have more descriptors: {error}");
        }
        Descriptors(before)
    }

    /// Gives a process so many. Programs see the limit that the user set: some of them close every descriptor there
    /// could be.
    pub fn give(&self, pid: u32) {
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
    fn a_process_can_have_all_the_descriptors_there_are() {
        let before = getrlimit(Resource::Nofile);
        let few = Rlimit { current: Some(256), maximum: before.maximum };
        setrlimit(Resource::Nofile, few).unwrap();
        assert_eq!(Descriptors::raise().0.current, Some(256));
        assert_eq!(getrlimit(Resource::Nofile).current, before.maximum);
        Descriptors(before).give(std::process::id());
        assert_eq!(getrlimit(Resource::Nofile).current, before.current);
    }
}
