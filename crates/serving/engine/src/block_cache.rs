//! Per-loop cache of free blocks of shared memory, so that requests of an event loop allocate and
//! free memory without the lock that all event loops share.
//!
//! A list holds blocks of one size. An empty list takes several blocks at once from the arena, a
//! list that is too long returns as many. Both are bounded in bytes: the caches hold a small part
//! of the memory.

use albacore_os::Extent;

use crate::arena::{Arena, LISTED_BYTES_MAX, LISTS, list_of, rounded};

/// Size of the blocks that one step takes from the arena or returns to it ...
const STEP_BYTES: usize = LISTED_BYTES_MAX;

/// ... and their maximum number.
const STEP_BLOCKS_MAX: usize = 32;

/// Lists of free blocks by size.
#[derive(Debug)]
pub(crate) struct BlockCache {
    lists: [Vec<Extent>; LISTS],
    bytes: usize,
}

impl Default for BlockCache {
    fn default() -> Self {
        Self {
            lists: [const { Vec::new() }; LISTS],
            bytes: 0,
        }
    }
}

/// Number of blocks of this size that one step moves.
fn step_blocks(list: usize) -> usize {
    (STEP_BYTES >> (list + crate::limits::ALIGNMENT.trailing_zeros() as usize))
        .clamp(1, STEP_BLOCKS_MAX)
}

impl BlockCache {
    /// Bytes of free blocks.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Removes a block of at least `bytes` bytes; `None` if the list of that size is empty or the
    /// size has no list.
    pub(crate) fn take(&mut self, bytes: usize) -> Option<Extent> {
        let block = self.lists[list_of(rounded(bytes)?)?].pop()?;
        self.bytes -= block.len();
        Some(block)
    }

    /// Takes blocks for `bytes` bytes from the arena and returns one of them.
    pub(crate) fn refill(&mut self, bytes: usize, arena: &mut Arena) -> Option<Extent> {
        let block = arena.allocate(bytes)?;
        let Some(list) = list_of(block.len()) else {
            return Some(block);
        };
        for _ in 1..step_blocks(list) {
            let Some(more) = arena.allocate(bytes) else {
                break;
            };
            self.bytes += more.len();
            self.lists[list].push(more);
        }
        Some(block)
    }

    /// Stores a free block.
    ///
    /// # Errors
    /// The block and others of its size, which must be returned to the arena: the list is full, or
    /// the size has no list.
    pub(crate) fn put(&mut self, block: Extent) -> Result<(), Vec<Extent>> {
        let Some(list) = list_of(block.len()) else {
            return Err(vec![block]);
        };
        self.bytes += block.len();
        let (blocks, step) = (&mut self.lists[list], step_blocks(list));
        blocks.push(block);
        if blocks.len() <= 2 * step {
            return Ok(());
        }
        let surplus = blocks.split_off(blocks.len() - step);
        self.bytes -= surplus.iter().map(Extent::len).sum::<usize>();
        Err(surplus)
    }

    /// Removes every block.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Extent> {
        self.bytes = 0;
        self.lists.iter_mut().flat_map(|list| list.drain(..))
    }
}

#[cfg(test)]
mod tests {
    use albacore_os::SharedMemory;
    use proptest::prelude::*;

    use super::*;

    const BYTES: usize = 4 << 20;

    fn arena() -> Arena {
        let memory = SharedMemory::create("test", BYTES).unwrap();
        Arena::new(memory.map_extent().unwrap())
    }

    proptest! {
        #[test]
        fn no_block_is_lost_and_the_cache_of_a_loop_is_bounded(
            steps in prop::collection::vec((any::<bool>(), 1_usize..200_000), 1..200)
        ) {
            let (mut arena, mut cache) = (arena(), BlockCache::default());
            let mut taken = Vec::new();
            for (is_take, bytes) in steps {
                if is_take {
                    let block = cache.take(bytes).or_else(|| cache.refill(bytes, &mut arena));
                    if let Some(block) = &block {
                        prop_assert!(block.len() >= bytes);
                    }
                    taken.extend(block);
                } else if let Some(block) = taken.pop()
                    && let Err(surplus) = cache.put(block)
                {
                    surplus.into_iter().for_each(|block| arena.free(block));
                }
                let held: usize = taken.iter().map(Extent::len).sum();
                prop_assert_eq!(arena.used(), held + cache.bytes());
                prop_assert!(cache.bytes() <= 2 * STEP_BYTES * LISTS);
            }
            taken.into_iter().for_each(|block| arena.free(block));
            cache.drain().for_each(|block| arena.free(block));
            prop_assert_eq!(arena.used(), 0);
        }
    }
}
