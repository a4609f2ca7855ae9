//! What must always hold. A master that finds itself wrong stops rather than guesses.

use super::{Job, Place, Stage};

impl Job {
    /// Cheap enough for every event, also in a product build.
    pub(super) fn check(&self) {
        for role in &self.roles {
            assert_eq!(
                role.counted(),
                role.want,
                "every task of a role is in exactly one state"
            );
            assert!(
                role.tasks.len() >= role.want as usize,
                "every task that is wanted exists"
            );
        }
        assert!(
            self.held.len() <= self.known.len(),
            "every container was granted once"
        );
        if matches!(self.stage, Stage::Finished(_)) {
            assert!(self.held.is_empty(), "a finished job holds nothing");
        }
        if cfg!(debug_assertions) {
            self.check_all();
        }
    }

    /// Everything that can be said, at a price that grows with the number of tasks.
    pub fn check_all(&self) {
        let mut held = 0;
        for (at, role) in self.roles.iter().enumerate() {
            let mut lost = 0;
            for (index, task) in role.tasks.iter().enumerate() {
                if let Some(on) = task.place.container() {
                    let by = self.held.get(on).map(|held| held.task);
                    let key = super::TaskKey {
                        role: at,
                        index: index as u32,
                    };
                    assert_eq!(by, Some(key), "a task's container is held by that task");
                    held += 1;
                }
                let asked = role.asked.get(&task.memory_mib);
                let listed = asked.is_some_and(|asked| asked.contains(&(index as u32)));
                let asks = matches!(task.place, Place::Asked { .. });
                assert_eq!(asks, listed, "the asks are the tasks that ask");
                if let Some(round) = task.gathering {
                    assert!(
                        self.gatherings.contains_key(&round),
                        "a round that is waited for exists"
                    );
                    assert_eq!(round, task.round, "a task waits for its own round");
                }
                lost += u32::from(matches!(
                    &task.place,
                    Place::Over {
                        result: crate::ending::TaskResult::Failed(_),
                        ..
                    }
                ));
            }
            assert!(
                role.lost >= lost,
                "every task that failed for good is counted"
            );
        }
        assert_eq!(
            held,
            self.held.len(),
            "every container that is held belongs to a task"
        );
        if self.stage == Stage::Active {
            let waits = self.next_deadline().is_some()
                || self
                    .roles
                    .iter()
                    .any(|role| role.count(crate::view::TaskState::Running) > 0)
                || !self.held.is_empty();
            assert!(waits, "an active job waits for something that will happen");
        }
    }
}
