//! What a worker says.

use serde::Deserialize;

use crate::Rejection;

/// Messages of errors are longer than anything else, and carry stack traces.
pub(super) const TEXT_MAX: usize = 64 << 10;

/// Who says that he is speaking.
#[derive(Debug, Deserialize, PartialEq, Eq)]
pub(super) struct Hello {
    pub rank: i64,
    /// Set by whoever runs the program; who it is, is known without it.
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

/// The length of the text at the front and its place, if all of it is there.
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

/// A greeting and a command, once both are there, and how long they were. Nothing happens between them, so they are one
/// message.
pub(super) fn read(bytes: &[u8]) -> Result<Option<(usize, Hello, XgboostCommand)>, Rejection> {
    let wrong = |_| Rejection::new("malformed tracker message");
    let Some(first) = text(bytes)? else {
        return Ok(None);
    };
    let hello: Hello = serde_json::from_slice(first).map_err(wrong)?;
    let Some(second) = text(&bytes[4 + first.len()..])? else {
        return Ok(None);
    };
    let fields: CommandFields = serde_json::from_slice(second).map_err(wrong)?;
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

/// A text as it is sent.
pub(super) fn framed(text: &str) -> Vec<u8> {
    let mut out = (text.len() as u32).to_le_bytes().to_vec();
    out.extend(text.as_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(first: &str, second: &str) -> Vec<u8> {
        [framed(first), framed(second)].concat()
    }

    #[test]
    fn a_greeting_and_a_command_are_one_message() {
        let bytes = both(
            r#"{"rank":0,"task_id":"3","world_size":-1}"#,
            r#"{"cmd":1,"error_port":41001,"port":41000}"#,
        );
        let (length, hello, command) = read(&bytes).unwrap().unwrap();
        assert_eq!((length, hello.rank, hello.world_size), (bytes.len(), 0, -1));
        let start = XgboostCommand::Start { port: 41_000, error_port: 41_001 };
        assert_eq!(command, start);
        for cut in 0..bytes.len() {
            assert_eq!(read(&bytes[..cut]), Ok(None), "{cut}");
        }
    }

    #[test]
    fn what_is_not_meant_is_refused() {
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
            assert!(read(&both(first, second)).is_err(), "{first} {second}");
        }
        assert!(read(&[255; 4]).is_err());
        assert!(read(&(TEXT_MAX as u32 + 1).to_le_bytes()).is_err());
    }
}
