//! Transactions: conditions, and steps that are applied together or not at all.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use ydl_proto::kv::{Blob, Entry};
use ydl_proto::transaction::{
    Condition, KeyRange, Operator, Step, Transaction, TransactionOutcome,
};

use super::error::{check_key, check_prefix};
use super::{
    KEYS_MAX, KvError, KvStore, STEPS_MAX, STORE_BYTES_MAX, TRANSACTION_BYTES_MAX,
    TRANSACTION_ENTRIES_MAX, VALUE_BYTES_MAX, WaiterId, entry,
};

impl KvStore {
    pub(super) fn transact(
        &mut self,
        transaction: Transaction,
        affected: &mut BTreeSet<WaiterId>,
    ) -> Result<TransactionOutcome, KvError> {
        let Transaction { conditions, on_success, on_failure } = transaction;
        let count = conditions.len() + on_success.len() + on_failure.len();
        if count > STEPS_MAX {
            return Err(KvError::TooManySteps { count });
        }
        for condition in &conditions {
            check_key(key_of(condition))?;
        }
        let succeeded = conditions.iter().all(|condition| self.is_met(condition));
        let steps = if succeeded { on_success } else { on_failure };
        self.check_steps(&steps)?;
        let mut results = Vec::new();
        for step in steps {
            results.push(self.apply_step(step, affected)?);
        }
        Ok(TransactionOutcome { succeeded, revision: self.revision, results })
    }

    fn is_met(&self, condition: &Condition) -> bool {
        let found = self.slots.get(key_of(condition).as_str());
        match condition {
            Condition::Exists { .. } => found.is_some(),
            Condition::Missing { .. } => found.is_none(),
            Condition::Value { operator, value, .. } => {
                let ordering = found.map(|slot| slot.value.cmp(value));
                match operator {
                    Operator::Equal => ordering.is_some_and(|it| it.is_eq()),
                    Operator::NotEqual => ordering.is_none_or(|it| it.is_ne()),
                    Operator::Less => ordering.is_some_and(|it| it.is_lt()),
                    Operator::LessOrEqual => ordering.is_some_and(|it| it.is_le()),
                    Operator::Greater => ordering.is_some_and(|it| it.is_gt()),
                    Operator::GreaterOrEqual => ordering.is_some_and(|it| it.is_ge()),
                }
            }
            Condition::Owner { equal, owner, .. } => match found {
                Some(slot) => (slot.owner.as_deref().unwrap_or_default() == owner) == *equal,
                None => !*equal,
            },
        }
    }

    /// Checks that every step can be applied after those before it.
    fn check_steps(&self, steps: &[Step]) -> Result<(), KvError> {
        // Sizes of keys with their values after the steps so far; none for a deleted key.
        let mut changed: BTreeMap<String, Option<usize>> = BTreeMap::new();
        let (mut keys, mut bytes) = (self.slots.len(), self.bytes);
        // Entries examined and bytes returned so far.
        let (mut examined, mut returned) = (0, 0);
        for step in steps {
            match step {
                Step::Read { keys: range, keys_only } | Step::Delete { keys: range, keys_only } => {
                    check_range(range)?;
                    let stored = between(&self.slots, range).map(|(key, _)| key.to_string());
                    let new = between(&changed, range).map(|(key, _)| key.clone());
                    let all: BTreeSet<String> = stored.chain(new).collect();
                    examined += all.len();
                    if examined > TRANSACTION_ENTRIES_MAX {
                        return Err(KvError::TooManyEntries);
                    }
                    for key in all {
                        let Some(size) = self.size(&key, &changed) else {
                            continue;
                        };
                        returned += if *keys_only { key.len() } else { size };
                        if matches!(step, Step::Delete { .. }) {
                            (keys, bytes) = (keys - 1, bytes - size);
                            changed.insert(key, None);
                        }
                    }
                }
                Step::Put { key, value, .. } => {
                    check_key(key)?;
                    let old = self.size(key, &changed);
                    let size = match (value, old) {
                        (Some(value), _) if value.len() > VALUE_BYTES_MAX => {
                            let (key, length) = (key.clone(), value.len());
                            return Err(KvError::ValueTooLong { key, length });
                        }
                        (Some(value), _) => key.len() + value.len(),
                        (None, Some(size)) => size,
                        (None, None) => return Err(KvError::NoValue { key: key.clone() }),
                    };
                    keys += usize::from(old.is_none());
                    bytes = bytes - old.unwrap_or(0) + size;
                    returned += old.unwrap_or(0);
                    changed.insert(key.clone(), Some(size));
                }
            }
            if returned > TRANSACTION_BYTES_MAX {
                return Err(KvError::ResultTooLarge);
            }
            if keys > KEYS_MAX {
                return Err(KvError::TooManyKeys);
            }
            if bytes > STORE_BYTES_MAX {
                return Err(KvError::Full);
            }
        }
        Ok(())
    }

