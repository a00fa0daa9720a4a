//! Random operations on a disk with random power failures, compared with a list of the expected
//! records.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use orlog_journal::{Journal, Options};

use crate::support::{FaultyDisk, contents, payload, small};

const SEEDS: u64 = 150;
const OPERATIONS: usize = 120;

/// Expected content.
#[derive(Default)]
struct Model {
    records: VecDeque<(u64, Vec<u8>)>,
    durable: u64,
    losses: u64,
}

impl Model {
    /// Checks the journal after a power failure: all durable records exist, and a prefix of the others.
    fn check_recovery(&mut self, journal: &Journal) {
        let last = journal.next_sequence() - 1;
        assert!(
            last >= self.durable,
            "{last} of {} durable records",
            self.durable
        );
        self.losses += self
            .records
            .iter()
            .filter(|(sequence, _)| *sequence > last)
            .count() as u64;
        self.records.retain(|(sequence, _)| *sequence <= last);
        self.durable = last;
        self.check(journal);
    }

    fn check(&mut self, journal: &Journal) {
        let first = journal.first_sequence();
        self.records.retain(|(sequence, _)| *sequence >= first);
        assert!(contents(&journal.reader()) == *self.records.make_contiguous());
    }
}

fn open(dir: &Path, disk: &Arc<FaultyDisk>) -> Journal {
    let options = Options {
        spare_segments: 1,
        ..small()
    };
    Journal::open_on(dir, options, Arc::clone(disk) as _)
        .unwrap()
        .0
}

fn simulate(seed: u64) -> u64 {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(FaultyDisk::default());
    let mut random = fastrand::Rng::with_seed(seed);
    let mut model = Model::default();
    let mut journal = open(dir.path(), &disk);
    for _ in 0..OPERATIONS {
        match random.u32(0..100) {
            0..70 => {
                let bytes = payload(random.u64(..), random.usize(0..900));
                let sequence = journal.append(&[&bytes]).unwrap();
                model.records.push_back((sequence, bytes));
            }
            70..82 => model.durable = journal.sync().unwrap(),
            82..88 => {
                let sequence = random.u64(journal.first_sequence()..=journal.next_sequence());
                journal.truncate_before(sequence).unwrap();
                assert!(journal.first_sequence() <= sequence);
                model.check(&journal);
            }
            _ => {
                drop(journal);
                disk.lose_power(&mut random);
                journal = open(dir.path(), &disk);
                model.check_recovery(&journal);
            }
        }
    }
    model.check(&journal);
    model.losses
}

#[test]
fn durable_records_survive_and_lost_records_stay_lost() {
    let seeds = std::env::var("ORLOG_JOURNAL_SEED").map(|seed| seed.parse().unwrap());
    let seeds = seeds.map_or(0..SEEDS, |seed: u64| seed..seed + 1);
    let mut losses = 0;
    for seed in seeds {
        eprintln!("ORLOG_JOURNAL_SEED={seed}");
        losses += simulate(seed);
    }
    assert!(
        losses > 0,
        "no power failure lost data, so the test is empty"
    );
}
