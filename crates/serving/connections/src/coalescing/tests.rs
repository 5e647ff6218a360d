//! Replies over an HTTP/2 connection: their frames, and the writes that contain them.

use std::convert::Infallible;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming};
use hyper::{HeaderMap, Request, Response};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::io::{DuplexStream, duplex};

use super::*;
use crate::{ActiveRequest, Handler, serve_stream};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Stream window of 1 MiB; the connection window is enlarged by the same size.
const SETTINGS: &[u8] = &[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 16, 0, 0];
const WINDOW_UPDATE: &[u8] = &[0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 16, 0, 0];

/// `GET http://a/` on a stream, with indexed fields except for the authority.
fn request(stream: u8) -> Vec<u8> {
    let block = [0x82, 0x84, 0x86, 0x01, 1, b'a'];
    let head = [0, 0, block.len() as u8, 1, 5, 0, 0, 0, stream];
    [&head[..], &block].concat()
}

/// A reply of one data frame, optionally followed by trailers.
struct Reply(Option<Bytes>, bool);

impl Body for Reply {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(data) = self.0.take() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        let is_sent = std::mem::replace(&mut self.1, true);
        Poll::Ready((!is_sent).then(|| Ok(Frame::trailers(HeaderMap::new()))))
    }
}

struct Replies(usize);

impl Handler for Replies {
    type Body = Reply;

    async fn answer(self: Arc<Self>, _: Request<Incoming>, _: ActiveRequest) -> Response<Reply> {
        Response::new(Reply(Some(vec![7; self.0].into()), false))
    }
}

/// The server's end of a connection; records the length of each write.
struct RecordingIo(DuplexStream, Arc<Mutex<Vec<usize>>>);

impl RecordingIo {
    fn record(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = written {
            self.1.lock().unwrap().push(bytes);
        }
        written
    }
}

impl AsyncRead for RecordingIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for RecordingIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.0).poll_write(context, bytes);
        self.record(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.0).poll_write_vectored(context, slices);
        self.record(written)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

/// Returns the frames (type and length) of the replies on this number of streams, and the lengths
/// of the writes that sent them.
async fn exchange(
    streams: u8,
    data_bytes: usize,
    pipe_bytes: usize,
) -> (Vec<(u8, usize)>, Vec<usize>) {
    let (client, server) = duplex(pipe_bytes);
    let (mut client, mut requests) = tokio::io::split(client);
    let writes = Arc::new(Mutex::new(Vec::new()));
    let server = RecordingIo(server, Arc::clone(&writes));
    tokio::spawn(serve_stream(server, true, Arc::new(Replies(data_bytes))));
    // Writes concurrently with reading: a server may stop reading while it cannot write.
    let (start, started) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        let first = [PREFACE, SETTINGS, WINDOW_UPDATE].concat();
        requests.write_all(&first).await.unwrap();
        started.await.unwrap();
        let all: Vec<u8> = (0..streams).flat_map(|nth| request(2 * nth + 1)).collect();
        requests.write_all(&all).await.unwrap();
    });
    let mut start = Some(start);
    let mut frames = Vec::new();
    let mut ended = 0;
    while ended < streams {
        let mut head = [0; 9];
        client.read_exact(&mut head).await.unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut payload = vec![0; length];
        client.read_exact(&mut payload).await.unwrap();
        let (kind, flags) = (head[3], head[4]);
        // The SETTINGS acknowledgment is the last frame before the replies.
        if kind == 4
            && flags == 1
            && let Some(start) = start.take()
        {
            writes.lock().unwrap().clear();
            start.send(()).unwrap();
        }
        if kind < 2 {
            frames.push((kind, length));
            ended += flags & 1;
        }
    }
    let writes = writes.lock().unwrap().clone();
    (frames, writes)
}

#[tokio::test]
async fn a_reply_with_trailers_is_one_write() {
    for data_bytes in [100, 300, 3_000] {
        let (frames, writes) = exchange(1, data_bytes, 1 << 20).await;
        let kinds: Vec<u8> = frames.iter().map(|&(kind, _)| kind).collect();
        assert_eq!(kinds, [1, 0, 1], "{frames:?}");
        assert_eq!(writes.len(), 1, "{data_bytes} bytes: {writes:?}");
    }
}

#[tokio::test]
async fn replies_of_streams_that_are_ready_together_share_a_write() {
    let (frames, writes) = exchange(4, 300, 1 << 20).await;
    assert_eq!(frames.len(), 12, "{frames:?}");
    assert_eq!(writes.len(), 1, "{writes:?}");
}

/// No byte is lost or reordered, however few bytes the socket accepts per write.
#[tokio::test]
async fn replies_larger_than_the_write_buffer_are_complete() {
    for (data_bytes, pipe_bytes) in [(200_000, 1_000), (60_000, 1 << 20), (16_384, 7)] {
        let (frames, _) = exchange(3, data_bytes, pipe_bytes).await;
        let data: usize = frames.iter().filter(|f| f.0 == 0).map(|f| f.1).sum();
        assert_eq!(data, 3 * data_bytes, "{frames:?}");
    }
}
