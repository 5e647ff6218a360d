//! An address to listen on.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::{TcpListener, TcpSocket};

use crate::limits::WAITING_CONNECTIONS_MAX;

/// An address cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("{argument} {address} cannot be listened on: choose another address or port")]
pub struct ListenError {
    /// The argument that gave the address, with its dashes.
    pub argument: &'static str,
    pub address: SocketAddr,
    pub source: io::Error,
}

/// Listens on `address`, which `argument` gave. `[::]` is every address, of IPv4 too; where the
/// kernel has no IPv6, all of IPv4.
///
/// # Errors
/// The address is in use or not of this machine.
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

/// As [`TcpListener::bind`], but for how many connections may wait: there it is 128.
fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // So that a server that starts anew need not wait for the connections of the one before.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(WAITING_CONNECTIONS_MAX)
}

/// Whether there are no sockets (`ipv6.disable=1`) or no addresses (`disable_ipv6`) of IPv6.
fn has_no_ipv6(error: &io::Error) -> bool {
    // EAFNOSUPPORT, EADDRNOTAVAIL: std has no kind for the first.
    matches!(error.raw_os_error(), Some(97 | 99))
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::time::Duration;

    use super::*;

    /// Less than what a client waits that has to ask again.
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