    /// Returns the size of a key with its value, after these changes.
    fn size(&self, key: &str, changed: &BTreeMap<String, Option<usize>>) -> Option<usize> {
        match changed.get(key) {
            Some(size) => *size,
            None => self.slots.get(key).map(|slot| key.len() + slot.value.len()),
        }
    }

    fn apply_step(
        &mut self,
        step: Step,
        affected: &mut BTreeSet<WaiterId>,
    ) -> Result<Vec<Entry>, KvError> {
        match step {
            Step::Read { keys, keys_only } => Ok(self.entries_between(&keys, keys_only)),
            Step::Delete { keys, keys_only } => {
                let entries = self.entries_between(&keys, keys_only);
                let deleted = entries.iter().map(|entry| entry.key.as_str().into()).collect();
                self.delete(deleted, affected);
                Ok(entries)
            }
            Step::Put { key, value, owner } => {
                let old = self.entry(&key);
                let (old_value, old_owner) = match &old {
                    Some(entry) => (Some(entry.value.clone()), entry.owner.clone()),
                    None => (None, None),
                };
                let owner =
                    owner.map_or(old_owner, |owner| Some(owner).filter(|it| !it.is_empty()));
                let Some(value) = value.or(old_value) else {
                    return Err(KvError::NoValue { key });
                };
                self.put(&key, value, owner, None)?;
                self.waiters.on_changed(&key, affected);
                self.waiters.on_put(&key, affected);
                Ok(old.into_iter().collect())
            }
        }
    }

    fn entries_between(&self, range: &KeyRange, keys_only: bool) -> Vec<Entry> {
        let entries = between(&self.slots, range).map(|(key, slot)| match keys_only {
            true => Entry { value: Blob::from(""), ..entry(key, slot) },
            false => entry(key, slot),
        });
        entries.collect()
    }
}

fn between<'a, K: Ord + Borrow<str>, V>(
    map: &'a BTreeMap<K, V>,
    range: &'a KeyRange,
) -> impl Iterator<Item = (&'a K, &'a V)> {
    let start = match range {
        KeyRange::Key(key) | KeyRange::Prefix(key) => Bound::Included(key.as_str()),
        KeyRange::Between { start: Some(start), .. } => Bound::Included(start.as_str()),
        KeyRange::Between { start: None, .. } => Bound::Unbounded,
    };
    let found = map.range::<str, _>((start, Bound::Unbounded));
    found.take_while(move |(key, _)| includes(range, (*key).borrow()))
}

fn key_of(condition: &Condition) -> &String {
    match condition {
        Condition::Exists { key }
        | Condition::Missing { key }
        | Condition::Value { key, .. }
        | Condition::Owner { key, .. } => key,
    }
}

