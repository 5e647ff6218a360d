//! The shared memory of requests: rows, which only the front may write, and results.

use albacore_batching::Nanos;
use albacore_os::{Extent, OsError, SharedMemory};

use super::arena::Arena;
use super::block_cache::BlockCache;
use super::timed_lock::{TimedGuard, TimedLock};
use crate::LoopIndex;
use crate::limits::{RELEASE_BYTES_MIN, RESULTS_ARENA_BYTES, ROWS_ARENA_BYTES};

/// Allocates memory for requests of all event loops.
///
/// Lock order: the cache of one loop, then the arenas.
#[derive(Debug)]
pub(super) struct Memory {
    arenas: TimedLock<Arenas>,
    /// By event loop.
    caches: Box<[LoopCache]>,
    results_file: SharedMemory,
}

#[derive(Debug)]
struct Arenas {
    rows: Arena,
    results: Arena,
}

/// Aligned, so that the locks of two loops share no cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
struct LoopCache(TimedLock<Caches>);

#[derive(Debug, Default)]
struct Caches {
    rows: BlockCache,
    results: BlockCache,
}

/// The files of the arenas, which the workers inherit.
#[derive(Debug)]
pub(super) struct ArenaFiles {
    pub(super) rows: SharedMemory,
    pub(super) results: SharedMemory,
}

/// Bytes of shared memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemoryUse {
    /// Bytes used by requests.
    pub(super) used: usize,
    pub(super) bytes: usize,
}

impl Memory {
    pub(super) fn create(loops: usize) -> Result<(Self, ArenaFiles), OsError> {
        let rows = SharedMemory::create("albacore-rows", ROWS_ARENA_BYTES)?;
        let rows_arena = Arena::new(rows.map_extent()?);
        // The front's mapping stays writable; workers map the file read-only.
        rows.seal_future_writes()?;
        let results = SharedMemory::create("albacore-results", RESULTS_ARENA_BYTES)?;
        let results_arena = Arena::new(results.map_extent()?);
        let results_file = SharedMemory::open(clone_fd(&results)?)?;
        let memory = Self {
            arenas: TimedLock::new(Arenas {
                rows: rows_arena,
                results: results_arena,
            }),
            caches: (0..loops).map(|_| LoopCache::default()).collect(),
            results_file,
        };
        Ok((memory, ArenaFiles { rows, results }))
    }

    fn caches(&self, event_loop: LoopIndex) -> TimedGuard<'_, Caches> {
        self.caches[event_loop.0].0.lock()
    }

    /// Allocates memory for rows and results of a request, both or none.
    pub(super) fn allocate(
        &self,
        event_loop: LoopIndex,
        rows: usize,
        results: usize,
    ) -> Option<(Extent, Extent)> {
        self.try_allocate(event_loop, rows, results).or_else(|| {
            self.drain_caches();
            self.try_allocate(event_loop, rows, results)
        })
    }

    fn try_allocate(
        &self,
        event_loop: LoopIndex,
        rows: usize,
        results: usize,
    ) -> Option<(Extent, Extent)> {
        let mut caches = self.caches(event_loop);
        let Caches {
            rows: rows_cache,
            results: results_cache,
        } = &mut *caches;
        let (cached_rows, cached_results) = (rows_cache.take(rows), results_cache.take(results));
        if let (Some(_), Some(_)) = (&cached_rows, &cached_results) {
            return cached_rows.zip(cached_results);
        }
        let mut arenas = self.arenas.lock();
        let rows = cached_rows.or_else(|| rows_cache.refill(rows, &mut arenas.rows));
        let results = cached_results.or_else(|| results_cache.refill(results, &mut arenas.results));
        match (rows, results) {
            (Some(rows), Some(results)) => Some((rows, results)),
            (rows, results) => {
                rows.into_iter().for_each(|block| arenas.rows.free(block));
                let results = results.into_iter();
                results.for_each(|block| arenas.results.free(block));
                None
            }
        }
    }

    /// Returns the cached blocks of all loops to the arenas, where they can be merged for other
    /// sizes.
    fn drain_caches(&self) {
        for cache in &self.caches {
            let mut caches = cache.0.lock();
            let mut arenas = self.arenas.lock();
            caches
                .rows
                .drain()
                .for_each(|block| arenas.rows.free(block));
            let results = caches.results.drain();
            results.for_each(|block| arenas.results.free(block));
        }
    }

    pub(super) fn free(
        &self,
        event_loop: LoopIndex,
        rows: impl IntoIterator<Item = Extent>,
        results: impl IntoIterator<Item = Extent>,
    ) {
        let mut caches = self.caches(event_loop);
        for block in rows {
            if let Err(surplus) = caches.rows.put(block) {
                let mut arenas = self.arenas.lock();
                surplus
                    .into_iter()
                    .for_each(|block| arenas.rows.free(block));
            }
        }
        for mut block in results {
            if block.len() >= RELEASE_BYTES_MIN {
                // If this fails, the pages stay allocated and are reused.
                let _ = self.results_file.release(&mut block);
            }
            if let Err(surplus) = caches.results.put(block) {
                let mut arenas = self.arenas.lock();
                let surplus = surplus.into_iter();
                surplus.for_each(|block| arenas.results.free(block));
            }
        }
    }

    /// Total time for which the locks of caches were held, which includes the locks of the arenas.
    pub(super) fn held(&self) -> Nanos {
        let caches = self.caches.iter().map(|cache| cache.0.held());
        caches.fold(Nanos(0), Nanos::saturating_add)
    }

    pub(super) fn usage(&self) -> MemoryUse {
        let cached = |cache: &LoopCache| {
            let caches = cache.0.lock();
            caches.rows.bytes() + caches.results.bytes()
        };
        let cached: usize = self.caches.iter().map(cached).sum();
        let arenas = self.arenas.lock();
        MemoryUse {
            // The caches may have changed since they were read.
            used: (arenas.rows.used() + arenas.results.used()).saturating_sub(cached),
            bytes: arenas.rows.bytes() + arenas.results.bytes(),
        }
    }
}

fn clone_fd(memory: &SharedMemory) -> Result<std::os::fd::OwnedFd, OsError> {
    use std::os::fd::AsFd as _;
    let fd = memory.as_fd().try_clone_to_owned();
    fd.map_err(|source| OsError::Call {
        call: "fcntl(F_DUPFD_CLOEXEC)",
        source,
    })
}
