//! Body of a response on its way to the client.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use crate::exchange::{Flow, Record, Upstream};
use crate::health::Verdict;
use crate::request_body::Upload;
use crate::server::ActiveRequest;

/// Body of the gateway's own responses, or of a replica's. The record of the request ends with it.
#[derive(Debug)]
pub(crate) struct ResponseBody {
    source: Source,
    /// Absent if the record belongs to a tunnel.
    record: Option<Record>,
    is_complete: bool,
    _active: ActiveRequest,
}

#[derive(Debug)]
enum Source {
    Local(Option<Bytes>),
    Replica { flow: Arc<Flow>, upload: Arc<Upload>, hint: SizeHint },
}

/// Error of a replica's body. The client's stream is reset, so that a broken response never looks complete.
#[derive(Debug)]
pub(crate) enum ResponseError {
    Broken(hyper::Error),
    /// No progress in time.
    Stalled,
}

impl fmt::Display for ResponseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken(error) => write!(f, "the replica broke off its response: {error}"),
            Self::Stalled => f.write_str("the response made no progress in time"),
        }
    }
}

impl std::error::Error for ResponseError {}

impl ResponseBody {
    pub(crate) fn local(body: Bytes, mut record: Record, active: ActiveRequest) -> ResponseBody {
        record.line.end = "complete";
        record.line.bytes_out = body.len() as u64;
        let source = Source::Local(Some(body).filter(|body| !body.is_empty()));
        ResponseBody { source, record: Some(record), is_complete: true, _active: active }
    }

    /// Empty body of a response after which the connection is a tunnel.
    pub(crate) fn switched(active: ActiveRequest) -> ResponseBody {
        let source = Source::Local(None);
        ResponseBody { source, record: None, is_complete: true, _active: active }
    }

    /// Passes on the response of a replica.
    pub(crate) fn relayed(
        flow: Arc<Flow>,
        upload: Arc<Upload>,
        upstream: Upstream,
        record: Record,
        active: ActiveRequest,
    ) -> ResponseBody {
        let hint = upstream.incoming.size_hint();
        let is_empty = upstream.incoming.is_end_stream();
        flow.start_response(upstream);
        let source = Source::Replica { flow: flow.clone(), upload: upload.clone(), hint };
        let record = Some(record);
        let mut body = ResponseBody { source, record, is_complete: false, _active: active };
        if is_empty {
            flow.with_upstream(None, |upstream, _| finish(upstream, &upload));
            body.complete();
        }
        body
    }

    fn complete(&mut self) {
        self.is_complete = true;
        self.set_end("complete");
    }

    fn set_end(&mut self, end: &'static str) {
        if let Some(record) = &mut self.record {
            record.line.end = end;
        }
    }
}

/// Ends a complete response and gives its connection back.
fn finish(upstream: &mut Option<Upstream>, upload: &Upload) {
    let Some(Upstream { connection, pool, lease, .. }) = upstream.take() else { return };
    // A connection whose request is incomplete cannot carry another one.
    if upload.is_complete() {
        pool.put_back(connection);
    }
    // After the connection: the next request may use it.
    drop(lease);
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = ResponseError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ResponseError>>> {
        let this = self.get_mut();
        let (flow, upload) = match &mut this.source {
            Source::Local(body) => {
                return Poll::Ready(body.take().map(|body| Ok(Frame::data(body))));
            }
            Source::Replica { flow, upload, .. } => (flow.clone(), upload.clone()),
        };
        let waker = context.waker().clone();
        flow.with_upstream(Some(&waker), |upstream, is_expired| {
            let Some(active) = upstream else {
                if is_expired {
                    this.set_end("stalled");
                }
                return Poll::Ready(is_expired.then_some(Err(ResponseError::Stalled)));
            };
            match Pin::new(&mut active.incoming).poll_frame(context) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(None) => {
                    this.complete();
                    finish(upstream, &upload);
                    Poll::Ready(None)
                }
                Poll::Ready(Some(Ok(frame))) => {
                    flow.on_progress();
                    if let (Some(record), Some(data)) = (&mut this.record, frame.data_ref()) {
                        record.line.bytes_out += data.len() as u64;
                    }
                    if active.incoming.is_end_stream() {
                        this.complete();
                        finish(upstream, &upload);
                    }
                    Poll::Ready(Some(Ok(frame)))
                }
                Poll::Ready(Some(Err(error))) => {
                    this.set_end("broken");
                    active.lease.judge(Verdict::Failure);
                    upstream.take();
                    Poll::Ready(Some(Err(ResponseError::Broken(error))))
                }
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Local(body) => body.is_none(),
            Source::Replica { .. } => self.is_complete,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Local(body) => {
                SizeHint::with_exact(body.as_ref().map_or(0, |body| body.len() as u64))
            }
            Source::Replica { hint, .. } => *hint,
        }
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        if let Source::Replica { flow, .. } = &self.source {
            // A client that has left cancels the request at the replica.
            let upstream = flow.with_upstream(None, |upstream, _| upstream.take());
            drop(upstream);
        }
    }
}
