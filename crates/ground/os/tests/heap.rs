//! Memory that a thread has freed, in a program whose allocator is mimalloc.
#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

use albacore_os::collect_mimalloc;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Anonymous resident bytes of this process.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"))
        .unwrap();
    let kib = line.trim().strip_suffix(" kB").unwrap();
    1024 * kib.parse::<u64>().unwrap()
}

#[test]
fn a_thread_gives_back_what_it_freed_at_once_however_large_the_buffers_were() {
    const BYTES: u64 = 8 << 20;
    for buffer_bytes in [4_usize << 10, 64 << 10, 512 << 10, 8 << 20] {
        let thread = std::thread::spawn(move || {
            let count = BYTES as usize / buffer_bytes;
            let buffers: Vec<Vec<u8>> = (0..count).map(|_| vec![1_u8; buffer_bytes]).collect();
            let before = resident_bytes();
            drop(std::hint::black_box(buffers));
            collect_mimalloc();
            before.saturating_sub(resident_bytes())
        });
        let returned = thread.join().unwrap();
        assert!(
            returned >= BYTES - BYTES / 8,
            "{returned} of {BYTES} bytes of buffers of {buffer_bytes} were returned"
        );
    }
}
