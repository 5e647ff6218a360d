//! The memory of this process's allocator.

/// Gives pages that the allocator holds without use back to the kernel, so that the next thread
/// that needs memory touches new ones. Another allocator than glibc's gives them back by itself.
pub fn release_free_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: changes only memory that is free to the allocator, which locks it.
    unsafe {
        nix::libc::malloc_trim(0);
    }
}
