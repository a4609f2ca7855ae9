//! Values that threads share by key, few at a time.

use std::{
    ops::Deref,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

/// Values by key. A value is created by the first thread that asks for its key. At most `values_max` values
/// exist at a time: to create one more, a value that is not in use is dropped. At most `leases_max` threads
/// use values at a time.
#[derive(Debug)]
pub(crate) struct Pool<K, V, E> {
    values_max: usize,
    leases_max: usize,
    entries: Mutex<Vec<Entry<K, V, E>>>,
    changed: Condvar,
}

#[derive(Debug)]
struct Entry<K, V, E> {
    key: K,
    state: State<V, E>,
    shared: usize,
    exclusive: bool,
}

#[derive(Debug)]
enum State<V, E> {
    Creating,
    Ready(Arc<V>),
    /// The error goes to all threads that ask for this key.
    Failed(E),
    Dropping,
}

/// Use of a pool's value until it is dropped.
#[derive(Debug)]
pub(crate) struct PoolLease<K: PartialEq + 'static, V: 'static, E: 'static> {
    pool: &'static Pool<K, V, E>,
    key: K,
    value: Option<Arc<V>>,
    exclusive: bool,
}

impl<K: PartialEq + Clone, V, E: Clone> Pool<K, V, E> {
    pub(crate) const fn new(values_max: usize, leases_max: usize) -> Pool<K, V, E> {
        Pool { values_max, leases_max, entries: Mutex::new(Vec::new()), changed: Condvar::new() }
    }

    /// Waits for the value of `key`. An exclusive lease excludes all others of the value. A thread holds at
    /// most one lease, otherwise threads may wait for each other.
    pub(crate) fn lease(
        &'static self,
        key: K,
        exclusive: bool,
        create: impl FnOnce(K) -> Result<V, E>,
    ) -> Result<PoolLease<K, V, E>, E> {
        let mut entries = self.lock();
        loop {
            if entries.iter().map(Entry::leases).sum::<usize>() >= self.leases_max {
                entries = self.wait(entries);
                continue;
            }
            let Some(at) = entries.iter().position(|entry| entry.key == key) else {
                let existing =
                    entries.iter().filter(|entry| !matches!(entry.state, State::Failed(_)));
                if existing.count() < self.values_max {
                    break;
                }
                entries = match entries.iter().position(Entry::is_idle) {
                    Some(idle) => self.remove(entries, idle),
                    None => self.wait(entries),
                };
                continue;
            };
            let entry = &mut entries[at];
            let busy = entry.exclusive || (exclusive && entry.shared > 0);
            match &entry.state {
                State::Failed(error) => return Err(error.clone()),
                State::Ready(value) if !busy => {
                    let value = Some(Arc::clone(value));
                    match exclusive {
                        true => entry.exclusive = true,
                        false => entry.shared += 1,
                    }
                    return Ok(PoolLease { pool: self, key, value, exclusive });
                }
                State::Ready(_) | State::Creating | State::Dropping => entries = self.wait(entries),
            }
        }
        let (shared, state) = (usize::from(!exclusive), State::Creating);
        entries.push(Entry { key: key.clone(), state, shared, exclusive });
        drop(entries);
        let created = create(key.clone()).map(Arc::new);
        let mut entries = self.lock();
        if let Some(entry) = entries.iter_mut().find(|entry| entry.key == key) {
            entry.state = match &created {
                Ok(value) => State::Ready(Arc::clone(value)),
                Err(error) => {
                    (entry.shared, entry.exclusive) = (0, false);
                    State::Failed(error.clone())
                }
            };
        }
        self.changed.notify_all();
        drop(entries);
        created.map(|value| PoolLease { pool: self, key, value: Some(value), exclusive })
    }

