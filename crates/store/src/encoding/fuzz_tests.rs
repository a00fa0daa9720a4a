//! Fuzzing of rows, keys and journal records: damaged bytes are rejected without a panic and without much memory.

use std::time::Duration;

use orlog_model::{HistoryEntry, Instance, SlotAssigner, Status, WorkItem};
use orlog_testkit::fuzz::{Random, fuzz, mutate};

use super::keys::{self, KeyEncoder};
use super::record::{self, KeyPresence, RecordWriter, StoreState};
use super::value;
use crate::replication::frame;
use crate::samples;
use crate::table::Table;

fn values() -> [Vec<u8>; 3] {
    let mut values = [Vec::new(), Vec::new(), Vec::new()];
    value::encode(&mut values[0], &samples::instance(3, Status::Running));
    value::encode(&mut values[1], &samples::record(3));
    value::encode(
        &mut values[2],
        &samples::work(&samples::key("acme", "o-1"), "charge", 7),
    );
    values
}

fn keys() -> Vec<crate::encoding::tuple::Key> {
    let (encoder, key) = (
        KeyEncoder::new(SlotAssigner::default(), Duration::from_hours(1)),
        samples::key("acme", "o-1"),
    );
    vec![
        encoder.instance(&key),
        encoder.history(&key, 3),
        encoder.timer(&key, &samples::timer(5, 6)),
        keys::dedupe(7, &encoder.instance(&key), samples::dedupe_key(3)),
        keys::feed(5, 6),
        keys::dead_letter_outbox(9),
    ]
}

fn journal_record() -> Vec<u8> {
    let mut writer = RecordWriter::default();
    writer.clear();
    for (key, value) in keys().iter().zip(values()) {
        writer
            .put(KeyPresence::Unknown, Table::Instance, key, |buffer| {
                buffer.extend(value);
            })
            .unwrap();
    }
    writer.delete(Table::Outbox, &keys()[0]).unwrap();
    writer.finish(&StoreState::NONE).to_vec()
}

/// Damaged bytes, of which the first number selects the decoder.
fn make(random: &mut Random, valid: &[impl AsRef<[u8]>]) -> (usize, Vec<u8>) {
    let (at, other) = (random.below(valid.len()), random.below(valid.len()));
    (
        at,
        mutate(random, valid[at].as_ref(), valid[other].as_ref()),
    )
}

#[test]
fn damaged_values_never_panic() {
    let valid = values();
    fuzz(
        "value",
        |random| make(random, &valid),
        |(_, bytes)| {
            let decoded = [
                value::decode::<Instance>(Table::Instance, bytes).is_ok(),
                value::decode::<HistoryEntry>(Table::History, bytes).is_ok(),
                value::decode::<WorkItem>(Table::Outbox, bytes).is_ok(),
                value::decode::<StoreState>(Table::Meta, bytes).is_ok(),
            ];
            decoded.contains(&true)
        },
        |input| format!("{input:?}"),
    );
}

#[test]
fn damaged_keys_never_panic() {
    let valid = keys();
    fuzz(
        "key",
        |random| make(random, &valid),
        |(_, bytes)| {
            let read = [
                keys::read_numbered(bytes).is_ok(),
                keys::read_timer(bytes).is_ok(),
                keys::read_outbox(bytes).is_ok(),
                keys::read_checkpoint(bytes).is_ok(),
                keys::read_dedupe(bytes).is_ok(),
                keys::read_task(bytes).is_ok(),
                keys::read_feed(bytes).is_ok(),
                keys::read_dead_letter_outbox(bytes).is_ok(),
            ];
            read.contains(&true)
        },
        |input| format!("{input:?}"),
    );
}

#[test]
fn damaged_journal_records_never_panic() {
    let valid = [journal_record()];
    fuzz(
        "record",
        |random| make(random, &valid),
        |(_, bytes)| {
            drop(frame::read(&bytes.clone().into()));
            assert_eq!(
                frame::claim_dedupe_window(bytes).is_some(),
                bytes.len() >= 8
            );
            let Ok((_, mut operations)) = record::read(1, bytes) else {
                return false;
            };
            let mut count = 0;
            loop {
                match operations.next() {
                    Ok(Some(_)) => count += 1,
                    Ok(None) => return true,
                    Err(_) => return false,
                }
                assert!(count <= bytes.len(), "an operation has at least one byte");
            }
        },
        |input| format!("{input:?}"),
    );
}
