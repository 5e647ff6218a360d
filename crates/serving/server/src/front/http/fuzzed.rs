//! HTTP for fuzz targets: the body of an infer call, and a whole connection.

use std::sync::Arc;

use albacore_connections::{ActiveRequest, ConnState, Handler};
use hyper::body::Incoming;
use hyper::{Request, StatusCode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::super::body::{self, Arriving};
use super::super::coding::Coding;
use super::super::fuzzed::{memory, model};
use super::super::outgoing::Outgoing;
use super::super::terms::Terms;
use super::infer::json_bytes;
use super::reply::{self, HttpReply};
use super::request::Call;
use super::route;

/// A body, of which so many bytes are JSON.
pub fn infer(bytes: &[u8], json_bytes: Option<usize>) {
    let model = model();
    let Ok(call) = Call::parse(&model, bytes, json_bytes) else {
        return;
    };
    if let Some(mut memory) = memory(call.rows, call.datatype.element()) {
        let _ = call.fill(&mut memory);
    }
    if let Ok(mut terms) = Terms::of(std::time::Instant::now(), &hyper::HeaderMap::new()) {
        let _ = call.set(&mut terms);
    }
}

/// What a client sends on one connection: each request is read whole; a reply, if any comes, is
/// HTTP.
pub fn connection(bytes: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    // infallible: a runtime with timers alone needs nothing of the system
    let Ok(runtime) = runtime else { return };
    let replies = runtime.block_on(exchange(bytes));
    let is_http = replies.starts_with(b"HTTP/1.") || replies.get(3) == Some(&4);
    assert!(
        replies.is_empty() || is_http,
        "{:?}",
        String::from_utf8_lossy(&replies)
    );
}

async fn exchange(bytes: &[u8]) -> Vec<u8> {
    let (client, server) = tokio::io::duplex(1 << 16);
    let is_http2 = bytes.starts_with(b"PRI * HTTP/2.0");
    let serving = albacore_connections::serve_stream(server, is_http2, Arc::new(Reader));
    let (mut reading, mut writing) = tokio::io::split(client);
    let mut replies = Vec::new();
    let asking = async {
        let _ = writing.write_all(bytes).await;
        let _ = writing.shutdown().await;
    };
    let _ = tokio::join!(serving, asking, reading.read_to_end(&mut replies));
    replies
}

struct Reader;

impl Handler for Reader {
    type Body = Outgoing;

    async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        mut active: ActiveRequest,
    ) -> HttpReply {
        active.answered();
        read(request, active.conn()).await
    }
}

/// As the server, up to what only an engine can do.
async fn read(request: Request<Incoming>, conn: &ConnState) -> HttpReply {
    let (head, body) = request.into_parts();
    let _ = route::find(&head.method, head.uri.path());
    let _ = Coding::wanted(&head.headers);
    let read = async {
        let _ = Terms::of(std::time::Instant::now(), &head.headers)?;
        let json_bytes = json_bytes(&head.headers)?;
        let bytes = body::read(body, &Arriving::default(), conn).await?;
        let bytes = body::unpack(&head.headers, bytes, conn)?;
        infer(&bytes, json_bytes);
        Ok(())
    };
    match read.await {
        Ok(()) => reply::json(StatusCode::OK, &"read"),
        Err(refused) => reply::refused(&refused),
    }
}
