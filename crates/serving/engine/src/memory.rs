//! The shared memory of requests: rows, which only the front can write, and results.

use albacore_os::{Extent, OsError, SharedMemory};

use super::arena::Arena;
use crate::limits::{RELEASE_BYTES_MIN, RESULTS_ARENA_BYTES, ROWS_ARENA_BYTES};

#[derive(Debug)]
pub(super) struct Memory {
    rows: Arena,
    results: Arena,
    results_file: SharedMemory,
}

/// The files behind the arenas, which the workers inherit.
#[derive(Debug)]
pub(super) struct ArenaFiles {
    pub(super) rows: SharedMemory,
    pub(super) results: SharedMemory,
}

impl Memory {
    pub(super) fn create() -> Result<(Self, ArenaFiles), OsError> {
        let rows = SharedMemory::create("albacore-rows", ROWS_ARENA_BYTES)?;
        let rows_arena = Arena::new(rows.map_extent()?);
        // The front's mapping stays writable; workers map the file read-only.
        rows.seal_future_writes()?;
        let results = SharedMemory::create("albacore-results", RESULTS_ARENA_BYTES)?;
        let results_arena = Arena::new(results.map_extent()?);
        let results_file = SharedMemory::open(clone_fd(&results)?)?;
        let memory = Self {
            rows: rows_arena,
            results: results_arena,
            results_file,
        };
        Ok((memory, ArenaFiles { rows, results }))
    }

    /// Memory for rows and results of a request, both or none.
    pub(super) fn allocate(&mut self, rows: usize, results: usize) -> Option<(Extent, Extent)> {
        let rows = self.rows.allocate(rows)?;
        match self.results.allocate(results) {
            Some(results) => Some((rows, results)),
            None => {
                self.rows.free(rows);
                None
            }
        }
    }

    pub(super) fn free_rows(&mut self, extent: Extent) {
        self.rows.free(extent);
    }

    pub(super) fn free_results(&mut self, mut extent: Extent) {
        if extent.len() >= RELEASE_BYTES_MIN {
            // If the kernel refuses, the pages stay allocated and are used again.
            let _ = self.results_file.release(&mut extent);
        }
        self.results.free(extent);
    }

    pub(super) fn used(&self) -> usize {
        self.rows.used() + self.results.used()
    }

    pub(super) fn bytes(&self) -> usize {
        self.rows.bytes() + self.results.bytes()
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
