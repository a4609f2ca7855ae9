//! Body of a request on its way to a replica.
//!
//! Bytes pass through as they come. The first ones are also kept, so that another replica can get the same body.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use crate::exchange::Flow;

/// Body as the client sends it, shared by the attempts to forward it.
#[derive(Debug)]
pub(crate) struct Upload {
    state: Mutex<UploadState>,
    flow: Arc<Flow>,
    bytes_in: Arc<AtomicU64>,
    limit: Option<u64>,
    kept_max: usize,
    hint: SizeHint,
}

#[derive(Debug)]
struct UploadState {
    source: Option<Incoming>,
    /// All data so far, unless it was too much.
    kept: Option<Vec<Bytes>>,
    kept_bytes: usize,
    trailers: Option<HeaderMap>,
    is_complete: bool,
    total: u64,
    fault: Option<UploadFault>,
    /// Number of the attempt that may read.
    attempt: u32,
}

/// Failure for which the client is responsible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UploadFault {
    TooLarge,
    Broken,
}

/// Error of a request's body; ends the request to the replica.
#[derive(Debug)]
pub(crate) struct UploadError;

impl fmt::Display for UploadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the body of the request ended early")
    }
}

impl std::error::Error for UploadError {}

impl Upload {
    pub(crate) fn new(
        source: Incoming,
        flow: Arc<Flow>,
        bytes_in: Arc<AtomicU64>,
        limit: Option<u64>,
        kept_max: usize,
    ) -> Arc<Upload> {
        let (hint, is_empty) = (source.size_hint(), source.is_end_stream());
        // A body that is known to be too long is not kept at all.
        let fits = hint.lower() <= kept_max as u64;
        let state = UploadState {
            source: Some(source),
            kept: fits.then(Vec::new),
            kept_bytes: 0,
            trailers: None,
            is_complete: is_empty,
            total: 0,
            fault: None,
            attempt: 0,
        };
        let state = Mutex::new(state);
        Arc::new(Upload { state, flow, bytes_in, limit, kept_max, hint })
    }

    fn lock(&self) -> MutexGuard<'_, UploadState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the body for the next attempt, from its beginning. That of the attempt before fails from now on. Returns
    /// `None` if the beginning is lost.
    pub(crate) fn attempt(self: &Arc<Self>) -> Option<RequestBody> {
        let mut state = self.lock();
        if state.kept.is_none() && state.total > 0 {
            return None;
        }
        state.attempt += 1;
        let attempt = state.attempt;
        drop(state);
        Some(RequestBody { upload: self.clone(), attempt, position: 0, trailers_sent: false })
    }

    /// Returns true if another attempt could get the whole body.
    pub(crate) fn is_repeatable(&self) -> bool {
        let state = self.lock();
        state.kept.is_some() || state.total == 0
    }

    pub(crate) fn fault(&self) -> Option<UploadFault> {
        self.lock().fault
    }

    /// Returns true if the client has sent everything.
    pub(crate) fn is_complete(&self) -> bool {
        self.lock().is_complete
    }

    /// Frees the kept bytes: after a response there are no more attempts.
    pub(crate) fn keep_no_more(&self) {
        // The last attempt may still read the kept bytes; the next piece from the client frees them.
        self.lock().kept_bytes = self.kept_max;
    }
}

/// Body of one attempt.
#[derive(Debug)]
pub(crate) struct RequestBody {
    upload: Arc<Upload>,
    attempt: u32,
    /// Number of kept pieces that were read.
    position: usize,
    trailers_sent: bool,
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = UploadError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        let this = self.get_mut();
        let upload = this.upload.clone();
        let mut state = upload.lock();
        if state.attempt != this.attempt || state.fault.is_some() {
            return Poll::Ready(Some(Err(UploadError)));
        }
        if let Some(piece) = state.kept.as_ref().and_then(|kept| kept.get(this.position)) {
            this.position += 1;
            upload.flow.on_progress();
            return Poll::Ready(Some(Ok(Frame::data(piece.clone()))));
        }
        if state.is_complete {
            let trailers = state.trailers.clone().filter(|_| !this.trailers_sent);
            this.trailers_sent = true;
            return Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))));
        }
        let Some(source) = &mut state.source else {
            return Poll::Ready(Some(Err(UploadError)));
        };
        let polled = Pin::new(source).poll_frame(context);
        upload.flow.set_awaits_client(polled.is_pending());
        let frame = ready!(polled);
        upload.flow.on_progress();
        Poll::Ready(this.take_frame(&upload, &mut state, frame))
    }

    fn is_end_stream(&self) -> bool {
        let state = self.upload.lock();
        let is_read = state.kept.as_ref().is_none_or(|kept| self.position == kept.len());
        let has_trailers = state.trailers.is_some() && !self.trailers_sent;
        state.is_complete && is_read && !has_trailers
    }

    fn size_hint(&self) -> SizeHint {
        self.upload.hint
    }
}

impl RequestBody {
    /// Passes on a frame of the client, and keeps it.
    fn take_frame(
        &mut self,
        upload: &Upload,
        state: &mut UploadState,
        frame: Option<Result<Frame<Bytes>, hyper::Error>>,
    ) -> Option<Result<Frame<Bytes>, UploadError>> {
        let frame = match frame {
            None => {
                state.is_complete = true;
                state.source = None;
                return None;
            }
            Some(Ok(frame)) => frame,
            Some(Err(_)) => {
                state.fault = Some(UploadFault::Broken);
                return Some(Err(UploadError));
            }
        };
        let data = match frame.into_data() {
            Ok(data) => data,
            Err(other) => {
                let trailers = other.into_trailers().ok()?;
                state.trailers = Some(trailers.clone());
                state.is_complete = true;
                self.trailers_sent = true;
                return Some(Ok(Frame::trailers(trailers)));
            }
        };
        state.total += data.len() as u64;
        upload.bytes_in.store(state.total, Ordering::Relaxed);
        if upload.limit.is_some_and(|limit| state.total > limit) {
            state.fault = Some(UploadFault::TooLarge);
            return Some(Err(UploadError));
        }
        state.kept_bytes = state.kept_bytes.saturating_add(data.len());
        if state.kept_bytes > upload.kept_max {
            state.kept = None;
        }
        if let Some(kept) = &mut state.kept {
            kept.push(data.clone());
            self.position += 1;
        }
        // The end of a body of known length is not read any more.
        if state.source.as_ref().is_some_and(Incoming::is_end_stream) {
            state.is_complete = true;
            state.source = None;
        }
        Some(Ok(Frame::data(data)))
    }
}
