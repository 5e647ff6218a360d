//! Shared memory: sealed memory files (memfd) and safe views of their mappings.
//!
//! There are three kinds of views. [`Words`] are atomics, which every process may access at any
//! time. An [`Extent`] is a range of bytes with one owner in this process; extents are created only
//! by splitting and joining owned extents, so no two overlap. [`ReadMapping`] is read-only.
//! Concurrent writes of another process to the bytes of an extent or a read mapping must be
//! excluded by the protocol between the two processes; a reader of bytes that a less trusted
//! process can write must treat their content as arbitrary. Files are sealed against shrinking, so
//! an access cannot fault (SIGBUS).

use std::fs::File;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, FcntlArg, SealFlag, fallocate, fcntl};
use nix::libc;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::sys::stat::fstat;
use nix::unistd::ftruncate;

use crate::OsError;
use crate::limits::{HUGE_PAGE_BYTES, PAGE_BYTES};

/// Number of bytes at the start of a [`Words`] mapping that are 32-bit words, as required by
/// futexes.
pub const FUTEX_BYTES: usize = 4096;

/// `MFD_NOEXEC_SEAL` of Linux 6.3: the file can never be made executable.
const MFD_NOEXEC_SEAL: u32 = 0x8;

/// A memory file (memfd) of fixed size.
#[derive(Debug)]
pub struct SharedMemory {
    fd: OwnedFd,
    bytes: usize,
}

impl SharedMemory {
    /// Creates a zero-filled file of `bytes` bytes, sealed against resizing. Pages are allocated
    /// when first touched.
    ///
    /// # Errors
    /// A system call fails, usually because of a limit on descriptors or memory.
    pub fn create(name: &str, bytes: usize) -> Result<Self, OsError> {
        let fd = create_file(name)?;
        let size = i64::try_from(bytes).map_err(|_| OsError::call("ftruncate", Errno::EFBIG))?;
        ftruncate(&fd, size).map_err(|e| OsError::call("ftruncate(memfd)", e))?;
        let memory = Self { fd, bytes };
        memory.seal(SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW)?;
        Ok(memory)
    }

    /// Creates an immutable (sealed) file with `contents`, in huge pages if the kernel supports
    /// them for shared memory. Its pages are allocated on the NUMA node of the calling thread.
    ///
    /// # Errors
    /// As [`SharedMemory::create`].
    pub fn create_sealed(name: &str, contents: &[u8]) -> Result<Self, OsError> {
        if contents.len() >= HUGE_PAGE_BYTES {
            let memory = Self::create(name, contents.len())?;
            let written = memory.write_mapped(contents);
            if written.and_then(|()| memory.seal_writes()).is_ok() {
                return Ok(memory);
            }
        }
        // Fallback: a file that was never mapped, so no other process can prevent sealing it.
        let memory = Self::create(name, contents.len())?;
        memory.write(contents)?;
        memory.seal_writes()?;
        Ok(memory)
    }

    /// Fills the file through a mapping, the only way to get huge pages if they must be requested
    /// with madvise.
    fn write_mapped(&self, contents: &[u8]) -> Result<(), OsError> {
        let mut extent = self.map_extent()?;
        // A forked child that has not called exec yet would hold a copy of this mapping, and the
        // kernel rejects F_SEAL_WRITE while a writable mapping exists.
        extent.mapping.advise(libc::MADV_DONTFORK)?;
        // Fails on a kernel without huge pages.
        let _ = extent.mapping.advise(libc::MADV_HUGEPAGE);
        // Returns an error if there is no memory; a plain access would kill the process (SIGBUS).
        // (Linux 5.14.)
        extent.mapping.advise(libc::MADV_POPULATE_WRITE)?;
        extent.as_mut_slice().copy_from_slice(contents);
        Ok(())
    }

    fn write(&self, contents: &[u8]) -> Result<(), OsError> {
        let fd = self.fd.try_clone();
        let fd = fd.map_err(|e| OsError::call("fcntl(F_DUPFD_CLOEXEC)", e))?;
        let written = File::from(fd).write_all_at(contents, 0);
        written.map_err(|e| OsError::call("write(memfd)", e))
    }

