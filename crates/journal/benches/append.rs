//! What an append and a sync cost, in the steady state: old segments are dropped and written again.

use std::hint::black_box;

use divan::Bencher;
use divan::counter::BytesCount;
use orlog_journal::{Journal, Options};

const KIB: usize = 1024;
/// The journal keeps about this many bytes.
const KEPT_BYTES: usize = 64 << 20;

fn main() {
    divan::main();
}

fn journal(dir: &tempfile::TempDir) -> Journal {
    let options =
        Options { segment_bytes: 16 << 20, spare_segments: 4, ..Options::new(*b"bench of journal") };
    Journal::open(dir.path(), options).expect("an empty folder opens").0
}

fn run(bencher: Bencher, size: usize, sync: bool) {
    let dir = tempfile::tempdir().expect("a folder");
    let mut journal = journal(&dir);
    let payload = vec![0xa5; size];
    let kept = (KEPT_BYTES / size) as u64;
    for _ in 0..3 * kept {
        append(&mut journal, &payload, kept);
    }
    bencher.counter(BytesCount::new(size)).bench_local(|| {
        append(&mut journal, &payload, kept);
        if sync {
            journal.sync().expect("the disk works");
        }
    });
}

fn append(journal: &mut Journal, payload: &[u8], kept: u64) {
    let sequence = journal.append(&[black_box(payload)]).expect("the disk works");
    journal.truncate_before(sequence.saturating_sub(kept)).expect("the disk works");
}

#[divan::bench(args = [KIB, 64 * KIB], sample_count = 500, sample_size = 1)]
fn append_and_sync(bencher: Bencher, size: usize) {
    run(bencher, size, true);
}

#[divan::bench(args = [KIB, 64 * KIB], sample_count = 100, sample_size = 20)]
fn append_only(bencher: Bencher, size: usize) {
    run(bencher, size, false);
}

/// 64 MiB in records of 1 KiB, read from the start.
#[divan::bench(sample_count = 10, sample_size = 1)]
fn read_all(bencher: Bencher) {
    let dir = tempfile::tempdir().expect("a folder");
    let mut journal = journal(&dir);
    for _ in 0..KEPT_BYTES / KIB {
        journal.append(&[&[0xa5; KIB]]).expect("the disk works");
    }
    let reader = journal.reader();
    bencher.counter(BytesCount::new(KEPT_BYTES)).bench_local(|| {
        let mut sum = 0;
        let visited = reader.for_each(1, |_, payload| {
            sum += payload.len();
            Ok::<(), orlog_journal::Error>(())
        });
        visited.expect("nothing is damaged");
        black_box(sum)
    });
}
