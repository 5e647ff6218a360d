//! Bodies of replies: complete ones, with the trailers of gRPC, and the streamed ones of the health
//! and reflection services.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::HeaderMap;
use hyper::body::{Body, Frame, SizeHint};
use tonic::Status;

use albacore_connections::ActiveRequest;

pub(super) enum ReplyBody {
    Whole(Option<Bytes>, Option<HeaderMap>),
    /// A stream, and the request that it answers.
    Stream {
        body: tonic::body::Body,
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
    /// The reply of a tonic service.
    pub(super) fn stream(body: tonic::body::Body) -> Self {
        Self::Stream {
            body,
            _active: None,
        }
    }

    /// Counts the bytes of the reply to `active` until they are sent; returns `active` if too many
    /// bytes of replies are unsent.
    pub(super) fn track(self, mut active: ActiveRequest) -> Result<Self, ActiveRequest> {
        match self {
            Self::Whole(bytes, trailers) => match active.track(bytes.unwrap_or_default()) {
                Some(bytes) => Ok(Self::Whole(Some(bytes), trailers)),
                None => Err(active),
            },
            Self::Stream { body, .. } => {
                active.set_answered();
                Ok(Self::Stream {
                    body,
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
        match self.get_mut() {
            Self::Whole(bytes, trailers) => {
                let data = bytes
                    .take()
                    .filter(|bytes| !bytes.is_empty())
                    .map(Frame::data);
                let frame = data.or_else(|| trailers.take().map(Frame::trailers));
                Poll::Ready(frame.map(Ok))
            }
            Self::Stream { body, .. } => Pin::new(body).poll_frame(context),
        }
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
