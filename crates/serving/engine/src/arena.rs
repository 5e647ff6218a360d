//! Allocator of shared memory, used only by the front.
//!
//! Small blocks have power-of-two sizes and one free list per size, so that the common request
//! needs no search. Larger blocks are allocated first-fit from the lowest address, which minimizes
//! the memory that was ever touched; adjacent free blocks are merged. If no block fits, the blocks
//! of the free lists are merged first.

use std::collections::BTreeMap;

use albacore_os::Extent;

use crate::limits::ALIGNMENT;

/// Blocks of up to this many bytes have free lists.
pub(crate) const LISTED_BYTES_MAX: usize = 64 << 10;
pub(crate) const LISTS: usize = (LISTED_BYTES_MAX / ALIGNMENT).trailing_zeros() as usize + 1;

/// Free ranges of one mapping.
#[derive(Debug)]
pub(crate) struct Arena {
    /// By offset; no two ranges are adjacent.
    free: BTreeMap<usize, Extent>,
    /// Free blocks of `ALIGNMENT << index` bytes.
    lists: [Vec<Extent>; LISTS],
    bytes: usize,
    used: usize,
}

impl Arena {
    /// Creates an arena that is entirely free.
    pub(crate) fn new(extent: Extent) -> Self {
        let bytes = extent.len();
        let free = BTreeMap::from([(extent.offset(), extent)]);
        Self {
            free,
            lists: [const { Vec::new() }; LISTS],
            bytes,
            used: 0,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Allocated bytes.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Allocates an aligned block of at least `bytes` bytes; `None` if none is free.
    pub(crate) fn allocate(&mut self, bytes: usize) -> Option<Extent> {
        let size = rounded(bytes)?;
        let listed = list_of(size).and_then(|list| self.lists[list].pop());
        let piece = match listed {
            Some(piece) => piece,
            None => self.carve(size).or_else(|| {
                self.join_lists();
                self.carve(size)
            })?,
        };
        self.used += piece.len();
        Some(piece)
    }

    pub(crate) fn free(&mut self, piece: Extent) {
        self.used -= piece.len();
        match list_of(piece.len()) {
            Some(list) => self.lists[list].push(piece),
            None => self.join(piece),
        }
    }

    fn carve(&mut self, size: usize) -> Option<Extent> {
        let (&offset, _) = self.free.iter().find(|(_, range)| range.len() >= size)?;
        let (piece, rest) = self.free.remove(&offset)?.split_at(size);
        if !rest.is_empty() {
            self.free.insert(rest.offset(), rest);
        }
        Some(piece)
    }

    fn join_lists(&mut self) {
        for list in 0..LISTS {
            while let Some(piece) = self.lists[list].pop() {
                self.join(piece);
            }
        }
    }

    fn join(&mut self, piece: Extent) {
        let mut piece = piece;
        let before = self.free.range(..piece.offset()).next_back();
        if let Some(&offset) = before.map(|(offset, _)| offset)
            && let Some(before) = self.free.remove(&offset)
        {
            piece = self.joined_or_kept(before, piece);
        }
        if let Some(after) = self.free.remove(&(piece.offset() + piece.len())) {
            piece = self.joined_or_kept(piece, after);
        }
        self.free.insert(piece.offset(), piece);
    }

    /// Merges adjacent ranges; otherwise the first one stays free and the second is returned.
    fn joined_or_kept(&mut self, first: Extent, second: Extent) -> Extent {
        match first.join(second) {
            Ok(joined) => joined,
            Err((first, second)) => {
                self.free.insert(first.offset(), first);
                second
            }
        }
    }
}

/// The block size of an allocation; `None` if it exceeds the address space.
pub(crate) fn rounded(bytes: usize) -> Option<usize> {
    let bytes = bytes.max(1);
    if bytes <= LISTED_BYTES_MAX {
        Some(bytes.next_power_of_two().max(ALIGNMENT))
    } else {
        bytes.checked_next_multiple_of(ALIGNMENT)
    }
}

pub(crate) fn list_of(size: usize) -> Option<usize> {
    (size <= LISTED_BYTES_MAX).then(|| (size / ALIGNMENT).trailing_zeros() as usize)
}

#[cfg(test)]
mod tests {
    use albacore_os::SharedMemory;
    use proptest::prelude::*;

    use super::*;

    fn arena(bytes: usize) -> Arena {
        Arena::new(
            SharedMemory::create("test", bytes)
                .unwrap()
                .map_extent()
                .unwrap(),
        )
    }

    #[test]
    fn allocations_that_do_not_fit_fail_and_succeed_after_frees() {
        let mut arena = arena(1 << 20);
        assert!(arena.allocate(usize::MAX).is_none());
        assert!(arena.allocate((1 << 20) + 1).is_none());
        let small: Vec<Extent> = (0..1 << 10)
            .map(|_| arena.allocate(1000).unwrap())
            .collect();
        assert!(arena.allocate(1).is_none());
        assert_eq!(arena.used(), arena.bytes());
        for piece in small {
            arena.free(piece);
        }
        let all = arena.allocate(1 << 20).unwrap();
        assert_eq!((all.offset(), all.len()), (0, 1 << 20));
        arena.free(all);
        assert_eq!((arena.used(), arena.free.len()), (0, 1));
    }

    proptest! {
        #[test]
        fn allocations_are_aligned_and_disjoint_and_all_memory_is_reclaimed(
            steps in proptest::collection::vec((any::<bool>(), 0..200_000_usize), 0..200)
        ) {
            let mut arena = arena(1 << 20);
            let mut held: Vec<Extent> = Vec::new();
            for (take, number) in steps {
                if take {
                    if let Some(piece) = arena.allocate(number) {
                        prop_assert!(piece.len() >= number);
                        prop_assert_eq!(piece.offset() % ALIGNMENT, 0);
                        for other in &held {
                            let apart = piece.offset() + piece.len() <= other.offset()
                                || other.offset() + other.len() <= piece.offset();
                            prop_assert!(apart);
                        }
                        held.push(piece);
                    }
                } else if !held.is_empty() {
                    arena.free(held.swap_remove(number % held.len()));
                }
                prop_assert_eq!(arena.used(), held.iter().map(Extent::len).sum::<usize>());
            }
            held.into_iter().for_each(|piece| arena.free(piece));
            prop_assert_eq!(arena.allocate(1 << 20).map(|all| all.len()), Some(1 << 20));
        }
    }
}