fn includes(range: &KeyRange, key: &str) -> bool {
    match range {
        KeyRange::Key(one) => key == one,
        KeyRange::Prefix(prefix) => key.starts_with(prefix.as_str()),
        KeyRange::Between { start, end } => {
            start.as_deref().is_none_or(|start| key >= start)
                && end.as_deref().is_none_or(|end| key < end)
        }
    }
}

fn check_range(range: &KeyRange) -> Result<(), KvError> {
    match range {
        KeyRange::Key(key) => check_key(key),
        KeyRange::Prefix(prefix) => check_prefix(prefix),
        KeyRange::Between { start, end } => {
            [start, end].into_iter().flatten().try_for_each(|bound| check_prefix(bound))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Done, Op};
    use super::*;

    fn run(store: &mut KvStore, json: &str) -> Result<String, KvError> {
        let transaction: Transaction = serde_json::from_str(json).expect("a transaction");
        match store.apply(Op::Transact(transaction))?.done {
            Done::Transacted(TransactionOutcome { succeeded, results, .. }) => {
                let result = |entries: Vec<Entry>| {
                    let each = entries.into_iter().map(|it| {
                        let value = String::from_utf8_lossy(&it.value.0).into_owned();
                        let owner = it.owner.map_or(String::new(), |owner| format!("@{owner}"));
                        format!("{}={value}{owner}", it.key)
                    });
                    each.collect::<Vec<_>>().join(",")
                };
                let results: Vec<_> = results.into_iter().map(result).collect();
                Ok(format!("{succeeded}: {}", results.join("; ")))
            }
            other => panic!("{other:?}"),
        }
    }

    fn filled() -> KvStore {
        let mut store = KvStore::new();
        let puts = r#"{"then": [
            {"put": {"key": "a/1", "value": {"text": "one"}}},
            {"put": {"key": "a/2", "value": {"text": "two"}, "owner": "c1"}},
            {"put": {"key": "b", "value": {"text": "bee"}}}]}"#;
        assert_eq!(run(&mut store, puts), Ok("true: ; ; ".into()));
        store
    }

    #[test]
    fn conditions_select_the_steps() {
        let mut store = filled();
        for (condition, met) in [
            (r#"{"exists": {"key": "b"}}"#, true),
            (r#"{"missing": {"key": "b"}}"#, false),
            (r#"{"value": {"key": "b", "operator": "==", "value": {"text": "bee"}}}"#, true),
            (r#"{"value": {"key": "b", "operator": "<", "value": {"text": "bef"}}}"#, true),
            (r#"{"value": {"key": "b", "operator": ">=", "value": {"text": "bef"}}}"#, false),
            (r#"{"value": {"key": "c", "operator": "!=", "value": {"text": "x"}}}"#, true),
            (r#"{"value": {"key": "c", "operator": "<=", "value": {"text": "x"}}}"#, false),
            (r#"{"owner": {"key": "a/2", "equal": true, "owner": "c1"}}"#, true),
            (r#"{"owner": {"key": "a/2", "equal": false, "owner": ""}}"#, true),
            (r#"{"owner": {"key": "a/1", "equal": true, "owner": ""}}"#, true),
            (r#"{"owner": {"key": "c", "equal": true, "owner": ""}}"#, false),
        ] {
            let json = format!(
                r#"{{"if": [{condition}], "then": [{{"read": {{"keys": {{"key": "b"}}}}}}],
                    "else": [{{"read": {{"keys": {{"key": "a/1"}}}}}}]}}"#
            );
            let read = if met { "b=bee" } else { "a/1=one" };
            assert_eq!(run(&mut store, &json), Ok(format!("{met}: {read}")), "{condition}");
        }
    }

    #[test]
    fn steps_see_those_before_them() {
        let json = r#"{"then": [
            {"delete": {"keys": {"prefix": "a/"}}},
            {"put": {"key": "a/3", "value": {"text": "three"}}},
            {"put": {"key": "a/3", "owner": "c2"}},
            {"read": {"keys": {"between": {"start": "a/", "end": "b"}}}},
            {"read": {"keys": {"between": {}}, "keys_only": true}}]}"#;
        let expected = "true: a/1=one,a/2=two@c1; ; a/3=three; a/3=three@c2; a/3=@c2,b=";
        assert_eq!(run(&mut filled(), json), Ok(expected.into()));
    }

    #[test]
    fn an_owned_key_is_deleted_with_its_container() {
        let mut store = filled();
        store.apply(Op::OwnerGone { container: "c1".into() }).expect("it cannot fail");
        assert!(store.entry("a/2").is_none() && store.entry("a/1").is_some());
    }

    #[test]
    fn a_transaction_is_applied_as_a_whole_or_not_at_all() {
        let mut store = filled();
        let revision = store.revision();
        let json = r#"{"then": [
            {"delete": {"keys": {"key": "b"}}},
            {"put": {"key": "b", "owner": "c1"}}]}"#;
        assert_eq!(run(&mut store, json), Err(KvError::NoValue { key: "b".into() }));
        assert_eq!(store.revision(), revision);
        assert!(store.entry("b").is_some());
        let large = "x".repeat(VALUE_BYTES_MAX + 1);
        let json =
            format!(r#"{{"then": [{{"put": {{"key": "b", "value": {{"text": "{large}"}}}}}}]}}"#);
        assert!(matches!(run(&mut store, &json), Err(KvError::ValueTooLong { .. })));
    }

    /// Returns a transaction of so many equal steps.
    fn repeated(step: &str, count: usize) -> String {
        format!(r#"{{"then": [{}]}}"#, vec![step; count].join(","))
    }

    #[test]
    fn a_transaction_has_limited_steps_entries_and_results() {
        let mut store = KvStore::new();
        let large = "x".repeat(VALUE_BYTES_MAX);
        for at in 0..17 {
            let put = format!(r#"{{"put": {{"key": "{at}", "value": {{"text": "{large}"}}}}}}"#);
            run(&mut store, &repeated(&put, 1)).expect("it fits");
        }
        let revision = store.revision();
        let owned = r#"{"put": {"key": "1", "owner": "c1"}}"#;
        let one = r#"{"read": {"keys": {"key": "2"}}}"#;
        let all = r#"{"read": {"keys": {"between": {}}, "keys_only": true}}"#;
        let deleted = r#"{"delete": {"keys": {"between": {}}, "keys_only": true}}"#;
        for (step, count, error) in [
            (all, STEPS_MAX + 1, KvError::TooManySteps { count: STEPS_MAX + 1 }),
            (all, STEPS_MAX, KvError::TooManyEntries),
            (deleted, STEPS_MAX, KvError::TooManyEntries),
            (r#"{"read": {"keys": {"between": {}}}}"#, 1, KvError::ResultTooLarge),
            (r#"{"delete": {"keys": {"between": {}}}}"#, 1, KvError::ResultTooLarge),
            (one, 16, KvError::ResultTooLarge),
            (owned, 16, KvError::ResultTooLarge),
        ] {
            assert_eq!(error.status(), 413);
            let found = run(&mut store, &repeated(step, count));
            assert_eq!(found.map(|_| ()), Err(error), "{count} times {step}");
            assert_eq!(store.revision(), revision);
        }
        run(&mut store, &repeated(one, 15)).expect("it is below the limit");
        run(&mut store, &repeated(deleted, 10)).expect("it is below the limit");
    }

    #[test]
    fn waiters_learn_of_the_keys_of_a_transaction() {
        let mut store = filled();
        let wait = super::super::Wait::Key { key: "new".into() };
        assert_eq!(store.wait(WaiterId(1), wait), Ok(None));
        let json = r#"{"then": [{"put": {"key": "new", "value": {"text": "x"}}}]}"#;
        let op = Op::Transact(serde_json::from_str(json).expect("a transaction"));
        assert_eq!(store.apply(op).expect("valid").wakeups.len(), 1);
    }
}
