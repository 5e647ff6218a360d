//! The address of `--params`.

use std::fmt;
use std::str::FromStr;

use tonic::transport::Endpoint;

/// An endpoint, `http://HOST:PORT` or `unix:/PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamsEndpoint(String);

impl ParamsEndpoint {
    /// Converts to a tonic endpoint, without connecting.
    pub(crate) fn to_tonic(&self) -> Result<Endpoint, tonic::transport::Error> {
        Endpoint::from_shared(self.0.clone())
    }
}

impl FromStr for ParamsEndpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_plain = |c: char| !c.is_whitespace() && !c.is_control();
        let is_valid = match (text.strip_prefix("http://"), text.strip_prefix("unix:")) {
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
        let endpoint = Self(text.to_owned());
        if is_valid && text.chars().all(is_plain) && endpoint.to_tonic().is_ok() {
            return Ok(endpoint);
        }
        Err("expected http://HOST:PORT or unix:/PATH".to_owned())
    }
}

impl fmt::Display for ParamsEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_endpoints_are_accepted() {
        for valid in [
            "http://10.0.0.7:8082",
            "http://albacore-params.albacore-agents:8082/",
            "http://[fd00::7]:8082",
            "unix:/run/albacore/params.sock",
        ] {
            assert!(valid.parse::<ParamsEndpoint>().is_ok(), "{valid}");
        }
        for invalid in [
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
            assert!(invalid.parse::<ParamsEndpoint>().is_err(), "{invalid}");
        }
    }
}
