//! One call to a tracking server. Whatever it answers, the answer is short, comes in time, and comes from there.

use super::trust;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    Method, Request, Uri,
    body::Bytes,
    client::conn::http1,
    header::{AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST, HeaderValue, LOCATION, USER_AGENT},
};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, pki_types::ServerName};
use serde_json::Value;
use std::{fmt, pin::Pin, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    task::JoinSet,
    time::timeout,
};
use tokio_rustls::TlsConnector;
use ydl_net::text::base64;
use ydl_os::reason;

/// Timeout of one call.
const CALL_MAX: Duration = Duration::from_secs(10);
/// The longest answer that is read.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Letters of what a server says of itself that are passed on.
const SAID_MAX: usize = 300;
/// A tracking server.
pub struct Server {
    uri: String,
    host: String,
    port: u16,
    /// Value of the `Host` header.
    authority: HeaderValue,
    /// Prefix of request paths.
    prefix: String,
    /// TLS configuration, or the reason why there is none; absent for HTTP.
    tls: Option<Result<Arc<ClientConfig>, String>>,
    authorization: Option<HeaderValue>,
}

/// Why a call brought nothing, by what can be done about it.
#[derive(Debug)]
pub enum Failure {
    /// It may be there later.
    Away(String),
    /// It is there, and something in it broke over what it was asked.
    Broke(u16),
    /// It understood, and will not.
    Refused { status: u16, code: String, what: String },
    /// Invalid response.
    Nonsense(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Away(why) => write!(f, "{why}"),
            Failure::Broke(status) => write!(f, "it answers with status {status}"),
            Failure::Refused { status, code, what } => {
                write!(f, "it refused with status {status} {code}: {what}")
            }
            Failure::Nonsense(what) => write!(f, "it talks nonsense: {what}"),
        }
    }
}

trait Duplex: AsyncRead + AsyncWrite + Send {}
impl<T: AsyncRead + AsyncWrite + Send> Duplex for T {}

