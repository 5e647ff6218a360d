//! Commands from the front to a running worker: open and close images of models, attach the memory
//! of a front. A command is one message on the worker's channel; the image or the memory is passed
//! as file descriptors. The ring signals when to read it.

use crate::limits::CLOSES_MAX;

/// Identifies one compiled version of a model; never reused by any front of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RevisionId(pub u64);

/// One message. Images are closed first, so that their memory is free when the next one is opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerCommand {
    /// Images that no request uses any more.
    pub closes: Vec<RevisionId>,
    /// The image passed with the message, and the bits of its outputs.
    pub opens: Option<(RevisionId, u8)>,
    /// The memory of a front is passed with the message: rows, results, and the wakeups of its
    /// event loops.
    pub is_attach: bool,
    /// The worker was moved to another NUMA node: its threads reallocate their scratch memory.
    pub moves_scratch: bool,
}

impl RevisionId {
    /// First revision of the front with this number.
    pub fn first_of(front: u64) -> Self {
        Self(front << 32)
    }
}

impl WorkerCommand {
    /// Changes the front that the worker computes for.
    pub fn attach() -> Self {
        Self {
            is_attach: true,
            ..Self::default()
        }
    }

    /// Flags, the revision to open, its outputs, and the revisions to close, as little-endian
    /// words.
    pub fn encode(&self) -> Vec<u8> {
        let (id, kinds) = self.opens.unwrap_or((RevisionId(0), 0));
        let flags = [self.opens.is_some(), self.is_attach, self.moves_scratch];
        let flags = flags.into_iter().enumerate();
        let parts = flags.fold(0, |parts, (bit, flag)| parts | u64::from(flag) << bit);
        let head = [parts, id.0, u64::from(kinds)];
        let closes = self.closes.iter().take(CLOSES_MAX).map(|id| id.0);
        let words = head.into_iter().chain(closes);
        words.flat_map(u64::to_le_bytes).collect()
    }

    /// Returns `None` if the bytes are not a command.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (words, []) = bytes.as_chunks::<8>() else {
            return None;
        };
        let mut words = words.iter().copied().map(u64::from_le_bytes);
        let (parts, id, kinds) = (words.next()?, words.next()?, words.next()?);
        let opens = (RevisionId(id), u8::try_from(kinds).ok()?);
        Some(Self {
            closes: words.map(RevisionId).collect(),
            opens: (parts & 1 != 0).then_some(opens),
            is_attach: parts & 2 != 0,
            moves_scratch: parts & 4 != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_round_trip() {
        let closes = vec![RevisionId(3), RevisionId(u64::MAX)];
        for opens in [None, Some((RevisionId(7), 31))] {
            let command = WorkerCommand {
                closes: closes.clone(),
                opens,
                is_attach: opens.is_none(),
                moves_scratch: opens.is_some(),
            };
            assert_eq!(WorkerCommand::decode(&command.encode()), Some(command));
        }
        for bytes in [&[][..], &[0; 8], &[0; 23], &[255; 24]] {
            assert_eq!(WorkerCommand::decode(bytes), None, "{bytes:?}");
        }
        let many = WorkerCommand {
            closes: vec![RevisionId(1); 9999],
            ..WorkerCommand::default()
        };
        assert!(many.encode().len() <= 4096);
    }
}
