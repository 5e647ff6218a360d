//! What a worker inherits from the front: numbers and descriptors on its command line.

use std::ffi::OsString;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use albacore_os::{Channel, Extent, ReadMapping, SharedMemory, Wake, inherited_fd};

use super::SUBCOMMAND;
use crate::ring::Ring;

pub(super) struct Inherited {
    pub(super) worker: usize,
    pub(super) threads: usize,
    pub(super) ring: Ring,
    /// By event loop of the front.
    done: Vec<Wake>,
    pub(super) rows: ReadMapping,
    /// Carries commands.
    pub(super) command: Channel,
    results: SharedMemory,
}

/// The command line of a worker.
pub(crate) fn arguments(worker: usize, threads: usize, fds: &[BorrowedFd<'_>]) -> Vec<OsString> {
    let numbers = [worker, threads]
        .into_iter()
        .map(|number| number.to_string());
    let fds = fds.iter().map(|fd| fd.as_raw_fd().to_string());
    std::iter::once(SUBCOMMAND.to_owned())
        .chain(numbers)
        .chain(fds)
        .map(OsString::from)
        .collect()
}

impl Inherited {
    /// Parses what [`arguments`] wrote, without the subcommand.
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
        let ring = Ring::open(open(number()?)?).map_err(|error| error.to_string())?;
        let rows = map_read(number()?)?;
        let results = memory(number()?)?;
        let command = Channel::inherited(open(number()?)?);
        let mut done = vec![Wake::inherited(open(number()?)?)];
        for fd in arguments {
            let fd = fd.parse().map_err(|_| format!("{fd:?} is not a number"))?;
            done.push(Wake::inherited(open(fd)?));
        }
        Ok(Self {
            worker,
            threads,
            ring,
            done,
            rows,
            command,
            results,
        })
    }

    /// Notifies the event loop that the ring names.
    pub(super) fn notify(&self) {
        let wake = self.done.get(self.ring.event_loop().0);
        wake.or(self.done.first()).into_iter().for_each(Wake::wake);
    }

    /// A mapping of the results for one thread.
    pub(super) fn map_results(&self) -> Result<Extent, String> {
        self.results.map_extent().map_err(|error| error.to_string())
    }
}

fn open(number: RawFd) -> Result<std::os::fd::OwnedFd, String> {
    inherited_fd(number).map_err(|error| format!("descriptor {number}: {error}"))
}

fn memory(number: RawFd) -> Result<SharedMemory, String> {
    SharedMemory::open(open(number)?).map_err(|error| format!("descriptor {number}: {error}"))
}

fn map_read(number: RawFd) -> Result<ReadMapping, String> {
    memory(number)?
        .map_read()
        .map_err(|error| format!("descriptor {number}: {error}"))
}
