//! Tests of stores that were recorded in the current and in an earlier format.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, thread};

use orlog_model::{Status, TenantId};

use crate::recovery_tests::{complete_oldest, copy, everything, group};
use crate::samples::{at, small};
use crate::{InstanceQuery, open};

fn recorded(format: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/format-{format}"))
}

#[test]
fn stores_of_format_2_and_3_are_readable() {
    [2, 3]
        .map(recorded)
        .iter()
        .for_each(|recorded| check_readable(recorded));
}

fn check_readable(recorded: &Path) {
    let dir = tempfile::tempdir().unwrap();
    copy(&recorded.join("store"), dir.path());
    let options = crate::Options {
        memtable_max_age: Duration::from_millis(1),
        ..small()
    };
    let (mut writer, reader) = open(dir.path(), options).unwrap();
    assert_eq!(
        everything(&reader),
        fs::read_to_string(recorded.join("expected.txt")).unwrap()
    );
    let acme = TenantId::new("acme").unwrap();
    let counted = reader.count(&acme).unwrap().into_values().sum::<u64>();
    let all = InstanceQuery {
        tenant: acme,
        ..InstanceQuery::default()
    };
    assert_eq!(counted, reader.instances(&all).unwrap().items.len() as u64);
    // The index of the instances is built in the background.
    let deadline = Instant::now() + Duration::from_secs(30);
    while !reader.is_ready(&crate::index::Index::Instances).unwrap() {
        assert!(Instant::now() < deadline, "the index is not built");
        thread::yield_now();
    }
    let running = InstanceQuery {
        statuses: vec![Status::Running],
        ..all
    };
    assert_eq!(
        reader.instances(&running).unwrap().items.len() as u64,
        counted
    );
    writer.close().unwrap();
}

#[test]
#[ignore = "writes the fixture of the current format; run it manually when the format changes"]
fn record_the_current_format() {
    let recorded = recorded(3);
    let options = crate::Options {
        max_bytes: 1 << 20,
        journal_segment_bytes: 16 << 10,
        ..small()
    };
    let (mut writer, reader) = open(&recorded.join("store"), options).unwrap();
    for number in 1..=12 {
        writer.commit(&group(number), at(5)).unwrap();
        if number == 9 {
            writer.flush().unwrap();
        }
    }
    writer.commit(&complete_oldest(&reader), at(5)).unwrap();
    fs::write(recorded.join("expected.txt"), everything(&reader)).unwrap();
    drop(writer);
    fs::remove_file(recorded.join("store/tables/mdbx.lck")).unwrap();
}
