//! Reply bodies: complete ones, with gRPC trailers, and streams of infer calls and of the health
//! and reflection services.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::HeaderMap;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::HeaderValue;
use tokio::sync::watch;
use tonic::{Code, Status};

use albacore_connections::ActiveRequest;

pub(super) enum ReplyBody {
    Whole(Option<Bytes>, Option<HeaderMap>),
    /// A stream, the condition that ends it early, and the active request.
    Stream {
        body: tonic::body::Body,
        ends: Pin<Box<dyn Future<Output = ()> + Send>>,
        _active: Option<ActiveRequest>,
    },
}

impl Default for ReplyBody {
    fn default() -> Self {
        Self::Whole(None, None)
    }
}

impl From<Vec<u8>> for ReplyBody {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Whole(Some(bytes.into()), None)
    }
}

impl ReplyBody {
    /// The reply stream of a tonic service. Once `ends` is true, it ends as soon as no frame is
    /// ready.
    pub(super) fn stream(body: tonic::body::Body, mut ends: watch::Receiver<bool>) -> Self {
        let ends = Box::pin(async move {
            // Fails only if the service was dropped.
            let _ = ends.wait_for(|&ends| ends).await;
        });
        Self::Stream {
            body,
            ends,
            _active: None,
        }
    }

    /// The reply stream of an infer stream, which ends itself after the requests in flight.
    pub(super) fn infer_stream(body: tonic::body::Body) -> Self {
        Self::Stream {
            body,
            ends: Box::pin(std::future::pending()),
            _active: None,
        }
    }

    /// Tracks the reply to `active` until it is sent; returns `active` if there are too many unsent
    /// bytes of replies.
    pub(super) fn track(self, mut active: ActiveRequest) -> Result<Self, ActiveRequest> {
        match self {
            Self::Whole(bytes, trailers) => match active.track(bytes.unwrap_or_default()) {
                Some(bytes) => Ok(Self::Whole(Some(bytes), trailers)),
                None => Err(active),
            },
            Self::Stream { body, ends, .. } => {
                active.set_answered();
                Ok(Self::Stream {
                    body,
                    ends,
                    _active: Some(active),
                })
            }
        }
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        if let Self::Stream { body, ends, .. } = this {
            let frame = Pin::new(body).poll_frame(context);
            if frame.is_ready() || ends.as_mut().poll(context).is_pending() {
                return frame;
            }
            *this = Self::Whole(None, Some(shutdown_trailers()));
        }
        let Self::Whole(bytes, trailers) = this else {
            return Poll::Ready(None);
        };
        let data = bytes
            .take()
            .filter(|bytes| !bytes.is_empty())
            .map(Frame::data);
        let frame = data.or_else(|| trailers.take().map(Frame::trailers));
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes, trailers) => {
                bytes.as_ref().is_none_or(Bytes::is_empty) && trailers.is_none()
            }
            Self::Stream { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(_, Some(_)) => SizeHint::default(), // gRPC announces no length
            Self::Whole(bytes, None) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Self::Stream { body, .. } => body.size_hint(),
        }
    }
}

/// Trailers of a stream that is ended by the server.
pub(super) fn shutdown_trailers() -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(2);
    trailers.insert("grpc-status", HeaderValue::from(Code::Unavailable as i32));
    let message = HeaderValue::from_static("the server is shutting down");
    trailers.insert("grpc-message", message);
    trailers
}
