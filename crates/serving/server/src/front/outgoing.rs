//! Bodies of replies: whole ones, with the trailers that gRPC wants, and those of the health and
//! reflection services, which come bit by bit.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::HeaderMap;
use hyper::body::{Body, Frame, SizeHint};
use tonic::Status;

use albacore_connections::ActiveRequest;

pub(super) enum Outgoing {
    Whole(Option<Bytes>, Option<HeaderMap>),
    /// Bit by bit, and the call that it answers.
    Stream {
        body: tonic::body::Body,
        _call: Option<ActiveRequest>,
    },
}

impl Default for Outgoing {
    fn default() -> Self {
        Self::Whole(None, None)
    }
}

impl From<Vec<u8>> for Outgoing {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Whole(Some(bytes.into()), None)
    }
}

impl Outgoing {
    /// What a service of tonic answers.
    pub(super) fn stream(body: tonic::body::Body) -> Self {
        Self::Stream { body, _call: None }
    }

    /// Counts it as the answer of `call`; gives the call back if there is no room for it.
    pub(super) fn counted(self, mut call: ActiveRequest) -> Result<Self, ActiveRequest> {
        match self {
            Self::Whole(bytes, trailers) => match call.send(bytes.unwrap_or_default()) {
                Some(bytes) => Ok(Self::Whole(Some(bytes), trailers)),
                None => Err(call),
            },
            Self::Stream { body, .. } => {
                call.answered();
                Ok(Self::Stream {
                    body,
                    _call: Some(call),
                })
            }
        }
    }
}

impl Body for Outgoing {
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
