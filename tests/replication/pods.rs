//! Pods with a folder each.

use std::collections::BTreeMap;

use orlog_store::{Error, Reader, Replication, Writer, open_replicated};
use orlog_testkit::memory_log::{Fault, MemoryLog};
use tempfile::TempDir;

use crate::groups::{at, everything, group, small};

/// What a store without a log answers before and after each of so many commits.
pub(super) fn model(commits: u64) -> Vec<String> {
    let (mut writer, reader) = orlog_store::memory(small());
    let mut answers = vec![everything(&reader)];
    for number in 1..=commits {
        writer.commit(&group(number), at(number)).expect("memory is large");
        answers.push(everything(&reader));
    }
    answers
}

/// A process that owns the shard, or thinks so.
pub(super) struct Pod {
    pub(super) folder: TempDir,
    pub(super) log: MemoryLog,
    pub(super) writer: Writer,
    pub(super) reader: Reader,
}

impl Pod {
    /// Takes over into an empty folder.
    pub(super) fn new(log: &MemoryLog, epoch: u64) -> Self {
        Self::on(tempfile::tempdir().expect("a folder"), log, epoch)
    }

    /// Takes over with what an earlier life left.
    pub(super) fn on(folder: TempDir, log: &MemoryLog, epoch: u64) -> Self {
        let client = log.client();
        Self::open(folder, client.clone(), Replication::new(client.port(), epoch)).expect("the log is sound")
    }

    /// Saves a snapshot every so many commits.
    pub(super) fn with_snapshots(log: &MemoryLog, epoch: u64, snapshot_commits: u64) -> Self {
        let client = log.client();
        let replication = Replication { snapshot_commits, ..Replication::new(client.port(), epoch) };
        Self::open(tempfile::tempdir().expect("a folder"), client, replication).expect("the log is sound")
    }

    fn open(folder: TempDir, log: MemoryLog, replication: Replication) -> Result<Self, Error> {
        let (writer, reader) = open_replicated(folder.path(), small(), replication)?;
        Ok(Self { folder, log, writer, reader })
    }

    /// Commits and waits for the log as a committer does, as long as it is there.
    pub(super) fn commit(&mut self, number: u64) -> Result<(), Error> {
        let mut result = self.commit_once(number);
        for _ in 0..20 {
            match result {
                Err(Error::Unavailable { .. }) => result = self.writer.resume(),
                other => return other.map(drop),
            }
        }
        result.map(drop)
    }

    /// Commits and does not wait.
    pub(super) fn commit_once(&mut self, number: u64) -> Result<u64, Error> {
        self.writer.commit(&group(number), at(number))
    }

    pub(super) fn everything(&self) -> String {
        everything(&self.reader)
    }

    /// How often its tables were moved aside.
    pub(super) fn asides(&self) -> usize {
        let entries = std::fs::read_dir(self.folder.path()).expect("a folder");
        entries
            .filter(|e| e.as_ref().is_ok_and(|e| e.file_name().to_string_lossy().starts_with("aside-")))
            .count()
    }

    /// Its folder as a `kill -9` now would leave it, as long as nothing is being folded.
    pub(super) fn copy_folder(&self) -> TempDir {
        let copy = tempfile::tempdir().expect("a folder");
        super::copy(self.folder.path(), copy.path());
        copy
    }

    /// What it leaves. Dropped, a writer brings nothing more to the disk, so this is as good as killed.
    pub(super) fn crash(self) -> TempDir {
        drop(self.writer);
        self.folder
    }
}

/// The seeds to try: one where `ORLOG_SEED` names it.
pub(super) fn seeds() -> Vec<u64> {
    std::env::var("ORLOG_SEED")
        .map_or_else(|_| (0..30).collect(), |seed| vec![seed.parse().expect("a number")])
}

/// See the test that calls it.
pub(super) fn chaos(seed: u64) -> Met {
    let mut world = Chaos::new(seed);
    for _ in 0..120 {
        world.step();
    }
    world.met.acked = world.acked.len();
    let met = world.met;
    world.check();
    met
}

/// How often a commit ended in each way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Met {
    pub(super) acked: usize,
    pub(super) fenced: usize,
    pub(super) silent: usize,
}

impl Met {
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            acked: self.acked + other.acked,
            fenced: self.fenced + other.fenced,
            silent: self.silent + other.silent,
        }
    }
}

struct Chaos {
    seed: u64,
    chance: fastrand::Rng,
    log: MemoryLog,
    epoch: u64,
    pods: Vec<Pod>,
    folders: Vec<TempDir>,
    next: u64,
    /// What was acknowledged: the number of the group, by position.
    acked: BTreeMap<u64, u64>,
    met: Met,
}

