//! Scripted server for tests: it accepts every client, answers calls as the test says, and can
//! disconnect. Tokens must have the password [`PASSWORD`].

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use md5::{Digest, Md5};
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use crate::proto::common::rpc_response_header_proto::RpcStatusProto;
use crate::proto::common::rpc_sasl_proto::{SaslAuth, SaslState};
use crate::proto::common::{
    RequestHeaderProto, RpcRequestHeaderProto, RpcResponseHeaderProto, RpcSaslProto,
};
use crate::rpc::{Address, Channel, Dial, DialedStream, Options, Protocol};
use crate::security::Identity;

/// Password of all tokens.
pub(crate) const PASSWORD: &[u8] = b"pw!";
const PASSWORD_BASE64: &str = "cHch";
const CHALLENGE: &str = "realm=\"default\",nonce=\"n\",qop=\"auth\",charset=utf-8,\
                         algorithm=md5-sess";

/// Reaction of the server to a call.
pub(crate) enum FakeReply {
    Message(Vec<u8>),
    /// Class of `org.apache.hadoop.yarn.exceptions`, and message.
    Exception(&'static str, String),
    /// Closes the connection without a response.
    Disconnect,
    /// Sends no response and continues.
    NoReply,
}

impl FakeReply {
    pub(crate) fn message(message: &impl Message) -> Self {
        Self::Message(message.encode_to_vec())
    }
}

/// Dialled address, and the identifier of the token used, in base64.
pub(crate) type Login = (String, Option<String>);

type Script = dyn FnMut(&str, &[u8]) -> FakeReply + Send;

/// All servers of a test: the same script answers on every address.
#[derive(Clone)]
pub(crate) struct Fake {
    script: Arc<Mutex<Box<Script>>>,
    seen: Arc<Mutex<Vec<Login>>>,
}

impl std::fmt::Debug for Fake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Fake")
    }
}

impl Fake {
    pub(crate) fn new(script: impl FnMut(&str, &[u8]) -> FakeReply + Send + 'static) -> Self {
        Self { script: Arc::new(Mutex::new(Box::new(script))), seen: Arc::default() }
    }

    pub(crate) fn seen(&self) -> Vec<Login> {
        self.seen.lock().expect("no poisoned lock").clone()
    }

    fn see(&self, address: &Address, user: Option<String>) {
        let mut seen = self.seen.lock().expect("no poisoned lock");
        seen.push((address.to_string(), user));
    }

    pub(crate) fn options() -> Options {
        Options { retry_timeout: Duration::from_secs(5), ..Options::default() }
    }

    pub(crate) fn channel(&self, protocol: Protocol) -> Channel {
        let address = vec![Address::new("fake", 1)];
        let identity = Identity::simple("tester");
        Channel::over(Arc::new(self.clone()), protocol, address, identity, Self::options())
            .expect("randomness")
    }

    async fn serve(self, address: Address, mut stream: DuplexStream) -> io::Result<()> {
        let mut greeting = [0; 7];
        stream.read_exact(&mut greeting).await?;
        if greeting[6] == 0 {
            self.see(&address, None);
        }
        loop {
            let length = stream.read_u32().await?;
            let mut frame = vec![0; length as usize];
            stream.read_exact(&mut frame).await?;
            let mut rest = &frame[..];
            let header = RpcRequestHeaderProto::decode_length_delimited(&mut rest)?;
            match header.call_id {
                -33 => {
                    let message = RpcSaslProto::decode_length_delimited(&mut rest)?;
                    let answer = match message.token {
                        None => negotiation(),
                        Some(token) => {
                            let (user, answer) = login(&String::from_utf8_lossy(&token));
                            self.see(&address, Some(user));
                            answer
                        }
                    };
                    let call = header.call_id.cast_unsigned();
                    respond(&mut stream, call, FakeReply::message(&answer)).await?;
                }
                call if call < 0 => {}
                call => {
                    let request = RequestHeaderProto::decode_length_delimited(&mut rest)?;
                    let length = prost::decode_length_delimiter(&mut rest)?;
                    assert_eq!(length, rest.len(), "one message, and nothing after it");
                    let reply = {
                        let mut script = self.script.lock().expect("no poisoned lock");
                        script(&request.method_name, rest)
                    };
                    match reply {
                        FakeReply::Disconnect => return Ok(()),
                        FakeReply::NoReply => {}
                        reply => respond(&mut stream, call.cast_unsigned(), reply).await?,
                    }
                }
            }
        }
    }
}

fn negotiation() -> RpcSaslProto {
    RpcSaslProto {
        state: SaslState::Negotiate.into(),
        auths: vec![SaslAuth {
            method: "TOKEN".into(),
            mechanism: "DIGEST-MD5".into(),
            protocol: Some(String::new()),
            server_id: Some("default".into()),
            challenge: Some(CHALLENGE.into()),
        }],
        ..RpcSaslProto::default()
    }
}

/// Returns the user that logs in, and the server's proof that it knows the password.
fn login(response: &str) -> (String, RpcSaslProto) {
    let value = |name: &str| {
        let (_, rest) = response.split_once(&format!("{name}=\"")).expect("a value");
        rest.split('"').next().expect("a value").to_owned()
    };
    let (user, cnonce) = (value("username"), value("cnonce"));
    let secret = Md5::digest(format!("{user}:default:{PASSWORD_BASE64}"));
    let session = Md5::new().chain_update(secret).chain_update(format!(":n:{cnonce}")).finalize();
    let uri = hex(&Md5::digest(":/default"));
    let proof = format!("{}:n:00000001:{cnonce}:auth:{uri}", hex(&session));
    let proof = hex(&Md5::digest(proof));
    let message = RpcSaslProto {
        state: SaslState::Success.into(),
        token: Some(format!("rspauth={proof}").into_bytes()),
        ..RpcSaslProto::default()
    };
    (user, message)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn respond(stream: &mut DuplexStream, call: u32, reply: FakeReply) -> io::Result<()> {
    let mut header = RpcResponseHeaderProto {
        call_id: call,
        status: RpcStatusProto::Success.into(),
        ..RpcResponseHeaderProto::default()
    };
    let mut bytes = Vec::new();
    match reply {
        FakeReply::Message(body) => {
            header.encode_length_delimited(&mut bytes)?;
            prost::encode_length_delimiter(body.len(), &mut bytes)?;
            bytes.extend(body);
        }
        FakeReply::Exception(class, message) => {
            header.status = RpcStatusProto::Error.into();
            header.exception_class_name =
                Some(format!("org.apache.hadoop.yarn.exceptions.{class}"));
            header.error_msg = Some(message);
            header.encode_length_delimited(&mut bytes)?;
        }
        FakeReply::Disconnect | FakeReply::NoReply => unreachable!("nothing is sent"),
    }
    let length = u32::try_from(bytes.len()).expect("tests are short");
    stream.write_u32(length).await?;
    stream.write_all(&bytes).await
}

impl Dial for Fake {
    fn dial<'a>(
        &'a self,
        address: &'a Address,
    ) -> Pin<Box<dyn Future<Output = io::Result<DialedStream>> + Send + 'a>> {
        let (near, far) = tokio::io::duplex(1 << 16);
        tokio::spawn(self.clone().serve(address.clone(), far));
        let dialed = DialedStream { stream: Box::new(near), peer: None };
        Box::pin(async { Ok(dialed) })
    }
}
