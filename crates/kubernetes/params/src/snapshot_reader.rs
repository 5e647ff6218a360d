//! Reads the node's snapshots from the pipe that the agent writes, until the program stops.
//!
//! The agent creates the pipe, may start later than this program, and may restart. When its writer
//! closes the pipe, a read returns end of file once. The pipe is then opened again before the old
//! descriptor is closed, so that lines which the next writer wrote meanwhile are not lost. A new
//! pipe at the same path is detected and opened, too.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use albacore_settings::SNAPSHOT_LINE_BYTES_MAX;
use albacore_settings::agent_stream::NodeSnapshot;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::{OpenOptions, Receiver};

use crate::limits::{PIPE_CHECK_PERIOD, READ_BYTES};
use crate::metrics::ParamsMetrics;
use crate::snapshots::SnapshotStore;

/// Reads the pipe at `path`. Never returns.
pub(crate) async fn read_snapshots(
    path: PathBuf,
    snapshots: Arc<SnapshotStore>,
    metrics: ParamsMetrics,
) {
    let mut last_error = None;
    let mut open: Option<Pipe> = None;
    // bound: one pass for each writer or PIPE_CHECK_PERIOD, until the program stops.
    loop {
        let fresh = Pipe::open(&path);
        // Closed only now, because a pipe keeps its content while any descriptor is open.
        drop(open.take());
        match fresh {
            Ok(mut pipe) => {
                if last_error.take().is_some() {
                    tracing::info!(path = %path.display(), "the feed is open");
                }
                pipe.read(&path, &snapshots, &metrics).await;
                open = Some(pipe);
            }
            Err(error) => {
                let error = error.to_string();
                if last_error.as_ref() != Some(&error) {
                    tracing::warn!(path = %path.display(), error, "cannot open the feed yet");
                    last_error = Some(error);
                }
                tokio::time::sleep(PIPE_CHECK_PERIOD).await;
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
        // Before opening, so that a pipe that is replaced meanwhile is detected as another one.
        let identity = identity(path);
        let receiver = OpenOptions::new().open_receiver(path)?;
        Ok(Self { receiver, identity })
    }

    /// Reads until all writers have closed the pipe or another pipe is at the path.
    async fn read(&mut self, path: &Path, snapshots: &SnapshotStore, metrics: &ParamsMetrics) {
        let mut lines = LineSplitter::default();
        let mut bytes = vec![0; READ_BYTES];
        let mut pipe_check = tokio::time::interval(PIPE_CHECK_PERIOD);
        // bound: each pass reads something or waits for PIPE_CHECK_PERIOD.
        loop {
            let read = tokio::select! {
                read = self.receiver.read(&mut bytes) => read,
                _ = pipe_check.tick() => {
                    if identity(path) != self.identity {
                        break;
                    }
                    continue;
                }
            };
            match read {
                Ok(0) => break,
                Ok(count) => lines.push(&bytes[..count], &mut |line| {
                    handle_line(line, snapshots, metrics)
                }),
                Err(error) => {
                    tracing::warn!(%error, "cannot read the feed");
                    tokio::time::sleep(PIPE_CHECK_PERIOD).await;
                    break;
                }
            }
        }
        if lines.is_incomplete() {
            handle_line(
                Err("the feed was closed in the middle of the line"),
                snapshots,
                metrics,
            );
        }
    }
}

/// Device and inode, which identify the pipe at a path.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// Publishes the snapshot of a line; counts a line that cannot be decoded.
fn handle_line(line: Result<&[u8], &str>, snapshots: &SnapshotStore, metrics: &ParamsMetrics) {
    let read = match line {
        Ok(line) => NodeSnapshot::decode(line).map_err(|error| error.to_string()),
        Err(why) => Err(why.to_owned()),
    };
    match read {
        Ok(decoded) => {
            metrics.line("taken");
            metrics.unknown_fields.inc_by(decoded.unknown_fields as u64);
            snapshots.publish(decoded.snapshot);
        }
        Err(error) => {
            metrics.line("broken");
            tracing::warn!(error, "a line of the feed is invalid");
        }
    }
}

/// Handles a line, or the reason why it was skipped.
type LineHandler<'a> = dyn FnMut(Result<&[u8], &str>) + 'a;

/// Splits bytes into lines. Skips empty lines and lines that are too long.
#[derive(Default)]
struct LineSplitter {
    /// The beginning of an incomplete line.
    partial_line: Vec<u8>,
    /// Whether the current line is too long.
    is_too_long: bool,
}

impl LineSplitter {
    fn push(&mut self, bytes: &[u8], handle_line: &mut LineHandler<'_>) {
        let mut pieces = bytes.split(|byte| *byte == b'\n').peekable();
        // bound: one pass for each piece of `bytes`.
        while let Some(piece) = pieces.next() {
            if !self.is_too_long {
                if self.partial_line.len() + piece.len() >= SNAPSHOT_LINE_BYTES_MAX {
                    self.is_too_long = true;
                    self.partial_line = Vec::new();
                    handle_line(Err("it exceeds the maximum length"));
                } else {
                    self.partial_line.extend_from_slice(piece);
                }
            }
            if pieces.peek().is_some() {
                if !self.partial_line.is_empty() {
                    handle_line(Ok(&self.partial_line));
                }
                self.partial_line.clear();
                self.is_too_long = false;
            }
        }
    }

    fn is_incomplete(&self) -> bool {
        !self.partial_line.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines in `pieces`, `None` for one that is too long; and whether the last line is
    /// incomplete.
    fn lines(pieces: &[&[u8]]) -> (Vec<Option<Vec<u8>>>, bool) {
        let mut found = Vec::new();
        let mut lines = LineSplitter::default();
        for piece in pieces {
            lines.push(piece, &mut |line| found.push(line.ok().map(<[u8]>::to_vec)));
            assert!(lines.partial_line.len() < SNAPSHOT_LINE_BYTES_MAX);
        }
        (found, lines.is_incomplete())
    }

    #[test]
    fn lines_are_the_same_wherever_reads_end() {
        let text = b"\none\n\ntwo\nthree";
        let whole = lines(&[text]);
        let expected = [b"one".to_vec(), b"two".to_vec()].map(Some).to_vec();
        assert_eq!(whole, (expected, true));
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
        let (found, is_incomplete) = lines(&[b"one\n", &long, &long, &long, b"x\ntwo\n"]);
        assert_eq!(
            found,
            [Some(b"one".to_vec()), None, Some(b"two".to_vec())].to_vec()
        );
        assert!(!is_incomplete);
    }
}
