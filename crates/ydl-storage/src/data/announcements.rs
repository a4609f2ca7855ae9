//! Names that tasks write to a shared destination: two tasks must not write the same name, and their files are not
//! known before.
//!
//! Each writes down its names in the job's own directory before it sends them, and then looks at those of the others: of
//! two with one name at least the later one sees the other, and lets it be.

use super::{
    error::DataError,
    reservation::{ReservationLog, name},
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tokio::time::Instant;

/// Lists of others that are read: those of more tasks than share a destination. Beyond it is looked at as far as that.
const LISTS_MAX: usize = 4096;
/// Maximum number of names that one task announces.
const NAMES_MAX: usize = 100_000;

/// Names that one task uploads to a destination, each with a fingerprint of its content if known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnnouncedNames {
    /// Task that announced them, for messages.
    pub owner: String,
    /// By name.
    pub files: BTreeMap<String, Option<String>>,
}

impl ReservationLog {
    /// Writes down the names of one who sends to `to`. Returns those that others have written down with other content, and
    /// who that was.
    pub async fn announce(
        &self,
        to: &str,
        names: &AnnouncedNames,
        deadline: Instant,
    ) -> Result<BTreeMap<String, String>, DataError> {
        let begin = format!("names-{}-", name(to));
        let own = format!("{begin}{}", name(&names.owner));
        let mut written = names.clone();
        while written.files.len() > NAMES_MAX {
            written.files.pop_last();
        }
        let bytes = serde_json::to_vec(&written)
            .map_err(|error| DataError::permanent(format!("cannot write JSON: {error}")))?;
        self.set_page(&own, bytes, deadline).await?;
        let mut taken = BTreeMap::new();
        let pages = self.pages(&begin, deadline).await?;
        for page in pages.iter().filter(|page| **page != own).take(LISTS_MAX) {
            let bytes = self.page(page, deadline).await?.unwrap_or_default();
            let Ok(theirs) = serde_json::from_slice::<AnnouncedNames>(&bytes) else {
                continue;
            };
            for (name, content) in &names.files {
                let same = |other: &Option<String>| other.is_some() && other == content;
                if theirs.files.get(name).is_some_and(|other| !same(other)) {
                    taken.insert(name.clone(), theirs.owner.clone());
                }
            }
        }
        Ok(taken)
    }

    /// Notes that a task had nothing of an output, or that it had.
    pub async fn note_absent(
        &self,
        output: &str,
        who: &str,
        absent: bool,
        deadline: Instant,
    ) -> Result<(), DataError> {
        let page = format!("absent-{}-{}", name(output), name(who));
        match absent {
            true => self.set_page(&page, Vec::new(), deadline).await,
            false => self.remove_page(&page, deadline).await,
        }
    }

    /// Number of tasks without files of each output, in the order of `outputs`.
    pub async fn absent(
        &self,
        outputs: &[String],
        deadline: Instant,
    ) -> Result<Vec<usize>, DataError> {
        let pages = self.pages("absent-", deadline).await?;
        let count = |output: &String| {
            let begin = format!("absent-{}-", name(output));
            pages.iter().filter(|page| page.starts_with(&begin)).count()
        };
        Ok(outputs.iter().map(count).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn of_two_that_send_one_name_the_later_one_sees_the_other() {
        let dir = tempfile::tempdir().unwrap();
        let book = ReservationLog::local(&dir.path().join("reservations"));
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let runtime = runtime.unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        let announce = |who: &str, to: &str, files: &[(&str, Option<&str>)]| {
            let each = files.iter();
            let each = each.map(|(name, content)| (name.to_string(), content.map(str::to_owned)));
            let names = AnnouncedNames { owner: who.into(), files: each.collect() };
            let taken = runtime.block_on(book.announce(to, &names, deadline));
            taken.unwrap().into_iter().collect::<Vec<_>>()
        };
        let large = ("model", None);
        assert_eq!(announce("w:0", "out", &[large, ("config", Some("7"))]), []);
        let own = ("own", None);
        let again = announce("w:1", "out", &[large, own, ("config", Some("7"))]);
        assert_eq!(again, [("model".to_owned(), "w:0".to_owned())]);
        let other = announce("w:2", "out", &[("config", Some("8"))]);
        assert_eq!(other[0].0, "config");
        assert_eq!(announce("w:1", "elsewhere", &[large]), []);
        // What a task sends again is its own.
        assert_eq!(announce("w:0", "elsewhere", &[("x", None)]), []);
        assert_eq!(announce("w:0", "elsewhere", &[("x", None)]), []);
        // However many share it.
        let many: Vec<_> = (0..300).map(|n| format!("own-{n}")).collect();
        for name in &many {
            announce(name, "many", &[(name, None)]);
        }
        let all: Vec<_> = many.iter().map(|name| (name.as_str(), None)).collect();
        assert_eq!(announce("one:0", "many", &all).len(), many.len());
        let absent = |output: &str| {
            let outputs = [output.to_owned()];
            let counted = book.absent(&outputs, deadline);
            runtime.block_on(counted).unwrap()[0]
        };
        for who in ["w:0", "w:1"] {
            runtime.block_on(book.note_absent("m/", who, true, deadline)).unwrap();
        }
        assert_eq!((absent("m/"), absent("n/")), (2, 0));
        runtime.block_on(book.note_absent("m/", "w:1", false, deadline)).unwrap();
        assert_eq!(absent("m/"), 1);
    }
}
