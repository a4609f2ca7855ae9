//! Activity of connections: idle ones are closed after a time, or to make room.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// Activity of one connection.
#[derive(Debug)]
pub(crate) struct Activity {
    state: Mutex<ActivityState>,
    evicted: Notify,
}

#[derive(Debug)]
struct ActivityState {
    requests: usize,
    /// End of the last request, or the accept.
    since: Instant,
}

/// Request in progress on a connection.
#[derive(Debug)]
pub(crate) struct ActiveRequest(Arc<Activity>);

impl Activity {
    fn new() -> Activity {
        let state = ActivityState { requests: 0, since: Instant::now() };
        Activity { state: Mutex::new(state), evicted: Notify::new() }
    }

    pub(crate) fn begin(self: &Arc<Self>) -> ActiveRequest {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).requests += 1;
        ActiveRequest(self.clone())
    }

    /// Returns since when the connection has been idle; `None` during requests.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.requests == 0).then_some(state.since)
    }

    /// Waits until the connection has been idle for `limit`, or must make room.
    pub(crate) async fn to_be_closed(&self, limit: Duration) {
        loop {
            let end = self.idle_since().unwrap_or_else(Instant::now) + limit;
            if self.idle_since().is_some() && Instant::now() >= end {
                return;
            }
            tokio::select! {
                () = self.evicted.notified() => return,
                () = tokio::time::sleep_until(end.into()) => {}
            }
        }
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.requests -= 1;
        state.since = Instant::now();
    }
}

/// Activities of all connections.
#[derive(Debug, Default)]
pub(crate) struct Activities(Mutex<Vec<Weak<Activity>>>);

impl Activities {
    pub(crate) fn add(&self) -> Arc<Activity> {
        let activity = Arc::new(Activity::new());
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Forgets closed connections whenever the list has doubled at most.
        if all.len() == all.capacity() {
            all.retain(|activity| activity.strong_count() > 0);
        }
        all.push(Arc::downgrade(&activity));
        activity
    }

    /// Closes the connection that has been idle for longest. Returns false if none is idle.
    pub(crate) fn evict_idle(&self) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|activity| activity.strong_count() > 0);
        let idle = all.iter().enumerate().filter_map(|(index, activity)| {
            let activity = activity.upgrade()?;
            Some((activity.idle_since()?, index, activity))
        });
        let Some((_, index, activity)) = idle.min_by_key(|(since, ..)| *since) else {
            return false;
        };
        activity.evicted.notify_one();
        all.swap_remove(index);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_connection_that_is_idle_for_longest_is_closed_first() {
        let activities = Activities::default();
        let [first, second, third] = [(); 3].map(|()| activities.add());
        let request = first.begin();
        let long = Duration::from_secs(3600);
        assert!(activities.evict_idle());
        second.to_be_closed(long).await;
        drop(request);
        assert!(activities.evict_idle());
        third.to_be_closed(long).await;
        let _request = first.begin();
        assert!(!activities.evict_idle());
    }

    #[tokio::test]
    async fn a_connection_is_closed_after_its_idle_time() {
        let activities = Activities::default();
        let activity = activities.add();
        drop(activity.begin());
        activity.to_be_closed(Duration::from_millis(1)).await;
    }
}