    /// Wraps a sealed file created by another process.
    ///
    /// # Errors
    /// The descriptor is not a memory file, or the file is not sealed against shrinking.
    pub fn open(fd: OwnedFd) -> Result<Self, OsError> {
        let seals = fcntl(&fd, FcntlArg::F_GET_SEALS)
            .map_err(|e| OsError::call("fcntl(F_GET_SEALS)", e))?;
        if seals & SealFlag::F_SEAL_SHRINK.bits() == 0 {
            return Err(OsError::call(
                "memory file without F_SEAL_SHRINK",
                Errno::EPERM,
            ));
        }
        let size = fstat(&fd)
            .map_err(|e| OsError::call("fstat(memfd)", e))?
            .st_size;
        let bytes = usize::try_from(size).map_err(|_| OsError::call("fstat", Errno::EFBIG))?;
        Ok(Self { fd, bytes })
    }

    /// Prevents new writable mappings; existing ones stay writable. (Linux 5.1.) A process that
    /// receives the file after this call can only read it.
    ///
    /// # Errors
    /// The seal cannot be added.
    pub fn seal_future_writes(&self) -> Result<(), OsError> {
        // F_SEAL_FUTURE_WRITE, which nix does not define yet.
        self.seal(SealFlag::from_bits_retain(0x10))
    }

    /// Size of the file.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Maps the file as atomics.
    ///
    /// # Errors
    /// The mapping fails, or the file is smaller than [`FUTEX_BYTES`].
    pub fn map_words(&self) -> Result<Words, OsError> {
        if self.bytes < FUTEX_BYTES {
            return Err(OsError::call("mmap of a small memory file", Errno::EINVAL));
        }
        Ok(Words {
            mapping: self.map(ProtFlags::PROT_READ | ProtFlags::PROT_WRITE)?,
        })
    }

    /// Maps the file as one extent.
    ///
    /// # Errors
    /// The mapping fails, or writes are sealed.
    pub fn map_extent(&self) -> Result<Extent, OsError> {
        let mapping = self.map(ProtFlags::PROT_READ | ProtFlags::PROT_WRITE)?;
        Ok(Extent {
            mapping: Arc::new(mapping),
            offset: 0,
            bytes: self.bytes,
        })
    }

    /// Maps the file read-only.
    ///
    /// # Errors
    /// The mapping fails.
    pub fn map_read(&self) -> Result<ReadMapping, OsError> {
        Ok(ReadMapping {
            mapping: self.map(ProtFlags::PROT_READ)?,
        })
    }

    /// Returns the pages of a range to the kernel (punches a hole); they read as zeros afterwards.
    /// Requires that the caller owns the extent and that writes are not sealed.
    ///
    /// # Errors
    /// The `fallocate` call fails.
    pub fn release(&self, extent: &mut Extent) -> Result<(), OsError> {
        let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        // infallible: both are at most the size of the file, which is an i64.
        let (offset, bytes) = (extent.offset as i64, extent.bytes as i64);
        fallocate(&self.fd, flags, offset, bytes)
            .map_err(|e| OsError::call("fallocate(PUNCH_HOLE)", e))
    }

    fn seal_writes(&self) -> Result<(), OsError> {
        self.seal(SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_SEAL)
    }

    fn seal(&self, seals: SealFlag) -> Result<(), OsError> {
        fcntl(&self.fd, FcntlArg::F_ADD_SEALS(seals))
            .map(drop)
            .map_err(|e| OsError::call("fcntl(F_ADD_SEALS)", e))
    }

    fn map(&self, protection: ProtFlags) -> Result<MemoryMap, OsError> {
        let Some(bytes) = NonZeroUsize::new(self.bytes) else {
            return Err(OsError::call("mmap of an empty memory file", Errno::EINVAL));
        };
        // SAFETY: a new mapping at an address chosen by the kernel replaces no existing one.
        let start = unsafe { mmap(None, bytes, protection, MapFlags::MAP_SHARED, &self.fd, 0) }
            .map_err(|e| OsError::call("mmap(memfd)", e))?;
        Ok(MemoryMap {
            start: start.cast(),
            bytes: self.bytes,
        })
    }
}

impl AsFd for SharedMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn create_file(name: &str) -> Result<OwnedFd, OsError> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    match memfd_create(name, flags | MFdFlags::from_bits_retain(MFD_NOEXEC_SEAL)) {
        // Kernels before 6.3 reject the flag and do not need it.
        Err(Errno::EINVAL) => memfd_create(name, flags),
        result => result,
    }
    .map_err(|e| OsError::call("memfd_create", e))
}