impl Server {
    /// The server at that address, to whom the caller proves itself with a token, or as a user with a password.
    pub fn new(uri: &str, user: Option<&str>, secret: Option<&str>) -> Result<Self, String> {
        let parsed: Uri = uri.parse().map_err(|_| format!("`{uri}` is not an address"))?;
        let secure = match parsed.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(format!("`{uri}` begins with neither http:// nor https://")),
        };
        let authority = parsed.authority().filter(|it| !it.host().is_empty());
        let authority = authority.ok_or_else(|| format!("`{uri}` has no host"))?;
        if authority.as_str().contains('@') {
            return Err("its address has a password in it".to_owned());
        }
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        let port = match authority.as_str().rsplit_once(':') {
            Some((_, port)) if !port.ends_with(']') => port.parse().ok(),
            _ => Some(if secure { 443 } else { 80 }),
        };
        let port = port.ok_or_else(|| format!("`{uri}` has no proper port"))?;
        let authority = HeaderValue::from_str(authority.as_str());
        let authority = authority.map_err(|_| format!("`{uri}` has no proper host"))?;
        let said = match (user, secret) {
            (_, None) => None,
            (None, Some(token)) => Some(format!("Bearer {token}")),
            (Some(user), Some(password)) => {
                let pair = format!("{user}:{password}");
                Some(format!("Basic {}", base64(pair.as_bytes())))
            }
        };
        let authorization = match said {
            None => None,
            Some(said) => {
                let header = HeaderValue::from_str(&said);
                let mut header = header.map_err(|_| "its token cannot be sent".to_owned())?;
                header.set_sensitive(true);
                Some(header)
            }
        };
        Ok(Server {
            uri: uri.to_owned(),
            host,
            port,
            authority,
            prefix: parsed.path().trim_end_matches('/').to_owned(),
            tls: secure.then(trust::here),
            authorization,
        })
    }

    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// Asks once. An answer that is not JSON is nonsense, none at all is an empty object.
    pub async fn call(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        content_type: &'static str,
    ) -> Result<Value, Failure> {
        let called = timeout(CALL_MAX, self.exchange(method, path, body, content_type)).await;
        let (status, to, body) = match called {
            Ok(answered) => answered?,
            Err(_) => {
                let seconds = CALL_MAX.as_secs();
                return Err(Failure::Away(format!("it has not answered in {seconds} s")));
            }
        };
        let value: Option<Value> = match body.is_empty() {
            true => Some(Value::Object(serde_json::Map::new())),
            false => serde_json::from_slice(&body).ok(),
        };
        match status {
            200..=299 => value.ok_or_else(|| Failure::Nonsense("no JSON".to_owned())),
            300..=399 => {
                let to = to.map_or_else(String::new, |to| {
                    // What stands behind its question mark may open something.
                    let to = to.split('?').next().unwrap_or_default();
                    format!(" to `{}`", plain(to))
                });
                let what = format!("a redirection{to} (status {status}), which is not followed");
                Err(Failure::Nonsense(what))
            }
            // A proxy or a backend is unavailable.
            429 | 502..=504 => Err(Failure::Away(format!("it answers with status {status}"))),
            500..=599 => Err(Failure::Broke(status)),
            _ => {
                let said = |name: &str| Some(plain(value.as_ref()?.get(name)?.as_str()?));
                Err(Failure::Refused {
                    status,
                    code: said("error_code").unwrap_or_default(),
                    what: said("message").unwrap_or_default(),
                })
            }
        }
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        content_type: &'static str,
    ) -> Result<(u16, Option<String>, Bytes), Failure> {
        let away = |why: String| Failure::Away(why);
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.prefix))
            .header(HOST, self.authority.clone())
            .header(USER_AGENT, concat!("ydl/", env!("CARGO_PKG_VERSION")))
            .header(CONNECTION, "close")
            .header(CONTENT_TYPE, content_type);
        let request = match &self.authorization {
            Some(header) => request.header(AUTHORIZATION, header.clone()),
            None => request,
        };
        let request = request.body(Full::new(body));
        let request = request.map_err(|error| Failure::Nonsense(error.to_string()))?;
        let tls = self.tls.as_ref().map(|tls| tls.clone().map_err(away));
        let tls = tls.transpose()?;
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await;
        let stream = stream.map_err(|error| away(reason(&error)))?;
        let stream: Pin<Box<dyn Duplex>> = match tls {
            None => Box::pin(stream),
            Some(tls) => {
                let name = ServerName::try_from(self.host.clone());
                let name = name.map_err(|error| Failure::Nonsense(error.to_string()))?;
                let shaken = TlsConnector::from(tls).connect(name, stream).await;
                let untold = |error: std::io::Error| away(format!("TLS failed: {error}"));
                Box::pin(shaken.map_err(untold)?)
            }
        };
        let shaken = http1::Builder::new().handshake::<_, Full<Bytes>>(TokioIo::new(stream)).await;
        let (mut sender, connection) = shaken.map_err(|error| away(error.to_string()))?;
        // Whatever the server does then, its connection ends with this call.
        let mut driving = JoinSet::new();
        driving.spawn(connection);
        let answered = sender.send_request(request).await;
        let answered = answered.map_err(|error| away(error.to_string()))?;
        let status = answered.status().as_u16();
        let to = answered.headers().get(LOCATION);
        let to = to.and_then(|to| to.to_str().ok()).map(str::to_owned);
        let body = Limited::new(answered.into_body(), ANSWER_BYTES_MAX);
        let body = body.collect().await;
        let body = body.map_err(|error| Failure::Nonsense(error.to_string()))?;
        Ok((status, to, body.to_bytes()))
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server({})", self.uri)
    }
}

