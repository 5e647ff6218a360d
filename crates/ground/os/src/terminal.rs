//! Size of the terminal.

use std::os::fd::AsRawFd;

use nix::libc;

nix::ioctl_read_bad!(window_size, libc::TIOCGWINSZ, libc::winsize);

/// Number of lines of the terminal on standard output; `None` if it is not a terminal or its size
/// is unknown.
pub fn terminal_lines() -> Option<usize> {
    let mut size = libc::winsize {
        ws_row: 0,
        ws_col: 0,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: TIOCGWINSZ writes one `winsize`, which `size` is; it fails on a descriptor that is
    // not a terminal.
    unsafe { window_size(std::io::stdout().as_raw_fd(), &raw mut size) }.ok()?;
    (size.ws_row > 0).then_some(usize::from(size.ws_row))
}
