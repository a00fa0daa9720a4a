//! Pods with a directory each.

use std::collections::BTreeMap;

use orlog_store::{Error, Options, Reader, ReplicationOptions, Writer, open_replicated};
use orlog_testkit::memory_log::{AppendFault, MemoryLog};
use tempfile::TempDir;

use crate::replication::groups::{at, everything, group, small};

/// Returns the state of a store without a log before and after each of these commits.
pub(super) fn model(commits: u64) -> Vec<String> {
    let (mut writer, reader) = orlog_store::open_in_memory(small());
    let mut states = vec![everything(&reader)];
    for number in 1..=commits {
        writer
            .commit(&group(number), at(number))
            .expect("memory is large");
        states.push(everything(&reader));
    }
    states
}

/// Process that owns the shard, or is a former owner.
pub(super) struct Pod {
    pub(super) dir: TempDir,
    pub(super) log: MemoryLog,
    pub(super) writer: Writer,
    pub(super) reader: Reader,
}

impl Pod {
    /// Takes the shard over into an empty directory.
    pub(super) fn new(log: &MemoryLog, epoch: u64) -> Self {
        Self::on(tempfile::tempdir().expect("a directory"), log, epoch)
    }

    /// Takes the shard over with the data of an earlier run.
    pub(super) fn on(dir: TempDir, log: &MemoryLog, epoch: u64) -> Self {
        let client = log.client();
        Self::open(
            dir,
            client.clone(),
            ReplicationOptions::new(client.commit_log(), epoch),
        )
        .expect("the log is sound")
    }

    /// Takes the shard over with a snapshot after this many commits.
    pub(super) fn with_snapshots(log: &MemoryLog, epoch: u64, snapshot_commits: u64) -> Self {
        let client = log.client();
        let replication = ReplicationOptions {
            snapshot_commits,
            ..ReplicationOptions::new(client.commit_log(), epoch)
        };
        Self::open(
            tempfile::tempdir().expect("a directory"),
            client,
            replication,
        )
        .expect("the log is sound")
    }

    /// Takes the shard over with the data of an earlier run, and with these thresholds of
    /// snapshots.
    pub(super) fn on_with_thresholds(
        dir: TempDir,
        log: &MemoryLog,
        epoch: u64,
        snapshot_commits: u64,
        snapshot_bytes: u64,
    ) -> Self {
        let client = log.client();
        let replication = ReplicationOptions {
            snapshot_commits,
            snapshot_bytes,
            ..ReplicationOptions::new(client.commit_log(), epoch)
        };
        Self::open(dir, client, replication).expect("the log is sound")
    }

    /// Takes the shard over into an empty directory, whatever the log has lost.
    pub(super) fn accepting_data_loss(log: &MemoryLog, epoch: u64) -> Self {
        let client = log.client();
        let replication = ReplicationOptions::new(client.commit_log(), epoch);
        let options = Options {
            accept_data_loss: true,
            ..small()
        };
        let dir = tempfile::tempdir().expect("a directory");
        Self::open_with(dir, client, options, replication).expect("the loss is accepted")
    }

    fn open(dir: TempDir, log: MemoryLog, replication: ReplicationOptions) -> Result<Self, Error> {
        Self::open_with(dir, log, small(), replication)
    }

    fn open_with(
        dir: TempDir,
        log: MemoryLog,
        options: Options,
        replication: ReplicationOptions,
    ) -> Result<Self, Error> {
        let (writer, reader) = open_replicated(dir.path(), options, replication)?;
        Ok(Self {
            dir,
            log,
            writer,
            reader,
        })
    }

    /// Commits and waits for the log like a committer, while it is available.
    pub(super) fn commit(&mut self, number: u64) -> Result<(), Error> {
        let mut result = self.commit_once(number);
        for _ in 0..20 {
            match result {
                Err(Error::Unavailable { .. }) => result = self.writer.retry_commit(),
                other => return other.map(drop),
            }
        }
        result.map(drop)
    }

    /// Commits without waiting.
    pub(super) fn commit_once(&mut self, number: u64) -> Result<u64, Error> {
        self.writer.commit(&group(number), at(number))
    }

    pub(super) fn everything(&self) -> String {
        everything(&self.reader)
    }

    /// Returns how often its tables were moved aside.
    pub(super) fn asides(&self) -> usize {
        let entries = std::fs::read_dir(self.dir.path()).expect("a directory");
        entries
            .filter(|e| {
                e.as_ref()
                    .is_ok_and(|e| e.file_name().to_string_lossy().starts_with("aside-"))
            })
            .count()
    }

    /// Copies its directory as `kill -9` would leave it, if no flush is in progress.
    pub(super) fn copy_dir(&self) -> TempDir {
        let copy = tempfile::tempdir().expect("a directory");
        super::copy(self.dir.path(), copy.path());
        copy
    }

    /// Returns its directory. A dropped writer writes nothing more to the disk, so a drop equals a kill.
    pub(super) fn crash(self) -> TempDir {
        drop(self.writer);
        self.dir
    }
}

/// Returns the seeds to test: only that of `ORLOG_SEED` if it is set.
pub(super) fn seeds() -> Vec<u64> {
    std::env::var("ORLOG_SEED").map_or_else(
        |_| (0..30).collect(),
        |seed| vec![seed.parse().expect("a number")],
    )
}

/// Runs the scenario of the calling test.
pub(super) fn chaos(seed: u64) -> CommitCounts {
    let mut world = Chaos::new(seed);
    for _ in 0..120 {
        world.step();
    }
    world.met.acked = world.acked.len();
    let met = world.met;
    world.check();
    met
}

/// Number of commits by result.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CommitCounts {
    pub(super) acked: usize,
    pub(super) fenced: usize,
    pub(super) unanswered: usize,
}

