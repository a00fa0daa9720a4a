//! Tests of damaged rows: each flipped bit is noticed, and one row does not stop the others.

use std::path::Path;

use orlog_model::{Change, Destination, TenantId, WorkKind};

use crate::mdbx::Mdbx;
use crate::samples::{apply, at, dedupe_key, key, small, timer, transition};
use crate::table::Table;
use crate::tables::Tables;
use crate::{Error, Options, check_tables, open};

fn options() -> Options {
    Options {
        feed: true,
        ..small()
    }
}

/// Writes rows of ten instances into the tables.
pub(crate) fn filled(dir: &Path) {
    let (mut writer, _) = open(dir, options()).unwrap();
    for number in 1..=10 {
        let mut commit = transition(&key("acme", &format!("o-{number}")), 1);
        commit.arm = vec![timer(i64::try_from(number).unwrap() + 100, number)];
        writer
            .commit(&[apply(commit), crate::samples::checkpoint(number)], at(5))
            .unwrap();
    }
    writer.close().unwrap();
}

pub(crate) fn tables(dir: &Path) -> Mdbx {
    Mdbx::open(
        &dir.join("tables"),
        options().max_bytes,
        b"none",
        |_| Ok(()),
    )
    .unwrap()
}

/// Flips one bit of the first row of a table.
pub(crate) fn damage(dir: &Path, table: Table) -> Vec<u8> {
    let tables = tables(dir);
    let (key, mut row) = tables.stored_rows(table).swap_remove(0);
    row[0] ^= 4;
    tables.store_row(table, &key, &row);
    key
}

pub(crate) fn destination() -> Destination {
    let tenant = TenantId::new("acme").unwrap();
    Destination {
        kind: WorkKind::Effect,
        tenant,
        name: "payments.charge".into(),
        priority: orlog_model::Priority::Normal,
    }
}

#[test]
fn every_flipped_bit_of_every_table_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let (mut random, mut checked) = (fastrand::Rng::with_seed(25), 0);
    for table in Table::ALL {
        let rows = tables(dir.path()).stored_rows(table);
        for _ in 0..rows.len().min(4) {
            let (key, row) = &rows[random.usize(..rows.len())];
            let bit = random.usize(..row.len() * 8);
            let mut damaged = row.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            {
                let tables = tables(dir.path());
                tables.store_row(table, key, &damaged);
                let read = tables.get(table, key, &mut |_| ());
                assert!(
                    matches!(&read, Err(Error::Damaged { table: name, .. }) if *name == table.name()),
                    "{table:?} {bit}"
                );
                assert_eq!(tables.damaged_reads(), 1);
            }
            let mut found = Vec::new();
            check_tables(dir.path(), |problem| found.push(problem)).unwrap();
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!(found[0].table, table.name());
            assert!(found[0].reason.contains(&hex::encode(key)), "{found:?}");
            tables(dir.path()).store_row(table, key, row);
            checked += 1;
        }
    }
    assert!(checked >= 24, "{checked}");
    assert!(check_tables(dir.path(), |problem| panic!("{problem:?}")).unwrap() > 50);
}

#[test]
fn damaged_rows_are_skipped_counted_and_completed() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    damage(dir.path(), Table::Outbox);
    damage(dir.path(), Table::Timer);
    damage(dir.path(), Table::Dedupe);
    let instance = damage(dir.path(), Table::Instance);
    let (mut writer, reader) = open(dir.path(), options()).unwrap();
    let pending = reader.outbox(&destination(), 0, 100).unwrap();
    assert_eq!(pending.len(), 9);
    assert_eq!(reader.timers_due(at(1000), 100).unwrap().len(), 9);
    assert!(reader.stats().damaged_reads >= 2);
    let damaged: Vec<_> = (1..=10)
        .map(|number| key("acme", &format!("o-{number}")))
        .filter(|key| reader.instance(key).is_err())
        .collect();
    let [damaged] = damaged.as_slice() else {
        panic!("{damaged:?}")
    };
    assert!(matches!(
        reader.instance(damaged),
        Err(Error::Damaged { .. })
    ));
    for number in 1..=10 {
        // The key of a damaged dedupe row still identifies its event.
        let key = key("acme", &format!("o-{number}"));
        assert!(
            reader.is_duplicate(&key, dedupe_key(1), at(6)).unwrap(),
            "{number}"
        );
    }
    let missing = (1..=10)
        .find(|sequence| pending.iter().all(|(key, _)| key.sequence != *sequence))
        .unwrap();
    let outbox_key = orlog_model::OutboxKey {
        destination: destination(),
        sequence: missing,
    };
    let drop = Change::DropInstance {
        key: damaged.clone(),
    };
    writer
        .commit(&[Change::Settle(outbox_key), drop], at(6))
        .unwrap();
    assert_eq!(reader.outbox_depth().unwrap(), 9);
    assert!(reader.instance(damaged).unwrap().is_none());
    writer.close().unwrap();
    assert!(
        tables(dir.path())
            .stored_rows(Table::Instance)
            .iter()
            .all(|(key, _)| *key != instance)
    );
}

#[test]
fn damaged_count_rejects_no_commit_and_is_counted_again() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    damage(dir.path(), Table::Count);
    let tenant = TenantId::new("acme").unwrap();

    let (mut writer, _) = open(dir.path(), options()).unwrap();
    let started = transition(&key("acme", "o-11"), 1);
    writer.commit(&[apply(started)], at(5)).unwrap();
    writer.close().unwrap();

    let (_writer, reader) = open(dir.path(), options()).unwrap();
    let counts = reader.count(&tenant).unwrap();
    assert_eq!(counts.into_values().collect::<Vec<_>>(), [11]);
}

#[test]
fn damaged_metadata_and_checkpoints_prevent_the_start() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    damage(dir.path(), Table::Checkpoint);
    let (writer, reader) = open(dir.path(), options()).unwrap();
    assert!(matches!(
        reader.checkpoints(),
        Err(Error::Damaged {
            table: "checkpoint",
            ..
        })
    ));
    drop(writer);
    let rows = tables(dir.path()).stored_rows(Table::Meta);
    for (key, row) in rows {
        let mut damaged = row.clone();
        *damaged.last_mut().unwrap() ^= 1;
        tables(dir.path()).store_row(Table::Meta, &key, &damaged);
        let opened = open(dir.path(), options()).err();
        if key == b"feed" || opened.is_some() {
            assert!(
                matches!(opened, None | Some(Error::Damaged { table: "meta", .. })),
                "{opened:?}"
            );
        } else {
            panic!("damaged row {:?}", String::from_utf8_lossy(&key));
        }
        tables(dir.path()).store_row(Table::Meta, &key, &row);
    }
}