impl Chaos {
    fn new(seed: u64) -> Self {
        let chance = fastrand::Rng::with_seed(seed);
        let log = MemoryLog::new(900);
        let (pods, folders, acked) = (vec![], vec![], BTreeMap::new());
        Self { seed, chance, log, epoch: 0, pods, folders, next: 0, acked, met: Met::default() }
    }

    fn step(&mut self) {
        match self.chance.u8(0..20) {
            0 | 1 => self.take_over(),
            2 if !self.pods.is_empty() => {
                let index = self.chance.usize(..self.pods.len());
                let folder = self.pods.swap_remove(index).crash();
                self.folders.push(folder);
            }
            3 => drop(self.log.deliver()),
            4 => self.recover(),
            5 => self.pods.iter_mut().for_each(|pod| pod.writer.flush().unwrap_or_default()),
            _ => self.commit(),
        }
    }

    /// A new pod with a later epoch, sometimes with the same one, on an empty folder or an old one.
    fn take_over(&mut self) {
        self.epoch += u64::from(self.chance.u8(0..4) > 0 || self.epoch == 0);
        let folder = if self.chance.bool() { self.folders.pop() } else { None };
        let folder = folder.unwrap_or_else(|| tempfile::tempdir().expect("a folder"));
        let client = self.log.client();
        client.fail((0..2).map(|_| self.fault()).collect::<Vec<_>>());
        let replication = Replication { snapshot_commits: 7, ..Replication::new(client.port(), self.epoch) };
        match Pod::open(folder, client, replication) {
            Ok(pod) => self.pods.push(pod),
            Err(Error::Unavailable { .. } | Error::Fenced { .. }) => {}
            Err(error) => panic!("seed {}: {error}", self.seed),
        }
    }

    fn commit(&mut self) {
        let Some(index) = (!self.pods.is_empty()).then(|| self.chance.usize(..self.pods.len())) else {
            return;
        };
        let faults: Vec<_> = (0..self.chance.usize(..6)).map(|_| self.fault()).collect();
        self.next += 1;
        let pod = &mut self.pods[index];
        pod.log.fail(faults);
        let mut result = pod.commit_once(self.next);
        for _ in 0..self.chance.usize(..4) {
            if matches!(result, Err(Error::Unavailable { .. })) {
                result = pod.writer.resume();
            }
        }
        match result {
            Ok(position) => self.ack(position),
            // Nobody knows; what is found later decides. The pod cannot go on without that.
            Err(Error::Unavailable { .. }) => {
                self.met.silent += 1;
                drop(self.pods.swap_remove(index));
            }
            Err(Error::Fenced { .. }) => self.met.fenced += 1,
            Err(error) => panic!("seed {}: {error}", self.seed),
        }
    }

    fn ack(&mut self, position: u64) {
        let before = self.acked.insert(position, self.next);
        assert_eq!(before, None, "seed {}: commit {position} was acknowledged to two writers", self.seed);
    }

    fn recover(&mut self) {
        let Some(index) = (!self.pods.is_empty()).then(|| self.chance.usize(..self.pods.len())) else {
            return;
        };
        match self.pods[index].writer.recover() {
            Ok(()) => {}
            Err(Error::Fenced { .. } | Error::Unavailable { .. }) => drop(self.pods.swap_remove(index)),
            Err(error) => panic!("seed {}: {error}", self.seed),
        }
    }

    fn fault(&mut self) -> Fault {
        let faults = [Fault::None, Fault::None, Fault::Lost, Fault::AckLost, Fault::Late, Fault::Refused];
        faults[self.chance.usize(..faults.len())]
    }

    /// What was acknowledged is there, once, in its place, whoever looks; and a copy that never was anywhere else says the same.
    fn check(mut self) {
        self.pods.clear();
        let pod = Pod::new(&self.log, self.epoch + 1);
        let events = pod.reader.rows("dedupe", None, usize::MAX).expect("open");
        let key = |number: u64| format!("event-{number}");
        for (position, number) in &self.acked {
            let found = events.iter().filter(|row| row.key.ends_with(&format!(":{}", key(*number)))).count();
            assert_eq!(found, 1, "seed {}: commit {position} ({})", self.seed, key(*number));
        }
        assert!(pod.reader.position() >= self.acked.len() as u64);
        assert_eq!(events.len() as u64, pod.reader.position(), "seed {}", self.seed);
        assert_eq!(pod.reader.outbox_depth().expect("open"), pod.reader.position(), "seed {}", self.seed);
        let expected = pod.everything();
        drop(pod);
        for folder in std::mem::take(&mut self.folders) {
            self.epoch += 2;
            assert_eq!(Pod::on(folder, &self.log, self.epoch).everything(), expected, "seed {}", self.seed);
        }
    }
}
