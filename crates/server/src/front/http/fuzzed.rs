//! HTTP for fuzz targets: the body of an infer call, and a whole connection.

use std::convert::Infallible;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::super::body::{self, Arriving};
use super::super::bounds::Reached;
use super::super::coding::Coding;
use super::super::fuzzed::{memory, model};
use super::super::limits::HEAD_BYTES_MAX;
use super::super::seat::{Room, Seat};
use super::super::terms::Terms;
use super::super::wire::Wire;
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

/// What a client sends on one connection: each request is read whole; a reply, if any comes, is HTTP.
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
    let seat = Arc::new(Seat::new(Arc::new(Room::new(Reached::default()))));
    let (client, server) = tokio::io::duplex(1 << 16);
    let wire = Wire::new(TokioIo::new(server), Arc::clone(&seat));
    let is_two = bytes.starts_with(b"PRI * HTTP/2.0");
    let service = service_fn(|request| {
        let seat = Arc::clone(&seat);
        async move { Ok::<_, Infallible>(answer(request, &seat).await) }
    });
    let serving = async {
        let _ = if is_two {
            seat.speaks_two();
            http2::Builder::new(TokioExecutor::new())
                .max_header_list_size(HEAD_BYTES_MAX)
                .serve_connection(wire, service)
                .await
        } else {
            http1::Builder::new()
                .max_header_size(HEAD_BYTES_MAX as usize)
                .serve_connection(wire, service)
                .await
        };
    };
    let (mut reading, mut writing) = tokio::io::split(client);
    let mut replies = Vec::new();
    let asking = async {
        let _ = writing.write_all(bytes).await;
        let _ = writing.shutdown().await;
    };
    let _ = tokio::join!(serving, asking, reading.read_to_end(&mut replies));
    replies
}

/// As the server, up to what only an engine can do.
async fn answer(request: Request<Incoming>, seat: &Arc<Seat>) -> HttpReply {
    let mut call = seat.begin();
    call.answered();
    let (head, body) = request.into_parts();
    let _ = route::find(&head.method, head.uri.path());
    let _ = Coding::wanted(&head.headers);
    let read = async {
        let _ = Terms::of(std::time::Instant::now(), &head.headers)?;
        let json_bytes = json_bytes(&head.headers)?;
        let bytes = body::read(body, &Arriving::default(), seat).await?;
        let bytes = body::unpack(&head.headers, bytes, seat)?;
        infer(&bytes, json_bytes);
        Ok(())
    };
    match read.await {
        Ok(()) => reply::json(StatusCode::OK, &"read"),
        Err(refused) => reply::refused(&refused),
    }
}
