//! Binds the TCP listeners of a program.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::{TcpListener, TcpSocket};

use crate::limits::WAITING_CONNECTIONS_MAX;

/// An address cannot be bound.
#[derive(Debug, thiserror::Error)]
#[error("{argument} {address} cannot be listened on: choose another address or port")]
pub struct ListenError {
    /// The command-line argument with the address, with its dashes.
    pub argument: &'static str,
    pub address: SocketAddr,
    pub source: io::Error,
}

/// Listens on `address`, the value of `argument`. `[::]` is every address, of IPv4 too; without
/// IPv6 in the kernel, every address of IPv4.
///
/// # Errors
/// The address is in use or does not belong to this machine.
pub async fn listen(
    argument: &'static str,
    address: SocketAddr,
) -> Result<TcpListener, ListenError> {
    let is_everywhere = address.ip() == Ipv6Addr::UNSPECIFIED;
    let bound = match bind(address) {
        Err(error) if is_everywhere && has_no_ipv6(&error) => {
            bind((Ipv4Addr::UNSPECIFIED, address.port()).into())
        }
        bound => bound,
    };
    bound.map_err(|source| ListenError {
        argument,
        address,
        source,
    })
}

/// As [`TcpListener::bind`], but with a longer backlog than 128.
fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // So that a restarted server need not wait for connections of its predecessor.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(WAITING_CONNECTIONS_MAX)
}

/// Whether IPv6 is missing (`ipv6.disable=1`) or has no addresses (`disable_ipv6`).
fn has_no_ipv6(error: &io::Error) -> bool {
    // EAFNOSUPPORT, EADDRNOTAVAIL: std has no kind for the first.
    matches!(error.raw_os_error(), Some(97 | 99))
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::time::Duration;

    use super::*;

    /// Less than the second after which a client retries.
    const AT_ONCE: Duration = Duration::from_millis(900);

    #[tokio::test]
    async fn a_thousand_connections_may_wait() {
        let kernels = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
        let kernels: usize = kernels.trim().parse().unwrap();
        let listener = listen("--http", "127.0.0.1:0".parse().unwrap())
            .await
            .unwrap();
        let address = listener.local_addr().unwrap();
        let waiting: Result<Vec<_>, _> = (0..kernels.min(1_000))
            .map(|_| TcpStream::connect_timeout(&address, AT_ONCE))
            .collect();
        assert!(waiting.is_ok(), "{waiting:?}");
    }
}
