//! HTTP fuzz targets: the body of an infer call, and a whole connection.

use std::sync::Arc;

use albacore_connections::{ActiveRequest, ConnState, Handler};
use albacore_engine::{Kind, ModelInfo};
use albacore_extensions::SharedMemoryRegions;
use albacore_rows::Table;
use albacore_server_args::PlatformRoutes;
use hyper::body::Incoming;
use hyper::{Request, StatusCode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::super::content_coding::ContentCoding;
use super::super::reply_body::ReplyBody;
use super::super::request_body::{self, BodyBudget};
use super::super::request_meta::RequestMeta;
use super::super::sample_model::{fuzzed_memory, fuzzed_model};
use super::infer::json_bytes;
use super::reply::{self, HttpReply};
use super::request::HttpInferRequest;
use super::route;

/// Parses a body whose first `json_bytes` bytes are JSON, also as a body of protocol V1.
pub fn http_body(bytes: &[u8], json_bytes: Option<usize>) {
    let model = fuzzed_model();
    let tables = [
        Table::from_instances(&model, bytes),
        Table::from_json(&model, bytes),
        Table::from_csv(&model, bytes, None),
    ];
    let tables = tables.into_iter().flatten();
    let tables = tables.map(|table| HttpInferRequest::from_table(&model, table, Kind::Value));
    let regions = SharedMemoryRegions::new(0);
    let call = HttpInferRequest::parse(&model, bytes, json_bytes, &regions);
    let calls = std::iter::once(call).chain(tables);
    for call in calls.flatten() {
        write_call(&model, &call);
    }
}

fn write_call(model: &ModelInfo, call: &HttpInferRequest<'_>) {
    if let Some(mut memory) = fuzzed_memory(call.rows, call.datatype.element()) {
        let _ = call.write_rows(model, &mut memory);
    }
    if let Ok(mut meta) = RequestMeta::new(std::time::Instant::now(), &hyper::HeaderMap::new()) {
        let _ = call.apply_parameters(&mut meta);
    }
}

/// Serves the bytes of a client on one connection: each request is read completely, and the replies
/// must be HTTP.
pub fn http_connection(bytes: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    // infallible: a runtime with timers only uses no system resources
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
    let serving = albacore_connections::serve_stream(server, is_http2, Arc::new(FuzzHandler));
    let (mut reading, mut writing) = tokio::io::split(client);
    let mut replies = Vec::new();
    let asking = async {
        let _ = writing.write_all(bytes).await;
        let _ = writing.shutdown().await;
    };
    let _ = tokio::join!(serving, asking, reading.read_to_end(&mut replies));
    replies
}

struct FuzzHandler;

impl Handler for FuzzHandler {
    type Body = ReplyBody;

    async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        mut active: ActiveRequest,
    ) -> HttpReply {
        active.set_answered();
        read(request, active.conn()).await
    }
}

/// Processes a request like the server, except for the engine.
async fn read(request: Request<Incoming>, conn: &ConnState) -> HttpReply {
    let (head, body) = request.into_parts();
    let _ = route::parse(&head.method, head.uri.path(), &PlatformRoutes::default());
    let _ = ContentCoding::for_reply(&head.headers);
    let read = async {
        let _ = RequestMeta::new(std::time::Instant::now(), &head.headers)?;
        let json_bytes = json_bytes(&head.headers)?;
        let bytes = request_body::read(body, &BodyBudget::default(), conn).await?;
        let bytes = request_body::decompress(&head.headers, bytes, conn)?;
        http_body(&bytes, json_bytes);
        Ok(())
    };
    match read.await {
        Ok(()) => reply::json(StatusCode::OK, &"read"),
        Err(error) => reply::error(&error),
    }
}
