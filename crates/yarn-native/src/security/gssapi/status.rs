//! Conversion of GSSAPI status codes to errors.

use std::ffi::c_int;
use std::sync::Arc;

use crate::security::error::SecurityError;
use crate::security::gssapi::library::Functions;
use crate::security::gssapi::owned::{self, OutputBuffer};

/// `GSS_C_GSS_CODE`, `GSS_C_MECH_CODE`: the kind of a status code.
const GSS_CODE: c_int = 1;
const MECH_CODE: c_int = 2;
/// Routine and calling errors are in the upper half of a major status.
const ERRORS: u32 = 0xffff_0000;
/// `GSS_S_NO_CRED`, `GSS_S_CREDENTIALS_EXPIRED`, `GSS_S_BAD_MIC` (also `GSS_S_BAD_SIG`),
/// `GSS_S_DEFECTIVE_TOKEN`.
const NO_CREDENTIALS: u32 = 7 << 16;
const EXPIRED: u32 = 11 << 16;
const BAD_MIC: u32 = 6 << 16;
const DEFECTIVE_TOKEN: u32 = 9 << 16;
/// Base of Kerberos' own error codes.
const KERBEROS: i32 = -1_765_328_384;
/// Maximum number of messages joined for one status.
const MESSAGES_MAX: usize = 8;

/// Returns an error if the status indicates one.
pub(super) fn check(
    gss: &Arc<Functions>,
    major: u32,
    minor: u32,
    during: &'static str,
) -> Result<(), SecurityError> {
    if major & ERRORS == 0 {
        return Ok(());
    }
    // The library keeps detailed messages per thread until its next failure.
    let kerberos = status_text(gss, minor, MECH_CODE);
    let reason = match kerberos.as_str() {
        // Kerberos has no message, which the library reports as success.
        "" | "Success" => status_text(gss, major, GSS_CODE),
        _ => kerberos,
    };
    Err(classify(major, minor, during, reason))
}

/// Classifies an error by its remedy.
fn classify(major: u32, minor: u32, during: &'static str, reason: String) -> SecurityError {
    // The signed code is passed as an unsigned number.
    match minor.cast_signed().wrapping_sub(KERBEROS) {
        // Expired ticket or principal.
        32 => SecurityError::TicketExpired { reason },
        37 | 148 => SecurityError::ClockSkew { reason },
        // Client or server not in the database, or an unknown realm.
        6 | 7 | 43 | 68 | 149 | 154 | 185 | 217 | 224 | 243 => SecurityError::WrongRealm { reason },
        156 | 220 => SecurityError::KdcUnreachable { reason },
        // Missing, empty or unreadable cache.
        141 | 193..=195 | 199 | 203 => SecurityError::NoTicket { reason },
        _ if major & ERRORS == EXPIRED => SecurityError::TicketExpired { reason },
        _ if major & ERRORS == NO_CREDENTIALS => SecurityError::NoTicket { reason },
        _ if major & ERRORS == BAD_MIC => SecurityError::Tampered { reason: "MAC mismatch" },
        _ if major & ERRORS == DEFECTIVE_TOKEN => {
            SecurityError::Tampered { reason: "not a Kerberos message" }
        }
        _ => SecurityError::Kerberos { during, reason },
    }
}

fn status_text(gss: &Arc<Functions>, status: u32, kind: c_int) -> String {
    let mut messages = Vec::new();
    let mut more = 0;
    while status != 0 && messages.len() < MESSAGES_MAX {
        let mut text = OutputBuffer::new(gss);
        // SAFETY: all pointers are to locals that outlive the call.
        let major = unsafe {
            let mechanism = owned::kerberos();
            (gss.display_status)(&mut 0, status, kind, &mechanism, &mut more, &mut text.buffer)
        };
        if major & ERRORS != 0 {
            break;
        }
        messages.push(String::from_utf8_lossy(&text.to_vec()).into_owned());
        if more == 0 {
            break;
        }
    }
    messages.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_name(major: u32, code: i32, expected: &str) {
        let minor = KERBEROS.wrapping_add(code).cast_unsigned();
        let error = classify(major, minor, "the handshake", "the message".into());
        let debug = format!("{error:?}");
        assert!(debug.starts_with(expected), "{code}: {debug}");
    }

    #[test]
    fn kerberos_codes_are_classified() {
        let failure = 13 << 16;
        check_name(failure, 32, "TicketExpired");
        check_name(failure, 37, "ClockSkew");
        check_name(failure, 7, "WrongRealm");
        check_name(failure, 154, "WrongRealm");
        check_name(failure, 156, "KdcUnreachable");
        check_name(NO_CREDENTIALS, 195, "NoTicket");
        check_name(NO_CREDENTIALS, 100, "NoTicket");
        check_name(EXPIRED, 100, "TicketExpired");
        check_name(failure, 100, "Kerberos");
    }
}
