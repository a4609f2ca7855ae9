use expect_test::{Expect, expect};

use super::*;
use ydl_proto::kv::Emitted;

fn put(key: &str, value: &str) -> Op {
    Op::Put { key: key.into(), value: value.into(), owner: None, only_if: None }
}

fn owned(key: &str, container: &str) -> Op {
    let owner = Some(container.into());
    Op::Put { key: key.into(), value: "".into(), owner, only_if: None }
}

fn emit(name: &str, data: &str) -> Op {
    Op::Emit { name: name.into(), data: data.into(), by: None }
}

fn text(value: &Blob) -> String {
    String::from_utf8_lossy(&value.0).into_owned()
}

fn format_changes(changes: &Changes) -> String {
    match changes {
        Changes::Resync { revision } => format!("resync at {revision}"),
        Changes::Current { revision, changes } => {
            let mut line = format!("to {revision}:");
            for change in changes {
                let formatted = match change {
                    Change::Put(entry) => format!(" {}={}", entry.key, text(&entry.value)),
                    Change::Deleted { key, .. } => format!(" -{key}"),
                };
                line += &format!("{formatted}@{}", change.revision());
            }
            line
        }
    }
}

fn format_events(events: &Events) -> String {
    let mut line = format!("through {}{}:", events.through, if events.missed { "!" } else { "" });
    for event in &events.events {
        line += &format!(" {}={}@{}", event.name, text(&event.data), event.sequence);
    }
    line
}

fn format_result(found: &WaitResult) -> String {
    match found {
        WaitResult::Entry(entry) => {
            format!("{}={}@{}", entry.key, text(&entry.value), entry.revision)
        }
        WaitResult::Changes(changes) => format_changes(changes),
        WaitResult::Events(events) => format_events(events),
    }
}

/// Applies a script line by line and prints the results.
fn check(script: &str, expected: Expect) {
    let mut store = KvStore::new();
    let mut output = String::new();
    for line in script.lines().map(str::trim) {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |word: &str| word.parse::<u64>().unwrap();
        let result = match words[..] {
            ["put", key, value] => apply(&mut store, put(key, value)),
            ["own", key, container] => apply(&mut store, owned(key, container)),
            ["put", key, value, only_if] => {
                let only_if = match only_if {
                    "absent" => OnlyIf::Absent,
                    revision => OnlyIf::Revision(number(revision)),
                };
                let (key, value) = (key.into(), value.into());
                apply(&mut store, Op::Put { key, value, owner: None, only_if: Some(only_if) })
            }
            ["delete", key] => apply(&mut store, Op::Delete { key: key.into() }),
            ["clear", prefix] => apply(&mut store, Op::DeletePrefix { prefix: prefix.into() }),
            ["gone", container] => apply(&mut store, Op::OwnerGone { container: container.into() }),
            ["emit", name, data] => apply(&mut store, emit(name, data)),
            ["changes", prefix, after] => {
                format_changes(&store.changes(prefix, number(after), PAGE_MAX))
            }
            ["events", after] => format_events(&store.events(number(after), None, PAGE_MAX)),
            ["wait", waiter, what, key] => {
                let wait = match what {
                    "key" => Wait::Key { key: key.into() },
                    after => Wait::Changes { prefix: key.into(), after: number(after) },
                };
                format_wait(&mut store, number(waiter), wait)
            }
            ["events", waiter, after, name] => {
                let name = (name != "*").then(|| name.to_owned());
                let wait = Wait::Events { after: number(after), name };
                format_wait(&mut store, number(waiter), wait)
            }
            ["forget", waiter] => {
                store.forget(WaiterId(number(waiter)));
                "forgotten".into()
            }
            _ => panic!("{line}"),
        };
        output += &format!("{line} → {result}\n");
        store.check();
    }
    expected.assert_eq(&output);
}

fn apply(store: &mut KvStore, op: Op) -> String {
    match store.apply(op) {
        Err(error) => error.to_string(),
        Ok(Applied { done, wakeups }) => {
            let mut text = match done {
                Done::Changed(Changed { revision, keys }) => format!("{keys} at {revision}"),
                Done::Emitted(Emitted { sequence }) => format!("event {sequence}"),
                Done::Transacted(outcome) => format!("{outcome:?}"),
            };
            for Wakeup { waiter, result: found } in &wakeups {
                text += &format!("; {waiter} {}", format_result(found));
            }
            text
        }
    }
}

