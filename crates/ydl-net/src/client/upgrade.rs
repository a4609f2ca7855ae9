//! Upgrade of a connection to a raw byte stream.

use std::time::Duration;

use hyper::header::{CONNECTION, HeaderValue, UPGRADE};
use hyper::upgrade::Upgraded;
use hyper::{Method, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, timeout_at};

use ydl_proto::version::{VERSION_HEADER, check_protocol};

use super::connection::read_body;
use super::error::ExchangeError;
use super::{CallError, Client, Payload, Response, header};
use crate::request;

/// Raw byte stream between two programs.
pub type UpgradedStream = TokioIo<Upgraded>;

impl Client {
    /// Requests an upgrade to a raw byte stream between two programs.
    pub async fn join(&self, path: &str, deadline: Duration) -> Result<UpgradedStream, CallError> {
        let end = Instant::now() + deadline;
        let mut request = self.request(&Method::POST, path, &Payload::Nothing)?;
        let headers = request.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static(request::UPGRADE));
        let (mut sender, connection) = self.dial(end).await?;
        // The connection ends with the response, unless the upgrade is accepted; then its owner decides.
        tokio::spawn(connection.with_upgrades());
        let limit = self.limits.body_bytes_max;
        let asking = async {
            let mut response = sender.send_request(request).await.map_err(ExchangeError::of)?;
            if response.status() == StatusCode::SWITCHING_PROTOCOLS
                && check_protocol(header(response.headers(), VERSION_HEADER)).is_ok()
            {
                let joined = hyper::upgrade::on(&mut response).await;
                return joined.map(Ok).map_err(ExchangeError::of);
            }
            let (parts, body) = response.into_parts();
            Ok(Err(Response {
                status: parts.status,
                headers: parts.headers,
                body: read_body(body, limit).await?,
            }))
        };
        let asked = timeout_at(end, asking).await;
        match asked.unwrap_or(Err(ExchangeError::Timeout)) {
            Ok(Ok(joined)) => Ok(TokioIo::new(joined)),
            Ok(Err(answer)) => match self.judge(answer) {
                Ok(answer) => {
                    let status = answer.status.as_u16();
                    let what = format!("the response: unexpected status `{status}`");
                    Err(CallError::Protocol { what })
                }
                Err(error) => Err(error),
            },
            Err(failure) => Err(self.error(failure)),
        }
    }
}
