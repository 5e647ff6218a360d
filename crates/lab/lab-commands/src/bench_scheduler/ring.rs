//! A bounded lock-free single-producer, single-consumer queue: a ring of words with two counters.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Words of a message.
pub(super) const WORDS: usize = 6;

/// Capacity in messages: the assigner has at most one outstanding grant per queue, and a queue
/// that is faster than the assigner blocks.
const MESSAGES_MAX: usize = 1024;

#[derive(Debug)]
pub(super) struct Ring {
    slots: Vec<[AtomicU64; WORDS]>,
    /// Total messages written; modified only by the sender.
    written: AtomicUsize,
    /// Total messages read; modified only by the receiver.
    read: AtomicUsize,
}

impl Ring {
    pub(super) fn new() -> Self {
        let slot = || std::array::from_fn(|_| AtomicU64::new(0));
        Self {
            slots: (0..MESSAGES_MAX).map(|_| slot()).collect(),
            written: AtomicUsize::new(0),
            read: AtomicUsize::new(0),
        }
    }

    /// Writes a message; returns `false` if the ring is full. Only for the sender's thread.
    pub(super) fn send(&self, message: [u64; WORDS]) -> bool {
        let written = self.written.load(Ordering::Relaxed);
        // Acquire: the receiver has finished reading the slot that is reused.
        if written - self.read.load(Ordering::Acquire) == MESSAGES_MAX {
            return false;
        }
        for (word, value) in self.slots[written % MESSAGES_MAX].iter().zip(message) {
            word.store(value, Ordering::Relaxed);
        }
        // Release: the words are visible before the count.
        self.written.store(written + 1, Ordering::Release);
        true
    }

    /// Reads a message, if any. Only for the receiver's thread.
    pub(super) fn receive(&self) -> Option<[u64; WORDS]> {
        let read = self.read.load(Ordering::Relaxed);
        if read == self.written.load(Ordering::Acquire) {
            return None;
        }
        let slot = &self.slots[read % MESSAGES_MAX];
        let message = std::array::from_fn(|i| slot[i].load(Ordering::Relaxed));
        self.read.store(read + 1, Ordering::Release);
        Some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_whole_and_in_order() {
        const COUNT: u64 = 20_000;
        let ring = Ring::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..COUNT {
                    while !ring.send([n, n + 1, n + 2, n + 3, n + 4, n + 5]) {
                        std::thread::yield_now();
                    }
                }
            });
            for n in 0..COUNT {
                let message = std::iter::repeat_with(|| {
                    std::thread::yield_now();
                    ring.receive()
                });
                let message = message.flatten().next();
                assert_eq!(message, Some([n, n + 1, n + 2, n + 3, n + 4, n + 5]));
            }
        });
        assert_eq!(ring.receive(), None);
    }

    #[test]
    fn a_full_ring_rejects_messages() {
        let ring = Ring::new();
        assert!((0..MESSAGES_MAX).all(|_| ring.send([0; WORDS])));
        assert!(!ring.send([0; WORDS]));
        assert!(ring.receive().is_some() && ring.send([0; WORDS]));
    }
}