/// Mapping of a whole memory file, unmapped on drop.
#[derive(Debug)]
struct MemoryMap {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is memory that is valid in every thread until it is dropped; concurrent
// access is controlled by the view that owns it.
unsafe impl Send for MemoryMap {}
// SAFETY: as above.
unsafe impl Sync for MemoryMap {}

impl MemoryMap {
    /// Calls `madvise` with a `MADV_` constant that preserves the contents.
    fn advise(&self, advice: libc::c_int) -> Result<(), OsError> {
        // SAFETY: the range belongs to this mapping, and the callers' advice neither frees pages
        // nor changes bytes.
        match unsafe { libc::madvise(self.start.as_ptr().cast(), self.bytes, advice) } {
            0 => Ok(()),
            _ => Err(OsError::call("madvise", Errno::last())),
        }
    }
}

impl Drop for MemoryMap {
    fn drop(&mut self) {
        // SAFETY: start and bytes describe a mapping that only we own; every view that borrows from
        // it borrows from its owner, which has been dropped. A failure is ignored: it would leave
        // unused memory mapped.
        let _ = unsafe { munmap(self.start.cast(), self.bytes) };
    }
}

/// Shared atomics: 32-bit words in the first [`FUTEX_BYTES`], followed by 64-bit words.
#[derive(Debug)]
pub struct Words {
    mapping: MemoryMap,
}

impl Words {
    /// The 32-bit words, usable as futexes.
    #[must_use]
    pub fn futexes(&self) -> &[AtomicU32] {
        // SAFETY: the mapping is at least FUTEX_BYTES long, page-aligned, lives as long as self,
        // and this part of it is only accessed as 32-bit atomics.
        unsafe {
            std::slice::from_raw_parts(
                self.mapping.start.cast().as_ptr(),
                FUTEX_BYTES / size_of::<AtomicU32>(),
            )
        }
    }

    /// The 64-bit words.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        let count = (self.mapping.bytes - FUTEX_BYTES) / size_of::<AtomicU64>();
        // SAFETY: the part after the futexes is inside the mapping, 8-byte-aligned, lives as long
        // as self, and is only accessed as 64-bit atomics.
        unsafe {
            let start = self.mapping.start.add(FUTEX_BYTES);
            std::slice::from_raw_parts(start.cast().as_ptr(), count)
        }
    }
}

/// A range of bytes of a writable mapping, with one owner.
#[derive(Debug)]
pub struct Extent {
    mapping: Arc<MemoryMap>,
    offset: usize,
    bytes: usize,
}

impl Extent {
    /// Offset of the range in its file.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Length of the range in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// True if the range is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: offset + bytes is within the mapping, which the Arc keeps alive; no other extent
        // overlaps this one, so within this process only a `&mut self` could write.
        unsafe {
            std::slice::from_raw_parts(self.mapping.start.add(self.offset).as_ptr(), self.bytes)
        }
    }

    /// The bytes, mutable.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`; `&mut self` makes this the only view of the range.
        unsafe {
            std::slice::from_raw_parts_mut(self.mapping.start.add(self.offset).as_ptr(), self.bytes)
        }
    }

    /// Splits the range into the first `at` bytes (at most all) and the rest.
    #[must_use]
    pub fn split_at(mut self, at: usize) -> (Self, Self) {
        let at = at.min(self.bytes);
        let rest = Self {
            mapping: Arc::clone(&self.mapping),
            offset: self.offset + at,
            bytes: self.bytes - at,
        };
        self.bytes = at;
        (self, rest)
    }

    /// Joins this range with the adjacent one that follows it.
    ///
    /// # Errors
    /// Returns both if they are not adjacent or belong to different mappings.
    pub fn join(mut self, next: Self) -> Result<Self, (Self, Self)> {
        let is_next = self.offset + self.bytes == next.offset;
        if !is_next || !Arc::ptr_eq(&self.mapping, &next.mapping) {
            return Err((self, next));
        }
        self.bytes += next.bytes;
        Ok(self)
    }
}

/// Read-only mapping of a whole file.
#[derive(Debug)]
pub struct ReadMapping {
    mapping: MemoryMap,
}

impl ReadMapping {
    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the range is the whole mapping, which lives as long as self and which this view
        // cannot write.
        unsafe { std::slice::from_raw_parts(self.mapping.start.as_ptr(), self.mapping.bytes) }
    }

    /// Start address of the mapping.
    pub(crate) fn address(&self) -> usize {
        self.mapping.start.as_ptr() as usize
    }

    /// Faults in every page.
    pub(crate) fn touch(&self) {
        let pages = self.as_slice().iter().step_by(PAGE_BYTES);
        std::hint::black_box(pages.fold(0_u8, |sum, byte| sum ^ byte));
    }
}

#[cfg(test)]
mod tests;