    /// Drops a value that is not in use; this may take a while.
    fn remove<'a>(
        &'a self,
        mut entries: MutexGuard<'a, Vec<Entry<K, V, E>>>,
        at: usize,
    ) -> MutexGuard<'a, Vec<Entry<K, V, E>>> {
        let key = entries[at].key.clone();
        let value = std::mem::replace(&mut entries[at].state, State::Dropping);
        drop(entries);
        drop(value);
        let mut entries = self.lock();
        entries.retain(|entry| entry.key != key);
        self.changed.notify_all();
        entries
    }

    fn wait<'a>(
        &self,
        entries: MutexGuard<'a, Vec<Entry<K, V, E>>>,
    ) -> MutexGuard<'a, Vec<Entry<K, V, E>>> {
        self.changed.wait(entries).unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K, V, E> Pool<K, V, E> {
    fn lock(&self) -> MutexGuard<'_, Vec<Entry<K, V, E>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K, V, E> Entry<K, V, E> {
    fn leases(&self) -> usize {
        self.shared + usize::from(self.exclusive)
    }

    fn is_idle(&self) -> bool {
        matches!(self.state, State::Ready(_)) && self.leases() == 0
    }
}

impl<K: PartialEq, V, E> Deref for PoolLease<K, V, E> {
    type Target = V;

    fn deref(&self) -> &V {
        self.value.as_ref().expect("taken only on drop")
    }
}

impl<K: PartialEq, V, E> Drop for PoolLease<K, V, E> {
    fn drop(&mut self) {
        // Before the entry is free: the pool drops the value itself.
        self.value = None;
        let mut entries = self.pool.lock();
        if let Some(entry) = entries.iter_mut().find(|entry| entry.key == self.key) {
            match self.exclusive {
                true => entry.exclusive = false,
                false => entry.shared -= 1,
            }
        }
        self.pool.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::Pool;
    use std::{
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        thread,
        time::Duration,
    };

    #[derive(Debug)]
    struct Counted(Arc<AtomicUsize>);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }

    type Counting = Pool<u32, Counted, String>;

    fn pool(values_max: usize) -> (&'static Counting, Arc<AtomicUsize>) {
        (Box::leak(Box::new(Pool::new(values_max, 3))), Arc::default())
    }

    fn create(count: &Arc<AtomicUsize>) -> impl FnOnce(u32) -> Result<Counted, String> + use<> {
        let count = Arc::clone(count);
        move |_| {
            count.fetch_add(1, Ordering::SeqCst);
            Ok(Counted(count))
        }
    }

    #[test]
    fn equal_keys_share_one_value_until_the_limit_needs_its_place() {
        let (pool, count) = pool(1);
        let one = pool.lease(1, false, create(&count)).unwrap();
        let other = pool.lease(1, false, |_| Err("created twice".to_owned())).unwrap();
        assert!(std::ptr::eq(&*one, &*other));
        drop((one, other));
        assert_eq!(count.load(Ordering::SeqCst), 1);
        let _two = pool.lease(2, true, create(&count)).unwrap();
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn threads_wait_for_a_place_and_never_exceed_the_limits() {
        let (pool, count) = pool(2);
        thread::scope(|scope| {
            for number in 0..12 {
                let count = &count;
                scope.spawn(move || {
                    let lease = pool.lease(number % 4, number % 3 == 0, create(count)).unwrap();
                    assert!(lease.0.load(Ordering::SeqCst) <= 2);
                    let leases: usize = pool.lock().iter().map(super::Entry::leases).sum();
                    assert!(leases <= 3);
                    thread::yield_now();
                });
            }
        });
        assert!(count.load(Ordering::SeqCst) <= 2);
    }

    #[test]
    fn an_exclusive_lease_excludes_all_others_of_its_key_alone() {
        let (pool, count) = pool(2);
        let exclusive = pool.lease(1, true, create(&count)).unwrap();
        let other = pool.lease(2, false, create(&count)).unwrap();
        let waiting =
            thread::spawn(move || drop(pool.lease(1, false, |_| Err(String::new())).unwrap()));
        // Time in which it would end if it did not wait.
        thread::park_timeout(Duration::from_millis(50));
        assert!(!waiting.is_finished());
        drop(exclusive);
        waiting.join().unwrap();
        drop(other);
    }

    #[test]
    fn an_error_goes_to_all_and_takes_no_place() {
        let (pool, count) = pool(1);
        let error = || pool.lease(1, false, |_| Err("failed".to_owned())).unwrap_err();
        assert_eq!([error(), error()], ["failed", "failed"]);
        assert_eq!(pool.lease(1, true, create(&count)).unwrap_err(), "failed");
        pool.lease(2, false, create(&count)).unwrap();
    }
}
