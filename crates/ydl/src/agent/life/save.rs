//! What is left to do when a task is over: its outputs go where its user wants them.

use super::Agent;
use crate::agent::outputs;
use tokio::sync::oneshot;

impl Agent {
    /// Copies the outputs beside the loop: it may take minutes, and the agent must go on beating.
    pub(super) fn save(&mut self, wanted: bool) {
        let (done, saving) = oneshot::channel();
        self.saving = Some(saving);
        let outputs = match (&self.order, wanted) {
            (Some(_), true) => self.surroundings.outputs(&self.submitted),
            _ => Vec::new(),
        };
        if outputs.is_empty() {
            // The receiver is in our hands.
            let _ = done.send(None);
            return;
        }
        let work = self.surroundings.work();
        tokio::task::spawn_blocking(move || {
            let copied = outputs::copy(&work, &outputs);
            let error = copied.err().map(|error| error.to_string());
            // Nobody listens only when the agent is ending anyway.
            let _ = done.send(error);
        });
    }
}
