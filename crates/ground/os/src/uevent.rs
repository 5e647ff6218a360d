//! Kernel uevents of cpus that go online or offline (`offline@/devices/system/cpu/cpu7`).

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket,
};

use crate::OsError;
use crate::limits::{UEVENT_BYTES_MAX, UEVENTS_AT_ONCE_MAX};

/// Multicast group of events sent by the kernel itself.
const KERNEL_GROUP: u32 = 1;

/// Netlink socket that receives kernel uevents.
#[derive(Debug)]
pub struct UeventSocket {
    fd: OwnedFd,
}

impl UeventSocket {
    /// Opens the socket. Needs no privilege, but some sandboxes forbid netlink; then the `online`
    /// file must be polled.
    ///
    /// # Errors
    /// The kernel or a sandbox forbids it.
    pub fn open() -> Result<Self, OsError> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let protocol = SockProtocol::NetlinkKObjectUEvent;
        let fd = socket(AddressFamily::Netlink, SockType::Datagram, flags, protocol)
            .map_err(|e| OsError::call("socket(NETLINK_KOBJECT_UEVENT)", e))?;
        bind(fd.as_raw_fd(), &NetlinkAddr::new(0, KERNEL_GROUP))
            .map_err(|e| OsError::call("bind(NETLINK_KOBJECT_UEVENT)", e))?;
        Ok(Self { fd })
    }

    /// True if a cpu went online or offline since the last call, or if events were lost.
    ///
    /// # Errors
    /// The socket cannot be read.
    pub fn drain(&self) -> Result<bool, OsError> {
        let mut has_changed = false;
        let mut buffer = [0u8; UEVENT_BYTES_MAX];
        // bound: UEVENTS_AT_ONCE_MAX datagrams
        for _ in 0..UEVENTS_AT_ONCE_MAX {
            match recv(self.fd.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
                Ok(length) => has_changed |= is_about_a_cpu(&buffer[..length]),
                Err(Errno::EAGAIN) => return Ok(has_changed),
                Err(Errno::EINTR) => {}
                Err(Errno::ENOBUFS) => has_changed = true,
                Err(e) => return Err(OsError::call("recv(NETLINK_KOBJECT_UEVENT)", e)),
            }
        }
        Ok(has_changed)
    }
}

impl AsFd for UeventSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn is_about_a_cpu(datagram: &[u8]) -> bool {
    let header = datagram.split(|&b| b == 0).next().unwrap_or_default();
    let Some(path) = header.splitn(2, |&b| b == b'@').nth(1) else {
        return false;
    };
    let Some(name) = path.strip_prefix(b"/devices/system/cpu/cpu") else {
        return false;
    };
    !name.is_empty() && name.iter().all(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_cpus_that_go_online_or_offline_count() {
        assert!(is_about_a_cpu(
            b"offline@/devices/system/cpu/cpu7\0ACTION=offline\0"
        ));
        assert!(is_about_a_cpu(b"online@/devices/system/cpu/cpu12\0"));
        for other in [
            &b"add@/devices/virtual/net/veth0\0"[..],
            b"change@/devices/system/cpu/cpu7/cache\0",
            b"offline@/devices/system/cpu/cpufreq\0",
            b"offline@/devices/system/cpu/cpu\0",
            b"",
            b"@",
        ] {
            assert!(!is_about_a_cpu(other), "{}", String::from_utf8_lossy(other));
        }
    }

    #[test]
    fn a_socket_without_events_reports_no_change() {
        assert!(!UeventSocket::open().unwrap().drain().unwrap());
    }
}
