//! An address to listen on.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::TcpListener;

/// An address cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("{argument} {address} cannot be listened on: choose another address or port")]
pub struct ListenError {
    /// The argument that gave the address, with its dashes.
    pub argument: &'static str,
    /// The address.
    pub address: SocketAddr,
    /// Why.
    pub source: io::Error,
}

/// Listens on `address`, which `argument` gave. `[::]` is every address, of IPv4 too; where the kernel has no IPv6, all
/// of IPv4.
///
/// # Errors
/// The address is in use or not of this machine.
pub async fn listen(
    argument: &'static str,
    address: SocketAddr,
) -> Result<TcpListener, ListenError> {
    let is_everywhere = address.ip() == Ipv6Addr::UNSPECIFIED;
    let bound = match TcpListener::bind(address).await {
        Err(error) if is_everywhere && has_no_ipv6(&error) => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        bound => bound,
    };
    bound.map_err(|source| ListenError {
        argument,
        address,
        source,
    })
}

/// Whether there are no sockets (`ipv6.disable=1`) or no addresses (`disable_ipv6`) of IPv6.
fn has_no_ipv6(error: &io::Error) -> bool {
    // EAFNOSUPPORT, EADDRNOTAVAIL: std has no kind for the first.
    matches!(error.raw_os_error(), Some(97 | 99))
}
