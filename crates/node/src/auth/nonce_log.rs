//! Nonces of one node, in files: a nonce is accepted once, also after `kill -9`.
//!
//! A file contains the hashes of the accepted nonces. It is written without fsync, so a crash of
//! the machine can lose nonces. The file `boot` therefore names the boot of the machine in which
//! the node runs: if it has changed without a clean stop, or if the file is missing, signatures
//! that may have been accepted before are rejected.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use orlog_model::{Clock, SteadyTime};
use orlog_signature::TimeWindow;
use parking_lot::Mutex;
use uuid::Uuid;

use crate::private_file::{self, with_path};

/// File with the boot of the machine, and whether the node stopped cleanly.
const BOOT: &str = "boot";
/// Content of the file [`BOOT`] after a clean stop.
const CLEAN: &str = "stopped";
/// Id of the current boot of the machine.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// Extension of the files with nonces. Their names are their times of creation, in milliseconds
/// since 1970.
const EXTENSION: &str = "log";

/// Maximum number of nonces of a generation: 32 MB on disk, and about 70 MB in memory.
const MAX_NONCES: usize = 2_000_000;

/// Hash of a nonce and its key.
pub(super) type NonceHash = [u8; 16];

/// Accepted nonces. Two generations, each as long as a nonce can be repeated: the older one is
/// deleted as a whole.
pub(super) struct NonceLog {
    dir: PathBuf,
    retention: Duration,
    clock: Arc<dyn Clock>,
    accepted_from: i64,
    state: Mutex<Generations>,
}

struct Generations {
    current: Generation,
    previous: Generation,
    /// File of new nonces; `None` before the first one, and after a failed write.
    file: Option<File>,
    /// Start of the current generation.
    started: SteadyTime,
    /// Whether the files are complete, and durable.
    is_closed: bool,
}

#[derive(Default)]
struct Generation {
    nonces: HashSet<NonceHash>,
    files: Vec<PathBuf>,
}

impl NonceLog {
    /// Reads the nonces of an earlier process. Blocks.
    ///
    /// # Errors
    /// If the directory cannot be read or written.
    pub(super) fn open(dir: &Path, window: TimeWindow, clock: Arc<dyn Clock>) -> io::Result<Self> {
        fs::create_dir_all(dir).map_err(with_path(dir))?;
        let boot_file = dir.join(BOOT);

        // Without an id, each start counts as another boot.
        let boot = fs::read_to_string(BOOT_ID).unwrap_or_else(|_| Uuid::now_v7().to_string());
        let boot = boot.trim();
        let retention = window.replay_time();
        let now = clock.now().as_millis();
        let accepted_from = match fs::read_to_string(&boot_file) {
            Ok(last) if last == boot || last == CLEAN => i64::MIN,
            // The crashed machine may have accepted signatures of clients whose clocks are ahead.
            Ok(_) => now / 1000 + i64::try_from(window.leeway.as_secs()).unwrap_or(i64::MAX),
            Err(error) if error.kind() == io::ErrorKind::NotFound => now / 1000,
            Err(error) => return Err(with_path(&boot_file)(error)),
        };

        if let Err(error) = private_file::replace(&boot_file, boot.as_bytes()) {
            // A node must start on a full disk. Without the file, the next process rejects earlier
            // signatures.
            tracing::error!(%error, "boot of the nonces not stored; the next start rejects earlier \
                signatures");
            fs::remove_file(&boot_file)
                .or_else(|error| match error.kind() {
                    io::ErrorKind::NotFound => Ok(()),
                    _ => Err(error),
                })
                .map_err(with_path(&boot_file))?;
        }

        // A nonce matters as long as a signature with it can be in the time window.
        let oldest = now - i64::try_from(retention.as_millis()).unwrap_or(i64::MAX);
        let previous = read(dir, oldest).map_err(with_path(dir))?;
        let started = clock.steady();
        let state = Generations {
            current: Generation::default(),
            previous,
            file: None,
            started,
            is_closed: false,
        };

        Ok(Self {
            dir: dir.to_owned(),
            retention,
            clock,
            accepted_from,
            state: Mutex::new(state),
        })
    }

    /// Returns the time before which signatures may have been accepted by an earlier process, in
    /// seconds since 1970.
    pub(super) fn accepted_from(&self) -> i64 {
        self.accepted_from
    }