impl CommitCounts {
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            acked: self.acked + other.acked,
            fenced: self.fenced + other.fenced,
            unanswered: self.unanswered + other.unanswered,
        }
    }
}

struct Chaos {
    seed: u64,
    chance: fastrand::Rng,
    log: MemoryLog,
    epoch: u64,
    pods: Vec<Pod>,
    dirs: Vec<TempDir>,
    next: u64,
    /// Acknowledged groups by position.
    acked: BTreeMap<u64, u64>,
    met: CommitCounts,
}

impl Chaos {
    fn new(seed: u64) -> Self {
        let chance = fastrand::Rng::with_seed(seed);
        let log = MemoryLog::new(900);
        let (pods, dirs, acked) = (vec![], vec![], BTreeMap::new());
        Self {
            seed,
            chance,
            log,
            epoch: 0,
            pods,
            dirs,
            next: 0,
            acked,
            met: CommitCounts::default(),
        }
    }

    fn step(&mut self) {
        match self.chance.u8(0..20) {
            0 | 1 => self.take_over(),
            2 if !self.pods.is_empty() => {
                let index = self.chance.usize(..self.pods.len());
                let dir = self.pods.swap_remove(index).crash();
                self.dirs.push(dir);
            }
            3 => drop(self.log.deliver_late()),
            4 => self.recover(),
            5 => self
                .pods
                .iter_mut()
                .for_each(|pod| pod.writer.flush().unwrap_or_default()),
            _ => self.commit(),
        }
    }

    /// Starts a new pod with a later epoch, sometimes with the same one, on an empty or an old directory.
    fn take_over(&mut self) {
        self.epoch += u64::from(self.chance.u8(0..4) > 0 || self.epoch == 0);
        let dir = if self.chance.bool() {
            self.dirs.pop()
        } else {
            None
        };
        let dir = dir.unwrap_or_else(|| tempfile::tempdir().expect("a directory"));
        let client = self.log.client();
        client.inject_faults((0..2).map(|_| self.fault()).collect::<Vec<_>>());
        let replication = ReplicationOptions {
            snapshot_commits: 7,
            ..ReplicationOptions::new(client.commit_log(), self.epoch)
        };
        match Pod::open(dir, client, replication) {
            Ok(pod) => self.pods.push(pod),
            Err(Error::Unavailable { .. } | Error::Fenced { .. }) => {}
            Err(error) => panic!("seed {}: {error}", self.seed),
        }
    }

    fn commit(&mut self) {
        let Some(index) = (!self.pods.is_empty()).then(|| self.chance.usize(..self.pods.len()))
        else {
            return;
        };
        let faults: Vec<_> = (0..self.chance.usize(..6)).map(|_| self.fault()).collect();
        self.next += 1;
        let pod = &mut self.pods[index];
        pod.log.inject_faults(faults);
        let mut result = pod.commit_once(self.next);
        for _ in 0..self.chance.usize(..4) {
            if matches!(result, Err(Error::Unavailable { .. })) {
                result = pod.writer.retry_commit();
            }
        }
        match result {
            Ok(position) => self.ack(position),
            // The result is unknown until the takeover reads the log. The pod cannot continue without it.
            Err(Error::Unavailable { .. }) => {
                self.met.unanswered += 1;
                drop(self.pods.swap_remove(index));
            }
            Err(Error::Fenced { .. }) => self.met.fenced += 1,
            Err(error) => panic!("seed {}: {error}", self.seed),
        }
    }

    fn ack(&mut self, position: u64) {
        let before = self.acked.insert(position, self.next);
        assert_eq!(
            before, None,
            "seed {}: commit {position} was acknowledged to two writers",
            self.seed
        );
    }

    fn recover(&mut self) {
        let Some(index) = (!self.pods.is_empty()).then(|| self.chance.usize(..self.pods.len()))
        else {
            return;
        };
        match self.pods[index].writer.recover() {
            Ok(()) => {}
            Err(Error::Fenced { .. } | Error::Unavailable { .. }) => {
                drop(self.pods.swap_remove(index));
            }
            Err(error) => panic!("seed {}: {error}", self.seed),
        }
    }

    fn fault(&mut self) -> AppendFault {
        let faults = [
            AppendFault::None,
            AppendFault::None,
            AppendFault::Lost,
            AppendFault::AckLost,
            AppendFault::Late,
            AppendFault::Rejected,
        ];
        faults[self.chance.usize(..faults.len())]
    }

    /// Asserts that every acknowledged commit is stored once at its position, for every reader; a pod with
    /// an empty directory reads the same.
    fn check(mut self) {
        self.pods.clear();
        let pod = Pod::new(&self.log, self.epoch + 1);
        let events = pod
            .reader
            .inspect_rows("dedupe", None, usize::MAX)
            .expect("open");
        let key = |number: u64| uuid::Uuid::from_u128(number.into());
        for (position, number) in &self.acked {
            let found = events
                .iter()
                .filter(|row| row.key.ends_with(&format!(":{}", key(*number))))
                .count();
            assert_eq!(
                found,
                1,
                "seed {}: commit {position} ({})",
                self.seed,
                key(*number)
            );
        }
        assert!(pod.reader.position() >= self.acked.len() as u64);
        assert_eq!(
            events.len() as u64,
            pod.reader.position(),
            "seed {}",
            self.seed
        );
        assert_eq!(
            pod.reader.outbox_depth().expect("open"),
            pod.reader.position(),
            "seed {}",
            self.seed
        );
        let expected = pod.everything();
        drop(pod);
        for dir in std::mem::take(&mut self.dirs) {
            self.epoch += 2;
            assert_eq!(
                Pod::on(dir, &self.log, self.epoch).everything(),
                expected,
                "seed {}",
                self.seed
            );
        }
    }
}
