//! Operating system errors as part of a message.

use std::io;

/// Formats `error` to follow a colon: lower case, without its number.
pub fn reason(error: &io::Error) -> String {
    worded(error.to_string())
}

/// Same for an error that is already formatted.
pub fn worded(mut text: String) -> String {
    if let Some(at) = text.rfind(" (os error ") {
        text.truncate(at);
    }
    // Words in capitals (`RST`) are kept.
    let mut letters = text.chars();
    match (letters.next(), letters.next()) {
        (Some(first), Some(second)) if first.is_uppercase() && second.is_lowercase() => {
            text.replace_range(..first.len_utf8(), &first.to_lowercase().to_string());
        }
        _ => {}
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_lower_case_and_has_no_number() {
        assert_eq!(reason(&io::Error::from_raw_os_error(28)), "no space left on device");
        assert_eq!(reason(&io::Error::other("RST seen")), "RST seen");
    }
}
