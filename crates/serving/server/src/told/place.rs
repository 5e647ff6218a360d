//! Where `--params` is.

use std::fmt;
use std::str::FromStr;

use tonic::transport::Endpoint;

/// `http://HOST:PORT` or `unix:/PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place(String);

impl Place {
    /// A way there; nothing is connected.
    pub(super) fn endpoint(&self) -> Result<Endpoint, tonic::transport::Error> {
        Endpoint::from_shared(self.0.clone())
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_plain = |c: char| !c.is_whitespace() && !c.is_control();
        let is_place = match (text.strip_prefix("http://"), text.strip_prefix("unix:")) {
            (Some(rest), _) => {
                let rest = rest.strip_suffix('/').unwrap_or(rest);
                let port = rest.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
                matches!(port, Some(Ok(1..)))
                    && !rest.starts_with(':')
                    && !rest.contains(['/', '@', '?'])
            }
            (None, Some(path)) => path.starts_with('/'),
            (None, None) => false,
        };
        let place = Self(text.to_owned());
        if is_place && text.chars().all(is_plain) && place.endpoint().is_ok() {
            return Ok(place);
        }
        Err("http://HOST:PORT or unix:/PATH is needed".to_owned())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_be_connected_to_is_a_place() {
        for right in [
            "http://10.0.0.7:8082",
            "http://albacore-params.albacore-agents:8082/",
            "http://[fd00::7]:8082",
            "unix:/run/albacore/params.sock",
        ] {
            assert!(right.parse::<Place>().is_ok(), "{right}");
        }
        for wrong in [
            "",
            "10.0.0.7:8082",
            "http://",
            "http://a",
            "http://:80",
            "http://a:0",
            "http://a:99999",
            "http://a:80/path",
            "http://u@a:80",
            "https://a:80",
            "http://a b:80",
            "unix:relative",
            "unix:",
        ] {
            assert!(wrong.parse::<Place>().is_err(), "{wrong}");
        }
    }
}
