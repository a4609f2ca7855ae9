//! Texts of all kinds: ids, addresses, names, patterns.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use crate::address::Address;
use crate::scheduler::Locality;
use crate::security::glob::glob_matches;
use crate::security::principal::ClaimedPrincipal;
use crate::security::text::{base64, hex};
use crate::security::{Quality, ServerPrincipal, replace_host};
use crate::types::{
    ApplicationId, ApplicationState, AttemptId, AttributeName, ContainerId, ExitStatus,
    FinalStatus, Location, NodeId, timestamp,
};

/// Parses a text as every kind of name, and its two halves as a pattern and a name to match.
pub fn names(bytes: &[u8]) {
    assert_eq!(hex(bytes).len(), 2 * bytes.len());
    assert_eq!(base64(bytes).len(), bytes.len().div_ceil(3) * 4);
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    round_trips::<ApplicationId>(text);
    round_trips::<AttemptId>(text);
    round_trips::<ContainerId>(text);
    round_trips::<NodeId>(text);
    round_trips::<Address>(text);
    round_trips::<ExitStatus>(text);
    round_trips::<ApplicationState>(text);
    round_trips::<FinalStatus>(text);
    round_trips::<Quality>(text);
    round_trips::<AttributeName>(text);
    round_trips::<Locality>(text);
    let _ = Address::parse(text, 8032);
    if let Ok(location) = text.parse::<Location>() {
        let _ = location.to_string();
    }
    if let Some(time) = timestamp::parse(text) {
        let written = timestamp::format(time);
        assert_eq!(timestamp::parse(&written), Some(time), "`{written}`");
    }
    let (pattern, name) = text.split_once('\n').unwrap_or((text, "yarn/rm.example.com"));
    let _ = glob_matches(pattern, name);
    let _ = replace_host(pattern, name).map_err(|error| error.to_string());
    let (primary, host) = name.split_once('/').unwrap_or((name, ""));
    let Ok(claim) = ClaimedPrincipal::new(primary, host) else {
        return;
    };
    for expected in
        [ServerPrincipal::Exact(pattern.to_owned()), ServerPrincipal::Pattern(pattern.to_owned())]
    {
        let _ = expected.needs_lookup(&claim, "rm.example.com");
        let target = expected.target(&claim, "rm.example.com", false);
        let _ = target.map_err(|error| error.to_string());
    }
}

/// Checks that a parsed value is displayed and parsed to the same value.
fn round_trips<T: FromStr + Display + Debug + PartialEq>(text: &str)
where
    T::Err: Display,
{
    match text.parse::<T>() {
        Ok(value) => {
            let written = value.to_string();
            let again = written.parse::<T>().ok();
            assert_eq!(again, Some(value), "`{written}`");
        }
        Err(error) => drop(error.to_string()),
    }
}
