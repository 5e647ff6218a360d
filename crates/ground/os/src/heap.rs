//! The memory of mimalloc, which is the server's allocator.

/// Gives pages that the heap of this thread holds without use back to the kernel, so that memory
/// allocated from now on is touched first by the thread that allocates it. What another thread has
/// allocated and this one freed is given back when that thread calls this. In a program with
/// another allocator it has no effect.
pub fn release_free_memory() {
    // SAFETY: changes only memory that is free, of the heap of the calling thread or of arenas,
    // which mimalloc locks.
    unsafe { libmimalloc_sys::mi_collect(true) }
}