fn format_wait(store: &mut KvStore, waiter: u64, wait: Wait) -> String {
    match store.wait(WaiterId(waiter), wait) {
        Err(error) => error.to_string(),
        Ok(Some(found)) => format!("at once {}", format_result(&found)),
        Ok(None) => "waits".into(),
    }
}

impl KvStore {
    /// Checks the invariants.
    fn check(&self) {
        let bytes: usize = self.slots.iter().map(|(key, slot)| key.len() + slot.value.len()).sum();
        assert_eq!(self.bytes, bytes);
        assert_eq!(self.last.len(), self.slots.len() + self.tombstones.len());
        for (key, slot) in &self.slots {
            assert_eq!(self.last.get(&slot.revision), Some(key));
            let owner = slot.owner.as_ref();
            assert!(owner.is_none_or(|owner| self.owned[owner].contains(key)));
            assert!(!self.tombstones.contains_key(key));
        }
        assert_eq!(self.tombstones.len(), self.tombstone_revisions.len());
        for (key, revision) in &self.tombstones {
            assert!(self.tombstone_revisions.contains(revision));
            assert_eq!(self.last.get(revision), Some(key));
        }
        let owned: usize = self.owned.values().map(BTreeSet::len).sum();
        assert_eq!(owned, self.slots.values().filter(|slot| slot.owner.is_some()).count());
        assert!(self.last.last_key_value().is_none_or(|(last, _)| *last <= self.revision));
    }
}

