//! Directory of the journal: its files, and the creation and removal of segments.
//!
//! `00000000000000000001.seg` is a segment, `.new` is a segment under construction, and `.spare` is
//! a dropped segment for reuse. `lock` excludes a second writer. A file is created under another
//! name, synced and then renamed, so every `.seg` file has a complete header.

use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::format::{SEGMENT_HEADER_BYTES, encode_segment_header};
use crate::options::Options;
use crate::segment::Segment;

/// Directory of the journal, locked until this value is dropped.
#[derive(Debug)]
pub(crate) struct JournalDir {
    path: PathBuf,
    handle: File,
    options: Options,
    disk: Arc<dyn Disk>,
    spares: Vec<PathBuf>,
    _lock: File,
}

impl JournalDir {
    /// Creates the directory if it is missing, and locks it.
    pub(crate) fn open(path: &Path, options: Options, disk: Arc<dyn Disk>) -> Result<Self> {
        ensure_dir(path, disk.as_ref())?;
        let lock = lock(path.join("lock"))?;
        let handle = File::open(path).map_err(Error::io("open", path))?;
        Ok(Self {
            path: path.to_owned(),
            handle,
            options,
            disk,
            spares: Vec::new(),
            _lock: lock,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens all segments, oldest first.
    pub(crate) fn segments(&self) -> Result<Vec<Segment>> {
        let mut segments = Vec::new();
        for (first, path) in segment_files(&self.path)? {
            segments.push(Segment::open(&path, first, self.options.identity)?);
        }
        Ok(segments)
    }

    /// Removes incomplete files, and keeps the spares that have the right size.
    pub(crate) fn remove_stale_files(&mut self) -> Result<()> {
        // A `.new` file is never part of the log: a process ended before its rename.
        for path in files(&self.path, "new")? {
            fs::remove_file(&path).map_err(Error::io("remove", &path))?;
        }

        // An earlier process may have had another segment size or another number of spares.
        for path in files(&self.path, "spare")? {
            let length = fs::metadata(&path)
                .map_err(Error::io("measure", &path))?
                .len();
            if length == self.options.segment_size()
                && self.spares.len() < self.options.spare_segments
            {
                self.spares.push(path);
            } else {
                fs::remove_file(&path).map_err(Error::io("remove", &path))?;
            }
        }
        Ok(())
    }

    /// Creates a segment durably, with space for `needed_bytes` bytes of records. On an error the
    /// directory is unchanged, unless the error is [`Error::Poisoned`].
    pub(crate) fn create(&mut self, first: u64, needed_bytes: u64) -> Result<Segment> {
        // A record larger than a segment has a segment of its own, because a record never spans two
        // files.
        let capacity = self
            .options
            .segment_size()
            .max(SEGMENT_HEADER_BYTES + needed_bytes);
        let spare = self
            .spares
            .last()
            .filter(|_| capacity == self.options.segment_size());

        let created = match spare {
            Some(spare) => self.recycle(spare.clone(), first),
            None => self.allocate(first, capacity),
        };
        let (path, file, seed) = created?;

        let target = self.path.join(format!("{first:020}.seg"));
        // Only now: every `.seg` file has a complete header.
        fs::rename(&path, &target).map_err(Error::io("rename", &path))?;
        self.spares.retain(|spare| *spare != path);
        self.sync()?;
        Ok(Segment::new(target, file, first, seed, capacity))
    }

    /// Removes a segment from the log, durably. Readers must be notified before.
    pub(crate) fn drop_segment(&mut self, segment: &Segment) -> Result<()> {
        let reusable = segment.capacity == self.options.segment_size();
        if reusable && self.spares.len() < self.options.spare_segments {
            // A reader may still read the old file. It compares the seed and the sequence of each
            // record, so the next content of the file is not confused with this one.
            let spare = segment.path.with_extension("spare");
            fs::rename(&segment.path, &spare).map_err(Error::io("rename", &segment.path))?;
            self.spares.push(spare);
        } else {
            fs::remove_file(&segment.path).map_err(Error::io("remove", &segment.path))?;
        }
        self.sync()
    }

    /// Returns the size of the spares, in bytes.
    pub(crate) fn spare_bytes(&self) -> u64 {
        self.spares.len() as u64 * self.options.segment_size()
    }

    fn recycle(&self, path: PathBuf, first: u64) -> Result<(PathBuf, File, u32)> {
        // The old records stay in the file. The header contains a terminator, and their checksums
        // start from another seed.
        let file = self
            .disk
            .open(File::options().read(true).write(true), &path);
        let file = file.map_err(Error::io("open", &path))?;
        let seed = self.write_header(&file, &path, first)?;
        Ok((path, file, seed))
    }

    fn allocate(&self, first: u64, capacity: u64) -> Result<(PathBuf, File, u32)> {
        let path = self.path.join(format!("{first:020}.new"));
        let file = self.disk.open(
            File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(true),
            &path,
        );
        let file = file.map_err(Error::write("create", &path, capacity))?;

        let allocated = self
            .disk
            .allocate(&file, capacity)
            .map_err(Error::write("allocate", &path, capacity));

        match allocated.and_then(|()| self.write_header(&file, &path, first)) {
            Ok(seed) => Ok((path, file, seed)),
            Err(error) => {
                // It occupies the missing space. If the removal fails now, the next opening removes
                // it.
                fs::remove_file(&path).ok();
                Err(error)
            }
        }
    }

    /// Writes the header of a segment, durably. The file contains no record yet: if the sync fails,
    /// nothing is in doubt and a retry writes the header again.
    fn write_header(&self, file: &File, path: &Path, first: u64) -> Result<u32> {
        let (header, seed) = encode_segment_header(first, &self.options.identity);
        let size = header.len() as u64;
        self.disk
            .write_at(file, &header, 0)
            .map_err(Error::write("write", path, size))?;

        self.disk
            .sync(file)
            .map_err(Error::write("sync", path, size))?;
        Ok(seed)
    }

    /// Syncs the names in the directory.
    pub(crate) fn sync(&self) -> Result<()> {
        self.disk
            .sync_dir(&self.handle)
            .map_err(Error::poison(&self.path))
    }
}

/// Returns the files of a directory with this extension.
fn files(dir: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir).map_err(Error::io("list", dir))?;
    let paths: io::Result<Vec<PathBuf>> = entries.map(|entry| Ok(entry?.path())).collect();
    let mut paths = paths.map_err(Error::io("list", dir))?;
    paths.retain(|path| path.extension() == Some(OsStr::new(extension)));
    Ok(paths)
}

/// Returns the segments of a directory with their first sequences, oldest first.
fn segment_files(dir: &Path) -> Result<Vec<(u64, PathBuf)>> {
    let mut found: Vec<_> = files(dir, "seg")?
        .into_iter()
        .filter_map(|path| Some((sequence_in(&path)?, path)))
        .collect();
    found.sort_unstable();
    Ok(found)
}

/// Opens all segments of a directory read-only, oldest first.
pub(crate) fn open_segments_read_only(path: &Path) -> Result<Vec<Segment>> {
    let mut segments = Vec::new();
    let mut owner = None;
    for (first, path) in segment_files(path)? {
        let (segment, found) = Segment::open_read_only(&path, first)?;
        let expected = *owner.get_or_insert(found);
        if found != expected {
            return Err(Error::WrongIdentity {
                path,
                found,
                expected,
            });
        }
        segments.push(segment);
    }
    Ok(segments)
}

/// Returns whether a directory contains segments.
///
/// # Errors
/// [`Error::Io`].
pub fn has_segments(path: &Path) -> Result<bool> {
    match fs::read_dir(path) {
        Ok(entries) => Ok(entries
            .filter_map(io::Result::ok)
            .any(|entry| entry.path().extension() == Some(OsStr::new("seg")))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::io("list", path)(error)),
    }
}

/// Moves a journal that cannot be continued to the first unused name `<path>-aside-<n>`, and
/// returns that name; `None` if the directory does not exist.
///
/// # Errors
/// [`Error::Io`].
pub fn move_aside(path: &Path) -> Result<Option<PathBuf>> {
    let mut number = 1;
    let free = loop {
        let mut name = path.as_os_str().to_owned();
        name.push(format!("-aside-{number}"));
        let candidate = PathBuf::from(name);
        if !candidate.exists() {
            break candidate;
        }
        number += 1;
    };

    match fs::rename(path, &free) {
        Ok(()) => Ok(Some(free)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("rename", path)(error)),
    }
}

/// Returns the number in the name of a segment; `None` for other files.
fn sequence_in(path: &Path) -> Option<u64> {
    let stem = path.file_stem()?.to_str()?;
    if stem.len() == 20 {
        stem.parse().ok()
    } else {
        None
    }
}

fn ensure_dir(path: &Path, disk: &dyn Disk) -> Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    create_dir_in(parent, path, disk)
}

fn create_dir_in(parent: &Path, path: &Path, disk: &dyn Disk) -> Result<()> {
    ensure_dir(parent, disk)?;
    fs::create_dir(path).map_err(Error::write("create", path, 0))?;
    let handle = File::open(parent).map_err(Error::io("open", parent))?;
    // Without this sync, a power failure could remove a directory with durable records.
    disk.sync_dir(&handle).map_err(Error::io("sync", parent))
}

fn lock(path: PathBuf) -> Result<File> {
    // The file is never deleted: a second process could lock a new file of the same name.
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(Error::write("create", &path, 0))?;

    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::Locked { path }),
        Err(TryLockError::Error(error)) => Err(Error::io("lock", &path)(error)),
    }
}
