//! Settings of the memory allocator of this process.

/// Allocations of at least this many bytes use their own mapping: glibc's default, which glibc
/// otherwise raises to the size of the largest mapping freed.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES_MIN: nix::libc::c_int = 128 << 10;

/// Allocates large blocks with `mmap`, so that they return to the kernel when freed. In an arena,
/// such a block might end up at the top, which [`release_free_memory`] keeps. For processes that
/// rarely allocate large buffers. Affects glibc's allocator only.
pub fn map_large_allocations() {
    #[cfg(target_env = "gnu")]
    // SAFETY: changes a parameter of the allocator, which takes its own lock.
    unsafe {
        // Fails only for out-of-range values.
        nix::libc::mallopt(nix::libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN);
    }
}

/// Returns unused memory of the allocator to the kernel, so that the next thread that allocates
/// memory touches new pages: for glibc's allocator, and in static builds for mimalloc, limited to
/// the calling thread. mimalloc keeps 64 KiB blocks that are partially in use.
pub fn release_free_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: affects only free memory of the allocator, which takes its own lock.
    unsafe {
        nix::libc::malloc_trim(0);
    }
    #[cfg(target_env = "musl")]
    collect_mimalloc();
}

/// Returns mimalloc memory that the calling thread allocated and any thread has freed. No effect in
/// a program with another allocator.
pub fn collect_mimalloc() {
    // SAFETY: affects only free memory of the calling thread's heap, or of arenas, which mimalloc
    // locks.
    unsafe { libmimalloc_sys::mi_collect(true) }
}

#[cfg(test)]
#[cfg(target_env = "gnu")]
mod tests {
    use super::*;

    const BUFFER_BYTES: usize = 512 << 10;

    /// Resident bytes of the mapping with this address.
    fn resident_bytes(address: usize) -> u64 {
        let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut is_it = false;
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let first = words.next().unwrap_or_default();
            let range = first.split_once('-').and_then(|(start, end)| {
                let number = |text| usize::from_str_radix(text, 16).ok();
                Some(number(start)?..number(end)?)
            });
            match range {
                Some(range) => is_it = range.contains(&address),
                None if is_it && first == "Rss:" => {
                    return 1024 * words.next().unwrap().parse::<u64>().unwrap();
                }
                None => {}
            }
        }
        0
    }

    #[test]
    fn buffers_of_a_thread_are_given_back_however_large_those_before_them_were() {
        let peer = std::thread::spawn(|| {
            map_large_allocations();
            drop(std::hint::black_box(vec![1_u8; 8 << 20]));
            let buffers: Vec<Vec<u8>> = (0..4).map(|_| vec![1_u8; BUFFER_BYTES]).collect();
            let addresses: Vec<usize> = buffers.iter().map(|b| b.as_ptr() as usize).collect();
            let resident: Vec<u64> = addresses.iter().map(|&at| resident_bytes(at)).collect();
            assert!(resident.iter().all(|&bytes| bytes >= BUFFER_BYTES as u64));
            drop(std::hint::black_box(buffers));
            addresses
        });
        let addresses = peer.join().unwrap();
        release_free_memory();
        // Another test may map memory at one of the addresses.
        let resident: Vec<u64> = addresses.iter().map(|&at| resident_bytes(at)).collect();
        let is_returned = |bytes: &u64| *bytes < BUFFER_BYTES as u64;
        assert!(
            resident.iter().any(is_returned),
            "{resident:?} bytes are resident"
        );
    }
}
