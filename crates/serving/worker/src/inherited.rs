//! Parameters that a worker inherits: numbers and descriptors on its command line. The memory of
//! the front is sent in a message, because another front may replace it.

use std::os::fd::RawFd;

use albacore_os::{Channel, inherited_fd};

use crate::SUBCOMMAND;
use crate::ring::Ring;

pub(super) struct Inherited {
    pub(super) worker: usize,
    pub(super) threads: usize,
    pub(super) ring: Ring,
    /// Channel of the commands; the first command is already in it when the worker starts.
    pub(super) commands: Channel,
}

/// The command line of a worker, which ends with the numbers of its ring and its channel.
pub fn arguments(worker: usize, threads: usize) -> Vec<String> {
    vec![
        SUBCOMMAND.to_owned(),
        worker.to_string(),
        threads.to_string(),
    ]
}

impl Inherited {
    /// Parses the result of [`arguments`] and the two descriptors, without the subcommand.
    pub(super) fn from_arguments(
        mut arguments: impl Iterator<Item = String>,
    ) -> Result<Self, String> {
        let mut number = || -> Result<i32, String> {
            let text = arguments.next().unwrap_or_default();
            let foreign = "this subcommand is for the server's own use";
            text.parse()
                .map_err(|_| format!("{text:?} is not a number: {foreign}"))
        };
        let size = |number: i32| usize::try_from(number).map_err(|error| error.to_string());
        let (worker, threads) = (size(number()?)?, size(number()?)?);
        Ok(Self {
            worker,
            threads,
            ring: Ring::open(open(number()?)?).map_err(|error| error.to_string())?,
            commands: Channel::inherited(open(number()?)?),
        })
    }
}

fn open(number: RawFd) -> Result<std::os::fd::OwnedFd, String> {
    inherited_fd(number).map_err(|error| format!("descriptor {number}: {error}"))
}
