//! The size of the terminal.

use std::os::fd::AsRawFd;

use nix::libc;

nix::ioctl_read_bad!(window_size, libc::TIOCGWINSZ, libc::winsize);

/// Lines of the terminal that standard output is; `None` if it is none or does not say.
pub fn terminal_lines() -> Option<usize> {
    let mut size = libc::winsize {
        ws_row: 0,
        ws_col: 0,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: TIOCGWINSZ writes one `winsize`, which `size` is; any descriptor is allowed, those
    // that are no terminal give an error.
    unsafe { window_size(std::io::stdout().as_raw_fd(), &raw mut size) }.ok()?;
    (size.ws_row > 0).then_some(usize::from(size.ws_row))
}