#[test]
fn watchers_receive_the_latest_change_of_each_key() {
    check(
        "put a 1
         put b 2
         put a 3
         delete b
         delete b
         put c 4
         changes  0
         changes  3
         changes c 0
         changes d 0
         changes  5
         changes  6",
        expect![[r#"
            put a 1 → 1 at 1
            put b 2 → 1 at 2
            put a 3 → 1 at 3
            delete b → 1 at 4
            delete b → 0 at 4
            put c 4 → 1 at 5
            changes  0 → to 5: a=3@3 -b@4 c=4@5
            changes  3 → to 5: -b@4 c=4@5
            changes c 0 → to 5: c=4@5
            changes d 0 → to 5:
            changes  5 → to 5:
            changes  6 → resync at 5
        "#]],
    );
}

#[test]
fn puts_check_their_precondition() {
    check(
        "put a 1 absent
         put a 2 absent
         put a 2 1
         put a 3 1
         put b 1 7
         delete a
         put a 4 absent",
        expect![[r#"
            put a 1 absent → 1 at 1
            put a 2 absent → `a` was not written: it has revision 1 by now
            put a 2 1 → 1 at 2
            put a 3 1 → `a` was not written: it has revision 2 by now
            put b 1 7 → `b` was not written: the key does not exist any more
            delete a → 1 at 3
            put a 4 absent → 1 at 4
        "#]],
    );
}

#[test]
fn keys_are_deleted_with_their_owner_unless_another_container_took_them_over() {
    check(
        "own a c1
         own b c1
         own c c2
         own b c2
         put a 1
         own d c1
         gone c1
         gone c1
         changes  0
         gone c2
         changes  7",
        expect![[r#"
            own a c1 → 1 at 1
            own b c1 → 1 at 2
            own c c2 → 1 at 3
            own b c2 → 1 at 4
            put a 1 → 1 at 5
            own d c1 → 1 at 6
            gone c1 → 1 at 7
            gone c1 → 0 at 7
            changes  0 → to 7: c=@3 b=@4 a=1@5 -d@7
            gone c2 → 2 at 9
            changes  7 → to 9: -b@8 -c@9
        "#]],
    );
}

#[test]
fn waiters_are_woken_by_matching_changes_only() {
    check(
        "wait 1 key w/0
         wait 2 0 w/
         wait 3 0 w/1
         wait 4 0 é
         put x 1
         put w 1
         put w/0 up
         wait 5 key w/0
         wait 6 2 w/
         wait 7 3 w/
         wait 8 key w/9
         clear w
         put w/1 up
         forget 8
         put w/9 up
         put él 1",
        expect![[r#"
            wait 1 key w/0 → waits
            wait 2 0 w/ → waits
            wait 3 0 w/1 → waits
            wait 4 0 é → waits
            put x 1 → 1 at 1
            put w 1 → 1 at 2
            put w/0 up → 1 at 3; waiter:1 w/0=up@3; waiter:2 to 3: w/0=up@3
            wait 5 key w/0 → at once w/0=up@3
            wait 6 2 w/ → at once to 3: w/0=up@3
            wait 7 3 w/ → waits
            wait 8 key w/9 → waits
            clear w → 2 at 5; waiter:7 to 5: -w/0@5
            put w/1 up → 1 at 6; waiter:3 to 6: w/1=up@6
            forget 8 → forgotten
            put w/9 up → 1 at 7
            put él 1 → 1 at 8; waiter:4 to 8: él=1@8
        "#]],
    );
}

#[test]
fn events_are_numbered_and_can_be_filtered_and_awaited() {
    check(
        "events 1 0 *
         events 2 0 done
         emit epoch 1
         emit done yes
         events 3 1 epoch
         events 4 1 *
         emit done no
         emit epoch 2
         events 0
         events 9",
        expect![[r#"
            events 1 0 * → waits
            events 2 0 done → waits
            emit epoch 1 → event 1; waiter:1 through 1: epoch=1@1
            emit done yes → event 2; waiter:2 through 2: done=yes@2
            events 3 1 epoch → waits
            events 4 1 * → at once through 2: done=yes@2
            emit done no → event 3
            emit epoch 2 → event 4; waiter:3 through 4: epoch=2@4
            events 0 → through 4: epoch=1@1 done=yes@2 done=no@3 epoch=2@4
            events 9 → through 4!:
        "#]],
    );
}

#[test]
fn invalid_keys_and_names_are_rejected() {
    let refused = |op| KvStore::new().apply(op).unwrap_err().to_string();
    assert_eq!(refused(put("", "")), "a key has 1 to 512 bytes, not 0");
    assert_eq!(refused(put(&"é".repeat(257), "")), "a key has 1 to 512 bytes, not 514");
    assert_eq!(refused(put("a\nb", "")), r"a key cannot contain `\n`");
    assert_eq!(refused(emit("", "")), "an event's name has 1 to 128 bytes, not 0");
    assert_eq!(refused(emit("a\u{2028}", "")), r"an event's name cannot contain `\u{2028}`");
    let prefix = "x".repeat(513);
    assert_eq!(refused(Op::DeletePrefix { prefix }), "a key has 1 to 512 bytes, not 513");
    let wait = Wait::Key { key: String::new() };
    assert!(KvStore::new().wait(WaiterId(1), wait).is_err());
    assert!(KvStore::new().apply(put("a key/with spaces é", "")).is_ok());
}

#[test]
fn sizes_are_limited() {
    let mut store = KvStore::new();
    let long = "x".repeat(VALUE_BYTES_MAX + 1);
    assert!(matches!(store.apply(put("a", &long)), Err(KvError::ValueTooLong { .. })));
    assert!(matches!(store.apply(emit("a", &long)), Err(KvError::EventTooLong { .. })));
    let large = &long[1..];
    for number in 0..63 {
        store.apply(put(&format!("large/{number}"), large)).unwrap();
    }
    assert!(store.apply(put("large/63", large)).is_err_and(|error| error == KvError::Full));
    store.apply(put("large/0", large)).unwrap();
    store.check();
    store.apply(Op::DeletePrefix { prefix: "large/".into() }).unwrap();
    assert_eq!(store.bytes, 0);

    for number in 0..KEYS_MAX {
        store.apply(put(&format!("k/{number}"), "")).unwrap();
    }
    assert_eq!(store.apply(put("one more", "")), Err(KvError::TooManyKeys));
    store.apply(put("k/0", "again")).unwrap();
    for number in 0..WAITERS_MAX as u64 {
        let wait = Wait::Key { key: "later".into() };
        assert_eq!(store.wait(WaiterId(number), wait), Ok(None));
    }
    let wait = Wait::Key { key: "later".into() };
    assert_eq!(store.wait(WaiterId(u64::MAX), wait.clone()), Err(KvError::TooManyWaiters));
    assert_eq!(store.wait(WaiterId(0), wait), Ok(None), "a repeated request of the same waiter");
    store.apply(Op::Delete { key: "k/0".into() }).unwrap();
    assert_eq!(store.apply(put("later", "")).unwrap().wakeups.len(), WAITERS_MAX);
    store.check();
}

#[test]
fn old_events_are_dropped_and_reported_as_missed() {
    let mut store = KvStore::new();
    for number in 1..=EVENTS_MAX + 5 {
        store.apply(emit("n", &number.to_string())).unwrap();
    }
    let events = store.events(0, None, 3);
    assert_eq!(format_events(&events), "through 8!: n=6@6 n=7@7 n=8@8");
    assert!(!store.events(5, None, 1).missed);
    let data = "x".repeat(EVENT_BYTES_MAX);
    for _ in 0..HISTORY_BYTES_MAX / EVENT_BYTES_MAX + 1 {
        store.apply(emit("large", &data)).unwrap();
    }
    let stored = store.events.since(0, None, Page { items: usize::MAX, bytes: usize::MAX });
    assert_eq!(stored.events.len(), HISTORY_BYTES_MAX / EVENT_BYTES_MAX);
}

#[test]
fn watchers_that_missed_deletions_must_resync() {
    let mut store = KvStore::new();
    store.apply(put("first", "")).unwrap();
    for number in 0..TOMBSTONES_MAX + 2 {
        store.apply(put(&format!("k/{number:05}"), "")).unwrap();
    }
    let before = store.revision();
    store.apply(Op::DeletePrefix { prefix: "k/".into() }).unwrap();
    store.check();
    assert_eq!(store.tombstones.len(), TOMBSTONES_MAX);
    assert!(matches!(store.changes("", before, 1), Changes::Resync { .. }));
    // Two deletions were dropped; a watcher that knows them need not resync.
    assert_eq!(
        format_changes(&store.changes("", before + 2, 1)),
        format!("to {0}: -k/00002@{0}", before + 3)
    );
}

#[test]
fn results_are_paged() {
    let mut store = KvStore::new();
    for number in 0..25 {
        store.apply(put(&format!("p/{number:02}"), &"x".repeat(600 << 10))).unwrap();
    }
    store.apply(put("q", "")).unwrap();
    let (mut listed, mut after, mut pages) = (Vec::new(), None::<String>, 0);
    loop {
        let page = store.list("p/", after.as_deref(), usize::MAX);
        pages += 1;
        listed.extend(page.entries.into_iter().map(|entry| entry.key));
        after = listed.last().cloned();
        if !page.more {
            break;
        }
    }
    assert_eq!((listed.len(), pages), (25, 4));
    let (mut watched, mut after) = (Vec::new(), 0);
    while let Changes::Current { revision, changes } = store.changes("p/", after, 4) {
        if changes.is_empty() {
            break;
        }
        watched.extend(changes.into_iter().map(|change| change.key().to_owned()));
        after = revision;
    }
    assert_eq!(watched, listed);
    assert_eq!(store.list("p/", Some("a"), 1).entries[0].key, "p/00");
    assert!(store.list("p/", Some("q"), 1).entries.is_empty());
}

#[test]
fn replayed_operations_give_the_same_store() {
    let mut random = 7_u64;
    let mut roll = |sides: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % sides
    };
    let (mut store, mut journal) = (KvStore::new(), Vec::new());
    for _ in 0..3000 {
        let key = format!("{}/{}", roll(3), roll(8));
        let container = format!("c{}", roll(4));
        let value = Blob::from(&[roll(256) as u8, roll(256) as u8][..]);
        let op = match roll(10) {
            0 => Op::Delete { key },
            1 => Op::DeletePrefix { prefix: key[..roll(3) as usize].to_owned() },
            2 => Op::OwnerGone { container },
            3 => Op::Emit { name: key, data: value, by: Some(container) },
            4 => Op::Put { key, value, owner: None, only_if: Some(OnlyIf::Absent) },
            5 => Op::Put { key, value, owner: None, only_if: Some(OnlyIf::Revision(roll(3000))) },
            6 => Op::Put { key, value, owner: None, only_if: None },
            _ => Op::Put { key, value, owner: Some(container), only_if: None },
        };
        let wait = Wait::Changes { prefix: format!("{}/", roll(3)), after: store.revision() };
        store.wait(WaiterId(roll(50)), wait).unwrap();
        journal.push(serde_json::to_vec(&op).unwrap());
        let _ = store.apply(op);
        store.check();
    }
    let mut again = KvStore::new();
    for record in journal {
        let _ = again.apply(serde_json::from_slice(&record).unwrap());
    }
    assert_eq!(again.changes("", 0, PAGE_MAX), store.changes("", 0, PAGE_MAX));
    assert_eq!(again.events(0, None, PAGE_MAX), store.events(0, None, PAGE_MAX));
    assert_eq!(again.list("", None, PAGE_MAX), store.list("", None, PAGE_MAX));
}
