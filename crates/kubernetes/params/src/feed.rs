//! Reads the agent's pipe, for as long as the program runs.
//!
//! The agent makes the pipe, may come later than this program, and may die and come again. While
//! nobody writes there is nothing to read; when a writer goes away the pipe says so once, and is
//! opened anew before the old descriptor is closed, so that what the next writer wrote meanwhile is
//! kept. A pipe at the same path that is another one is opened, too.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use albacore_settings::SNAPSHOT_LINE_BYTES_MAX;
use albacore_settings::agent_stream::NodeSnapshot;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::{OpenOptions, Receiver};

use crate::counts::Counts;
use crate::known::Known;
use crate::limits::{LOOK_PERIOD, READ_BYTES};

/// Follows the pipe at `path`. Does not end.
pub(crate) async fn follow(path: PathBuf, known: Arc<Known>, counts: Counts) {
    let mut told = None;
    let mut open: Option<Pipe> = None;
    // bound: one pass each writer's life or LOOK_PERIOD, until the program ends.
    loop {
        let fresh = Pipe::open(&path);
        // Closed only now: a pipe that somebody has open keeps what is in it.
        drop(open.take());
        match fresh {
            Ok(mut pipe) => {
                if told.take().is_some() {
                    tracing::info!(path = %path.display(), "the feed is there");
                }
                pipe.read(&path, &known, &counts).await;
                open = Some(pipe);
            }
            Err(error) => {
                let error = error.to_string();
                if told.as_ref() != Some(&error) {
                    tracing::warn!(path = %path.display(), error, "the feed cannot be opened yet");
                    told = Some(error);
                }
                tokio::time::sleep(LOOK_PERIOD).await;
            }
        }
    }
}

struct Pipe {
    receiver: Receiver,
    identity: Option<(u64, u64)>,
}

impl Pipe {
    fn open(path: &Path) -> io::Result<Self> {
        // Before opening: a pipe that is replaced meanwhile is seen as another one.
        let identity = identity(path);
        let receiver = OpenOptions::new().open_receiver(path)?;
        Ok(Self { receiver, identity })
    }

    /// Reads until the writers are gone or another pipe is at the path.
    async fn read(&mut self, path: &Path, known: &Known, counts: &Counts) {
        let mut lines = Lines::default();
        let mut bytes = vec![0; READ_BYTES];
        let mut look = tokio::time::interval(LOOK_PERIOD);
        // bound: each pass reads something or waits for LOOK_PERIOD.
        loop {
            let read = tokio::select! {
                read = self.receiver.read(&mut bytes) => read,
                _ = look.tick() => {
                    if identity(path) != self.identity {
                        break;
                    }
                    continue;
                }
            };
            match read {
                Ok(0) => break,
                Ok(count) => lines.take(&bytes[..count], &mut |line| heed(line, known, counts)),
                Err(error) => {
                    tracing::warn!(%error, "the feed cannot be read");
                    tokio::time::sleep(LOOK_PERIOD).await;
                    break;
                }
            }
        }
        if lines.is_torn() {
            heed(Err("the writer ended within it"), known, counts);
        }
    }
}

/// What tells one pipe at a path from another.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// Takes a line, or why there is none.
fn heed(line: Result<&[u8], &str>, known: &Known, counts: &Counts) {
    let read = match line {
        Ok(line) => NodeSnapshot::decode(line).map_err(|error| error.to_string()),
        Err(why) => Err(why.to_owned()),
    };
    match read {
        Ok(decoded) => {
            counts.line("taken");
            counts.unknown_fields.inc_by(decoded.unknown_fields as u64);
            known.take(decoded.snapshot);
        }
        Err(error) => {
            counts.line("broken");
            tracing::warn!(error, "a line of the feed is not taken");
        }
    }
}

/// Takes a line, or why there is none.
type Heed<'a> = dyn FnMut(Result<&[u8], &str>) + 'a;

/// Bytes to lines. Empty ones are passed over, one that is too long up to its end.
#[derive(Default)]
struct Lines {
    /// The beginning of a line.
    held: Vec<u8>,
    /// It is too long, and what is left of it does not count.
    is_passed_over: bool,
}

impl Lines {
    fn take(&mut self, bytes: &[u8], heed: &mut Heed<'_>) {
        let mut pieces = bytes.split(|byte| *byte == b'\n').peekable();
        // bound: one pass each piece of `bytes`.
        while let Some(piece) = pieces.next() {
            if !self.is_passed_over {
                if self.held.len() + piece.len() >= SNAPSHOT_LINE_BYTES_MAX {
                    self.is_passed_over = true;
                    self.held = Vec::new();
                    heed(Err("it is longer than a line may be"));
                } else {
                    self.held.extend_from_slice(piece);
                }
            }
            if pieces.peek().is_some() {
                if !self.held.is_empty() {
                    heed(Ok(&self.held));
                }
                self.held.clear();
                self.is_passed_over = false;
            }
        }
    }

    fn is_torn(&self) -> bool {
        !self.held.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of pieces; `None` for one that is too long.
    fn lines(pieces: &[&[u8]]) -> (Vec<Option<Vec<u8>>>, bool) {
        let mut found = Vec::new();
        let mut lines = Lines::default();
        for piece in pieces {
            lines.take(piece, &mut |line| found.push(line.ok().map(<[u8]>::to_vec)));
            assert!(lines.held.len() < SNAPSHOT_LINE_BYTES_MAX);
        }
        (found, lines.is_torn())
    }

    #[test]
    fn lines_are_the_same_wherever_reads_end() {
        let text = b"\none\n\ntwo\nthree";
        let whole = lines(&[text]);
        let wanted = [b"one".to_vec(), b"two".to_vec()].map(Some).to_vec();
        assert_eq!(whole, (wanted, true));
        for at in 0..text.len() {
            let (left, right) = text.split_at(at);
            assert_eq!(lines(&[left, right]), whole, "{at}");
        }
        let single: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(lines(&single), whole);
    }

    #[test]
    fn a_line_without_end_takes_no_memory_and_spoils_no_other() {
        let long = vec![b'x'; SNAPSHOT_LINE_BYTES_MAX / 2 + 1];
        let (found, is_torn) = lines(&[b"one\n", &long, &long, &long, b"x\ntwo\n"]);
        assert_eq!(
            found,
            [Some(b"one".to_vec()), None, Some(b"two".to_vec())].to_vec()
        );
        assert!(!is_torn);
    }
}
