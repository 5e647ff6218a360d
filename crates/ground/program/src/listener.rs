//! Binds the TCP listeners of a program.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::{TcpListener, TcpSocket};

use crate::limits::WAITING_CONNECTIONS_MAX;

/// Failure to bind or listen on an address.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {argument} {address}: choose another address or port")]
pub struct ListenError {
    /// The command-line argument that sets the address, with its dashes.
    pub argument: &'static str,
    pub address: SocketAddr,
    pub source: io::Error,
}

/// Listens on `address`, the value of `argument`. `[::]` listens on all addresses, IPv4 and IPv6;
/// if the kernel has no IPv6, on all IPv4 addresses.
///
/// # Errors
/// The address is in use or does not belong to this machine.
pub async fn listen(
    argument: &'static str,
    address: SocketAddr,
) -> Result<TcpListener, ListenError> {
    let failed = |source| ListenError {
        argument,
        address,
        source,
    };
    let [listener] = <[_; 1]>::try_from(listen_on_each(argument, address, 1)?)
        .map_err(|_| failed(io::Error::other("expected exactly one socket")))?;
    TcpListener::from_std(listener).map_err(failed)
}

/// As [`listen`], with `sockets` sockets that share the port (`SO_REUSEPORT`): the kernel
/// distributes connections by a hash of their addresses. Each socket has its own accept queue.
///
/// # Errors
/// As [`listen`].
pub fn listen_on_each(
    argument: &'static str,
    address: SocketAddr,
    sockets: usize,
) -> Result<Vec<std::net::TcpListener>, ListenError> {
    let is_everywhere = address.ip() == Ipv6Addr::UNSPECIFIED;
    let bound = match bind(address, sockets) {
        Err(error) if is_everywhere && has_no_ipv6(&error) => {
            bind((Ipv4Addr::UNSPECIFIED, address.port()).into(), sockets)
        }
        bound => bound,
    };
    bound.map_err(|source| ListenError {
        argument,
        address,
        source,
    })
}

fn bind(address: SocketAddr, sockets: usize) -> io::Result<Vec<std::net::TcpListener>> {
    // With SO_REUSEPORT, bind would also succeed if another server shares the port. A first socket
    // without it detects whether the port is free.
    let first = open(address, false)?;
    if sockets == 1 {
        return Ok(vec![into_listener(first)?]);
    }
    drop(first);
    let first = into_listener(open(address, true)?)?;
    let address = first.local_addr()?;
    let rest = (1..sockets).map(|_| into_listener(open(address, true)?));
    std::iter::once(Ok(first)).chain(rest).collect()
}

/// Returns a bound socket; `is_shared` sets SO_REUSEPORT.
fn open(address: SocketAddr, is_shared: bool) -> io::Result<TcpSocket> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // SO_REUSEADDR: a restarted server must not wait for its predecessor's connections in
    // TIME_WAIT.
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(is_shared)?;
    socket.bind(address)?;
    Ok(socket)
}

/// Listens with a longer backlog than the 128 of the standard library.
fn into_listener(socket: TcpSocket) -> io::Result<std::net::TcpListener> {
    socket.listen(WAITING_CONNECTIONS_MAX)?.into_std()
}

/// True if the kernel has no IPv6 (`ipv6.disable=1`) or no IPv6 addresses (`disable_ipv6`).
fn has_no_ipv6(error: &io::Error) -> bool {
    // EAFNOSUPPORT, EADDRNOTAVAIL: std has no `ErrorKind` for the first.
    matches!(error.raw_os_error(), Some(97 | 99))
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::time::Duration;

    use super::*;

    /// Less than the second after which a client retransmits its SYN.
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