/// Sanitizes text of the server for a log.
fn plain(text: &str) -> String {
    let plain = text.chars().filter(|letter| !letter.is_control());
    plain.take(SAID_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    /// Returns the result of a call for a given response.
    async fn answered(answer: Vec<u8>) -> Result<Value, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let serving = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = vec![0; 4096];
            let length = stream.read(&mut head).await.unwrap();
            // A peer that has heard enough closes.
            let _ = stream.write_all(&answer).await;
            String::from_utf8_lossy(&head[..length]).into_owned()
        });
        let server = Server::new(&format!("http://{at}/base/"), Some("me"), Some("word")).unwrap();
        let called = server.call(Method::GET, "/api", Bytes::new(), "text/plain");
        let called = called.await;
        let asked = serving.await.unwrap();
        assert!(asked.starts_with("GET /base/api HTTP/1.1\r\n"), "{asked}");
        assert!(asked.contains("authorization: Basic bWU6d29yZA=="), "{asked}");
        called
    }

    fn with(status: &str, body: &str) -> Vec<u8> {
        let length = body.len();
        format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}").into_bytes()
    }

    #[tokio::test]
    async fn answers_are_told_apart_by_what_can_be_done() {
        let good = answered(with("200 OK", r#"{"a":1}"#)).await.unwrap();
        assert_eq!(good["a"], 1);
        let body = r#"{"error_code":"RESOURCE_DOES_NOT_EXIST","message":"no\nsuch"}"#;
        let refused = answered(with("404 Not Found", body)).await.unwrap_err();
        let sentence = "it refused with status 404 RESOURCE_DOES_NOT_EXIST: nosuch";
        assert_eq!(refused.to_string(), sentence);
        let away = answered(with("503 Busy", "<html>")).await.unwrap_err();
        assert!(matches!(away, Failure::Away(_)), "{away:?}");
        let broke = answered(with("500 Oh", "<html>")).await.unwrap_err();
        assert!(matches!(broke, Failure::Broke(500)), "{broke:?}");
    }

    #[tokio::test]
    async fn nonsense_is_nonsense_however_long_it_is() {
        let moved = b"HTTP/1.1 302 Found\r\nlocation: http://elsewhere/\r\n\r\n".to_vec();
        let failure = answered(moved.clone()).await.unwrap_err().to_string();
        assert!(failure.contains("a redirection to `http://elsewhere/`"), "{failure}");
        let endless = [
            b"HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n".to_vec(),
            vec![b'x'; ANSWER_BYTES_MAX + 1],
        ];
        for answer in [with("200 OK", "<html>"), moved, endless.concat()] {
            let failure = answered(answer).await.unwrap_err();
            assert!(matches!(failure, Failure::Nonsense(_)), "{failure:?}");
        }
        for answer in ["", "SSH-2.0-OpenSSH\r\n\r\n", "HTTP/1.1 200 OK\r\n"] {
            let failure = answered(answer.into()).await.unwrap_err();
            assert!(!matches!(failure, Failure::Refused { .. }), "{failure:?}");
        }
    }

    #[test]
    fn a_server_is_at_an_address_of_the_web() {
        for uri in [
            "mlruns",
            "sqlite:///x",
            "http://",
            "ftp://a/",
            "http://a b",
            "http://a:b",
            "http://a:99999",
            "http://:5000",
        ] {
            assert!(Server::new(uri, None, None).is_err(), "{uri}");
        }
        let server = Server::new("http://[::1]:5000/x/", None, Some("secret")).unwrap();
        let (host, port) = (server.host.as_str(), server.port);
        assert_eq!((host, port, server.prefix.as_str()), ("::1", 5000, "/x"));
        assert_eq!(server.authority, "[::1]:5000");
        let plain = Server::new("http://[::1]", None, None).unwrap();
        assert_eq!((plain.port, plain.authority.to_str().unwrap()), (80, "[::1]"));
        assert_eq!(format!("{server:?}"), "Server(http://[::1]:5000/x/)");
    }
}
