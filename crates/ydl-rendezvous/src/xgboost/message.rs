//! Parsing of messages.

use serde::Deserialize;

use crate::Rejection;

/// Maximum length of a text. Error messages are the longest: they contain stack traces.
pub(super) const TEXT_MAX: usize = 64 << 10;

/// First part of a message: the identity that the worker claims.
#[derive(Debug, Deserialize, PartialEq, Eq)]
pub(super) struct Hello {
    pub rank: i64,
    /// Set by the launcher of the program. Unused: the agent identifies the task.
    #[serde(rename = "task_id")]
    pub _task: String,
    pub world_size: i64,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum XgboostCommand {
    Start { port: u16, error_port: u16 },
    Shutdown,
    Error { message: String, code: i64 },
    Print { message: String },
}

#[derive(Deserialize)]
struct CommandFields {
    cmd: i64,
    port: Option<i64>,
    error_port: Option<i64>,
    msg: Option<String>,
    code: Option<i64>,
}

/// Returns the length-prefixed text at the front, if it is complete.
fn text(bytes: &[u8]) -> Result<Option<&[u8]>, Rejection> {
    let Some((length, rest)) = bytes.split_first_chunk() else {
        return Ok(None);
    };
    let length = i32::from_le_bytes(*length);
    match usize::try_from(length) {
        Ok(length) if length <= TEXT_MAX => Ok(rest.get(..length)),
        _ => Err(Rejection::new(format!("invalid string length {length}"))),
    }
}

/// Parses a hello and a command, which form one message, and returns them with their length.
pub(super) fn parse(bytes: &[u8]) -> Result<Option<(usize, Hello, XgboostCommand)>, Rejection> {
    let malformed = |_| Rejection::new("malformed tracker message");
    let Some(first) = text(bytes)? else {
        return Ok(None);
    };
    let hello: Hello = serde_json::from_slice(first).map_err(malformed)?;
    let Some(second) = text(&bytes[4 + first.len()..])? else {
        return Ok(None);
    };
    let fields: CommandFields = serde_json::from_slice(second).map_err(malformed)?;
    let length = 8 + first.len() + second.len();
    Ok(Some((length, hello, command(fields)?)))
}

fn command(fields: CommandFields) -> Result<XgboostCommand, Rejection> {
    let lacks = |what| Rejection::new(format!("tracker command without a valid {what}"));
    let message = fields.msg.ok_or_else(|| lacks("message"));
    match fields.cmd {
        1 => {
            let port = |port: Option<i64>| u16::try_from(port?).ok();
            let listens = port(fields.port).filter(|port| *port > 0);
            Ok(XgboostCommand::Start {
                port: listens.ok_or_else(|| lacks("port"))?,
                error_port: port(fields.error_port).ok_or_else(|| lacks("error port"))?,
            })
        }
        2 => Ok(XgboostCommand::Shutdown),
        3 => Ok(XgboostCommand::Error { message: message?, code: fields.code.unwrap_or(-1) }),
        4 => Ok(XgboostCommand::Print { message: message? }),
        other => Err(Rejection::new(format!("unknown tracker command `{other}`"))),
    }
}

/// Encodes a length-prefixed text.
pub(super) fn prefixed(text: &str) -> Vec<u8> {
    let mut out = (text.len() as u32).to_le_bytes().to_vec();
    out.extend(text.as_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(first: &str, second: &str) -> Vec<u8> {
        [prefixed(first), prefixed(second)].concat()
    }

    #[test]
    fn a_hello_and_a_command_are_one_message() {
        let bytes = message(
            r#"{"rank":0,"task_id":"3","world_size":-1}"#,
            r#"{"cmd":1,"error_port":41001,"port":41000}"#,
        );
        let (length, hello, command) = parse(&bytes).unwrap().unwrap();
        assert_eq!((length, hello.rank, hello.world_size), (bytes.len(), 0, -1));
        let start = XgboostCommand::Start { port: 41_000, error_port: 41_001 };
        assert_eq!(command, start);
        for cut in 0..bytes.len() {
            assert_eq!(parse(&bytes[..cut]), Ok(None), "{cut}");
        }
    }

    #[test]
    fn invalid_messages_are_rejected() {
        let hello = r#"{"rank":0,"task_id":"3","world_size":-1}"#;
        for (first, second) in [
            ("[]", "{}"),
            ("{}", "{}"),
            (hello, "{}"),
            (hello, r#"{"cmd":5}"#),
            (hello, r#"{"cmd":1,"port":0,"error_port":1}"#),
            (hello, r#"{"cmd":1,"port":70000,"error_port":1}"#),
            (hello, r#"{"cmd":1,"port":1,"error_port":-1}"#),
            (hello, r#"{"cmd":1}"#),
            (hello, r#"{"cmd":3}"#),
            (hello, "{\"cmd\":4,\"msg\":\"\u{1}\"}"),
        ] {
            assert!(parse(&message(first, second)).is_err(), "{first} {second}");
        }
        assert!(parse(&[255; 4]).is_err());
        assert!(parse(&(TEXT_MAX as u32 + 1).to_le_bytes()).is_err());
    }
}