    /// Accepts a nonce; `false` if it was accepted before. The write is one of 16 bytes to the page
    /// cache.
    ///
    /// # Errors
    /// If the nonce cannot be stored. It is then not accepted.
    pub(super) fn claim(&self, nonce: NonceHash) -> io::Result<bool> {
        let mut state = self.state.lock();
        if state.is_closed {
            return Err(io::Error::other("the node has stopped"));
        }

        // Steady time: a clock that is set forward must not shorten the time for which nonces are
        // kept.
        let now = self.clock.steady();
        if now.duration_since(state.started) >= self.retention {
            state.rotate(now);
        }

        if state.current.nonces.contains(&nonce) || state.previous.nonces.contains(&nonce) {
            return Ok(false);
        }
        if state.current.nonces.len() >= MAX_NONCES {
            // To forget a nonce would permit its repetition.
            return Err(io::Error::other(format!(
                "{MAX_NONCES} signed requests were accepted within {:?}; limit their rate \
                 (http.per_caller.max_requests_per_second), or sign fewer requests: a stream of a \
                 worker is signed once",
                self.retention
            )));
        }

        let mut file = match state.file.take() {
            Some(file) => file,
            None => self.create(&mut state)?,
        };

        // After a failed write, the next nonce is the first one of another file.
        file.write_all(&nonce)?;
        state.file = Some(file);
        state.current.nonces.insert(nonce);

        Ok(true)
    }

    /// Makes all nonces durable: the next process accepts signatures that were created before its
    /// start.
    ///
    /// # Errors
    /// If the files cannot be synced.
    pub(super) fn close(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        // Before the sync: a nonce that is accepted after it might be lost, although the mark
        // promises the opposite.
        state.is_closed = true;
        for file in state.previous.files.iter().chain(&state.current.files) {
            File::open(file)?.sync_all()?;
        }
        File::open(&self.dir)?.sync_all()?;

        // Last: the mark states that everything before it is durable.
        private_file::replace(&self.dir.join(BOOT), CLEAN.as_bytes())
    }

    fn create(&self, state: &mut Generations) -> io::Result<File> {
        let mut name = self.clock.now().as_millis();
        loop {
            let path = self.dir.join(format!("{name}.{EXTENSION}"));
            match File::options()
                // Existing files are never continued: a torn end would shift all following nonces.
                .append(true)
                .create_new(true)
                .mode(0o600)
                .open(&path)
            {
                Ok(file) => {
                    state.current.files.push(path);
                    return Ok(file);
                }
                // Another file of the same millisecond, or of a time before the clock was set back.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => name += 1,
                Err(error) => return Err(error),
            }
        }
    }
}

impl Generations {
    /// Deletes the previous generation and starts another one.
    fn rotate(&mut self, now: SteadyTime) {
        for file in self.previous.files.drain(..) {
            // A file that remains is read at the next start, and deleted then.
            fs::remove_file(file).ok();
        }

        // A whole generation at once: each lasts as long as a nonce can be repeated, so that no
        // file is rewritten.
        self.previous = std::mem::take(&mut self.current);
        self.file = None;
        self.started = now;
    }
}

/// Reads all files with nonces that were accepted after a time; deletes the others.
fn read(dir: &Path, after: i64) -> io::Result<Generation> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let time = path
            .file_stem()
            .and_then(|stem| stem.to_str()?.parse::<i64>().ok());

        if let Some(time) =
            time.filter(|_| path.extension().is_some_and(|found| found == EXTENSION))
        {
            files.push((time, path));
        }
    }

    files.sort_unstable();
    let mut all = Generation::default();
    for (index, (_, path)) in files.iter().enumerate() {
        // A file ends when the next one starts.
        if files.get(index + 1).is_some_and(|(end, _)| *end <= after) {
            fs::remove_file(path)?;
            continue;
        }

        let bytes = fs::read(path)?;
        // A torn end is a nonce whose write did not complete, so it was never accepted.
        let (nonces, _torn) = bytes.as_chunks();
        all.nonces.extend(nonces);
        all.files.push(path.clone());
    }

    Ok(all)
}

#[cfg(test)]
mod tests {
    use orlog_model::Timestamp;
    use orlog_testkit::SimClock;

    use super::*;

    const WINDOW: TimeWindow = TimeWindow {
        max_age: Duration::from_mins(5),
        leeway: Duration::from_secs(30),
    };
    /// Start of the tests in seconds since 1970.
    const START: i64 = 1_700_000_000;

    struct Fixture {
        dir: tempfile::TempDir,
        clock: Arc<SimClock>,
    }

    impl Fixture {
        fn new() -> Self {
            let clock = SimClock::new(Timestamp::from_millis(START * 1000));
            Self {
                dir: tempfile::tempdir().unwrap(),
                clock,
            }
        }

        fn open(&self) -> NonceLog {
            NonceLog::open(
                self.dir.path(),
                WINDOW,
                Arc::clone(&self.clock) as Arc<dyn Clock>,
            )
            .unwrap()
        }

