//! A front process, as seen by the supervisor, and its command line.

use std::ffi::OsString;
use std::os::fd::{AsFd as _, AsRawFd as _, RawFd};
use std::path::Path;
use std::time::Instant;

use albacore_os::{Child, ChildOutput, OsError, Poll};

use crate::link::Link;
use crate::outgoing::Outgoing;
use crate::worker_host::ANY;

/// The subcommand that starts the server's program as a front.
pub const SUBCOMMAND: &str = "front";

/// Role in which a front is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrontRole {
    /// It loads the models, binds the sockets and serves.
    First,
    /// It takes over the descriptors of another front, and serves when requested.
    Standby,
    /// It loads the models and, once it is ready, serves on the sockets of another binary.
    Upgrade,
}

impl FrontRole {
    const ALL: [Self; 3] = [Self::First, Self::Standby, Self::Upgrade];

    const fn name(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Standby => "standby",
            Self::Upgrade => "upgrade",
        }
    }
}

/// The first arguments of a front, after [`SUBCOMMAND`]; those of the server follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrontArguments {
    pub role: FrontRole,
    /// Unique among the fronts of this server.
    pub number: u64,
    /// Descriptor of the link to the supervisor.
    pub control: RawFd,
    /// Descriptor of the link to the worker host.
    pub workers: RawFd,
}

impl FrontArguments {
    /// Parses arguments written by the supervisor; `None` if they are anything else.
    pub fn parse(arguments: &mut impl Iterator<Item = OsString>) -> Option<Self> {
        let mut next = || arguments.next()?.into_string().ok();
        let role = next()?;
        let mut roles = FrontRole::ALL.into_iter();
        Some(Self {
            role: roles.find(|known| known.name() == role)?,
            number: next()?.parse().ok()?,
            control: next()?.parse().ok()?,
            workers: next()?.parse().ok()?,
        })
    }

    fn texts(self) -> [String; 5] {
        [
            SUBCOMMAND.to_owned(),
            self.role.name().to_owned(),
            self.number.to_string(),
            self.control.to_string(),
            self.workers.to_string(),
        ]
    }
}

/// A running front. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct RunningFront {
    pub(crate) child: Child,
    pub(crate) control: Outgoing,
    /// The supervisor's end of its link to the worker host, until it serves.
    pub(crate) workers: Option<Link>,
    pub(crate) started: Instant,
    /// Whether a standby is prepared to serve.
    pub(crate) is_prepared: bool,
    /// Whether every worker was up and every model loaded.
    pub(crate) is_ready: bool,
    /// The reason that it reported for its exit.
    pub(crate) failure: Option<String>,
}

impl RunningFront {
    pub(crate) fn start(
        program: &Path,
        arguments: &[OsString],
        role: FrontRole,
        number: u64,
        poll: &Poll,
    ) -> Result<Self, OsError> {
        let (control, their_control) = Link::pair()?;
        let (workers, their_workers) = Link::pair()?;
        let inherited = [their_control.as_fd(), their_workers.as_fd()];
        let own = FrontArguments {
            role,
            number,
            control: inherited[0].as_raw_fd(),
            workers: inherited[1].as_raw_fd(),
        };
        let all = own.texts().map(OsString::from).into_iter();
        let all: Vec<OsString> = all.chain(arguments.iter().cloned()).collect();
        let child = Child::start(program, &all, &inherited, ChildOutput::Inherited)?;
        poll.add(&child, ANY)?;
        poll.add(&control, ANY)?;
        Ok(Self {
            child,
            control: Outgoing::new(control),
            workers: Some(workers),
            started: Instant::now(),
            is_prepared: false,
            is_ready: false,
            failure: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_front_reads_the_arguments_that_it_was_started_with() {
        for role in FrontRole::ALL {
            let arguments = FrontArguments {
                role,
                number: u64::MAX,
                control: 7,
                workers: 11,
            };
            let [subcommand, rest @ ..] = arguments.texts();
            assert_eq!(subcommand, SUBCOMMAND);
            let all = rest.into_iter().chain(["--http".to_owned()]);
            let mut all = all.map(OsString::from);
            assert_eq!(FrontArguments::parse(&mut all), Some(arguments));
            assert_eq!(all.next(), Some("--http".into()));
        }
        let other = ["first", "x", "1", "2"].map(OsString::from);
        assert_eq!(FrontArguments::parse(&mut other.into_iter()), None);
    }
}
