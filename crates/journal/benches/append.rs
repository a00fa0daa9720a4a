//! Cost of an append and a sync in the steady state: old segments are dropped and reused.

use std::hint::black_box;

use divan::Bencher;
use divan::counter::BytesCount;
use orlog_journal::{Journal, Options};

const KIB: usize = 1024;
/// Approximate size of the journal, in bytes.
const RETAINED_BYTES: usize = 64 << 20;

fn main() {
    divan::main();
}

fn journal(dir: &tempfile::TempDir) -> Journal {
    let options = Options {
        segment_bytes: 16 << 20,
        spare_segments: 4,
        ..Options::new(*b"bench of journal")
    };
    Journal::open(dir.path(), options)
        .expect("an empty directory opens")
        .0
}

fn run(bencher: Bencher, size: usize, sync: bool) {
    let dir = tempfile::tempdir().expect("a directory");
    let mut journal = journal(&dir);
    let payload = vec![0xa5; size];
    let retained = (RETAINED_BYTES / size) as u64;
    for _ in 0..3 * retained {
        append(&mut journal, &payload, retained);
    }
    bencher.counter(BytesCount::new(size)).bench_local(|| {
        append(&mut journal, &payload, retained);
        if sync {
            journal.sync().expect("the disk works");
        }
    });
}

fn append(journal: &mut Journal, payload: &[u8], retained: u64) {
    let sequence = journal
        .append(&[black_box(payload)])
        .expect("the disk works");
    journal
        .truncate_before(sequence.saturating_sub(retained))
        .expect("the disk works");
}

#[divan::bench(args = [KIB, 64 * KIB], sample_count = 500, sample_size = 1)]
fn append_and_sync(bencher: Bencher, size: usize) {
    run(bencher, size, true);
}

#[divan::bench(args = [KIB, 64 * KIB], sample_count = 100, sample_size = 20)]
fn append_only(bencher: Bencher, size: usize) {
    run(bencher, size, false);
}

/// Reads 64 MiB in records of 1 KiB from the start.
#[divan::bench(sample_count = 10, sample_size = 1)]
fn read_all(bencher: Bencher) {
    let dir = tempfile::tempdir().expect("a directory");
    let mut journal = journal(&dir);
    for _ in 0..RETAINED_BYTES / KIB {
        journal.append(&[&[0xa5; KIB]]).expect("the disk works");
    }
    let reader = journal.reader();
    bencher
        .counter(BytesCount::new(RETAINED_BYTES))
        .bench_local(|| {
            let mut sum = 0;
            let visited = reader.for_each(1, |_, payload| {
                sum += payload.len();
                Ok::<(), orlog_journal::Error>(())
            });
            visited.expect("the journal is intact");
            black_box(sum)
        });
}
