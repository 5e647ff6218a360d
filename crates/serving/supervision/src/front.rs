//! A front process as the supervisor sees it, and the command line that it is started with.

use std::ffi::OsString;
use std::os::fd::{AsFd as _, AsRawFd as _, RawFd};
use std::path::Path;
use std::time::Instant;

use albacore_os::{Child, ChildOutput, OsError, Poll};

use crate::link::Link;
use crate::outgoing::Outgoing;
use crate::worker_host::ANY;

/// The subcommand that makes the server's program a front.
pub const SUBCOMMAND: &str = "front";

/// What a front is started for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrontRole {
    /// It loads the models, binds the sockets and serves.
    First,
    /// It takes what another front keeps, and serves when it is asked to.
    Standby,
    /// It loads the models and serves, once it is ready, on the sockets of another binary.
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

/// The first arguments of a front, after [`SUBCOMMAND`]; the server's own follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrontArguments {
    pub role: FrontRole,
    /// No other front of this server has it.
    pub number: u64,
    /// Descriptor of the link to the supervisor.
    pub control: RawFd,
    /// Descriptor of the link to the host of the workers.
    pub workers: RawFd,
}

impl FrontArguments {
    /// Parses what the supervisor wrote; `None` if it is anything else.
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
pub(crate) struct Front {
    pub(crate) child: Child,
    pub(crate) control: Outgoing,
    /// Our end of its link to the workers, until it serves.
    pub(crate) workers: Option<Link>,
    pub(crate) started: Instant,
    /// A standby could serve at once.
    pub(crate) is_prepared: bool,
    /// Every worker was up and every model loaded.
    pub(crate) is_ready: bool,
    /// What it said of its end.
    pub(crate) failure: Option<String>,
}

impl Front {
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
        let child = Child::start(program, &all, &inherited, ChildOutput::Ours)?;
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