        fn files(&self) -> usize {
            fs::read_dir(self.dir.path()).unwrap().count() - 1
        }
    }

    fn claim(log: &NonceLog, number: u8) -> bool {
        log.claim([number; 16]).unwrap()
    }

    #[test]
    fn nonce_is_accepted_once_also_by_the_next_process() {
        let fixture = Fixture::new();
        let log = fixture.open();
        assert!(claim(&log, 1) && !claim(&log, 1) && claim(&log, 2));
        // As after `kill -9`: no method runs.
        std::mem::forget(log);
        let log = fixture.open();
        assert!(!claim(&log, 1) && !claim(&log, 2) && claim(&log, 3));
        assert_eq!(log.accepted_from(), i64::MIN);
        drop(log);
        let log = fixture.open();
        assert!(!claim(&log, 1) && !claim(&log, 3));
    }

    #[test]
    fn nonces_are_deleted_after_the_time_in_which_they_can_be_repeated() {
        let fixture = Fixture::new();
        let log = fixture.open();
        assert!(claim(&log, 1));
        fixture.clock.advance(WINDOW.max_age);
        assert!(!claim(&log, 1) && claim(&log, 2));
        for number in 3..20 {
            fixture
                .clock
                .advance(WINDOW.replay_time() + Duration::from_secs(1));
            assert!(claim(&log, number) && !claim(&log, number) && !claim(&log, number - 1));
        }
        assert!(
            claim(&log, 1) && fixture.files() <= 2,
            "{} files",
            fixture.files()
        );
        // Each start has a file of its own, which are deleted as those of one process.
        for number in 20..30 {
            assert!(claim(&fixture.open(), number));
            fixture.clock.advance(Duration::from_mins(1));
        }
        assert!(
            !claim(&fixture.open(), 29) && fixture.files() <= 9,
            "{} files",
            fixture.files()
        );
    }

    #[test]
    fn signatures_of_an_earlier_process_are_rejected_after_a_crash_of_the_machine_or_without_files()
    {
        let fixture = Fixture::new();
        assert_eq!(fixture.open().accepted_from(), START);
        assert_eq!(fixture.open().accepted_from(), i64::MIN);
        fixture.clock.advance(Duration::from_mins(1));
        fs::write(fixture.dir.path().join(BOOT), "another boot").unwrap();
        assert_eq!(fixture.open().accepted_from(), START + 60 + 30);
        fs::remove_file(fixture.dir.path().join(BOOT)).unwrap();
        assert_eq!(fixture.open().accepted_from(), START + 60);
    }

    #[test]
    fn clean_stop_keeps_signatures_valid_on_another_boot() {
        let fixture = Fixture::new();
        let log = fixture.open();
        assert!(claim(&log, 1));
        log.close().unwrap();
        assert!(log.claim([2; 16]).is_err(), "the files are complete");
        assert_eq!(
            fs::read_to_string(fixture.dir.path().join(BOOT)).unwrap(),
            CLEAN
        );
        let log = fixture.open();
        assert!(log.accepted_from() == i64::MIN && !claim(&log, 1));
        assert_ne!(
            fs::read_to_string(fixture.dir.path().join(BOOT)).unwrap(),
            CLEAN
        );
    }

    #[test]
    fn opens_on_a_full_disk() {
        let fixture = Fixture::new();
        let log = fixture.open();
        assert!(claim(&log, 1));
        drop(log);
        // As on a full disk: no temporary file can be created.
        let boot = fixture.dir.path().join(BOOT);
        fs::create_dir(boot.with_extension("new")).unwrap();
        let log = fixture.open();
        assert!(log.accepted_from() == i64::MIN && !claim(&log, 1));
        drop(log);
        // After a clean stop, the file differs. It is removed, so that the next process rejects
        // earlier signatures.
        fs::write(&boot, CLEAN).unwrap();
        assert_eq!(fixture.open().accepted_from(), i64::MIN);
        assert!(!boot.exists());
        assert_eq!(fixture.open().accepted_from(), START);
    }

    #[test]
    fn torn_record_is_ignored_and_a_failed_write_accepts_nothing() {
        let fixture = Fixture::new();
        let log = fixture.open();
        assert!(claim(&log, 1));
        let file = log.state.lock().current.files[0].clone();
        File::options()
            .append(true)
            .open(&file)
            .unwrap()
            .write_all(&[2; 7])
            .unwrap();
        log.state.lock().file = Some(File::open("/dev/null").unwrap());
        assert!(log.claim([3; 16]).is_err(), "the file cannot be written");
        assert!(claim(&log, 3) && !claim(&log, 3));
        drop(log);
        let log = fixture.open();
        assert!(!claim(&log, 1) && !claim(&log, 3) && claim(&log, 2));
    }
}
