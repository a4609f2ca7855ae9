//! Requests that wait for a replica, limited in number and bytes.

use std::collections::VecDeque;

use crate::route_table::QueueLimits;

/// First-in, first-out queue.
#[derive(Debug)]
pub(crate) struct WaitQueue<T> {
    waiting: VecDeque<(usize, T)>,
    bytes: usize,
}

/// Limit that a request would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueFull {
    Requests,
    Bytes,
}

impl<T> Default for WaitQueue<T> {
    fn default() -> WaitQueue<T> {
        WaitQueue { waiting: VecDeque::new(), bytes: 0 }
    }
}

impl<T> WaitQueue<T> {
    /// Adds a request that keeps `bytes` of memory.
    pub(crate) fn push(
        &mut self,
        bytes: usize,
        item: T,
        limits: &QueueLimits,
    ) -> Result<(), QueueFull> {
        if self.waiting.len() >= limits.requests {
            return Err(QueueFull::Requests);
        }
        if self.bytes.saturating_add(bytes) > limits.bytes {
            return Err(QueueFull::Bytes);
        }
        self.bytes += bytes;
        self.waiting.push_back((bytes, item));
        Ok(())
    }

    /// Removes the requests that have left, as `has_left` says.
    pub(crate) fn prune(&mut self, has_left: impl Fn(&T) -> bool) {
        let bytes = &mut self.bytes;
        self.waiting.retain(|(size, item)| {
            let stays = !has_left(item);
            if !stays {
                *bytes -= size;
            }
            stays
        });
    }

    pub(crate) fn front(&self) -> Option<&T> {
        self.waiting.front().map(|(_, item)| item)
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        let (bytes, item) = self.waiting.pop_front()?;
        self.bytes -= bytes;
        Some(item)
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_queue_is_limited_in_number_and_bytes_and_keeps_the_order() {
        let limits = QueueLimits { requests: 3, bytes: 10, wait: Duration::ZERO };
        let mut queue = WaitQueue::default();
        assert_eq!(queue.push(6, 'a', &limits), Ok(()));
        assert_eq!(queue.push(6, 'b', &limits), Err(QueueFull::Bytes));
        assert_eq!(queue.push(4, 'b', &limits), Ok(()));
        assert_eq!(queue.push(0, 'c', &limits), Ok(()));
        assert_eq!(queue.push(0, 'd', &limits), Err(QueueFull::Requests));
        queue.prune(|item| *item == 'a');
        assert_eq!((queue.front(), queue.len()), (Some(&'b'), 2));
        assert_eq!(queue.push(6, 'd', &limits), Ok(()));
        assert_eq!(
            [queue.pop(), queue.pop(), queue.pop(), queue.pop()],
            [Some('b'), Some('c'), Some('d'), None]
        );
        assert_eq!(queue.push(10, 'e', &limits), Ok(()));
    }
}
