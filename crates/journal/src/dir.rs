//! The journal's folder: which files it holds, and how a segment comes into it and leaves it.
//!
//! `00000000000000000001.seg` is a segment; `.new` one that is being made; `.spare` one that was dropped and waits to be
//! written again; `lock` keeps a second writer out. A file is made under another name, synced and then renamed, so
//! that whatever is called `.seg` has a whole header.

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

/// The folder, locked for as long as this lives.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    handle: File,
    options: Options,
    disk: Arc<dyn Disk>,
    spares: Vec<PathBuf>,
    _lock: File,
}

impl Folder {
    /// Creates the folder if it is not there, and locks it.
    pub(crate) fn open(path: &Path, options: Options, disk: Arc<dyn Disk>) -> Result<Self> {
        create_folder(path, disk.as_ref())?;
        let lock = lock(path.join("lock"))?;
        let handle = File::open(path).map_err(Error::io("open", path))?;
        Ok(Self { path: path.to_owned(), handle, options, disk, spares: Vec::new(), _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens every segment, the oldest first.
    pub(crate) fn segments(&self) -> Result<Vec<Segment>> {
        let mut found: Vec<(u64, PathBuf)> =
            self.files("seg")?.into_iter().filter_map(|path| Some((sequence_in(&path)?, path))).collect();
        found.sort_unstable();
        found.into_iter().map(|(first, path)| Segment::open(&path, first, self.options.identity)).collect()
    }

    /// Removes what was left half-made, and takes up the spares that still have the right size.
    pub(crate) fn tidy(&mut self) -> Result<()> {
        for path in self.files("new")? {
            fs::remove_file(&path).map_err(Error::io("remove", &path))?;
        }
        for path in self.files("spare")? {
            let length = fs::metadata(&path).map_err(Error::io("measure", &path))?.len();
            if length == self.options.segment_size() && self.spares.len() < self.options.spare_segments {
                self.spares.push(path);
            } else {
                fs::remove_file(&path).map_err(Error::io("remove", &path))?;
            }
        }
        Ok(())
    }

    /// Makes a segment with room for `room` bytes of records, durably. On an error the folder is as it was, unless
    /// the error is [`Error::Poisoned`].
    pub(crate) fn create(&mut self, first: u64, room: u64) -> Result<Segment> {
        let capacity = self.options.segment_size().max(SEGMENT_HEADER_BYTES + room);
        let spare = self.spares.last().filter(|_| capacity == self.options.segment_size());
        let made = match spare {
            Some(spare) => self.recycle(spare.clone(), first),
            None => self.allocate(first, capacity),
        };
        let (path, file, seed) = made?;
        let target = self.path.join(format!("{first:020}.seg"));
        fs::rename(&path, &target).map_err(Error::io("rename", &path))?;
        self.spares.retain(|spare| *spare != path);
        self.sync()?;
        Ok(Segment::new(target, file, first, seed, capacity))
    }

    /// Takes a segment out of the log, durably. Readers must have been told before.
    pub(crate) fn drop_segment(&mut self, segment: &Segment) -> Result<()> {
        let reusable = segment.capacity == self.options.segment_size();
        if reusable && self.spares.len() < self.options.spare_segments {
            let spare = segment.path.with_extension("spare");
            fs::rename(&segment.path, &spare).map_err(Error::io("rename", &segment.path))?;
            self.spares.push(spare);
        } else {
            fs::remove_file(&segment.path).map_err(Error::io("remove", &segment.path))?;
        }
        self.sync()
    }

    /// The bytes that spares take up.
    pub(crate) fn spare_bytes(&self) -> u64 {
        self.spares.len() as u64 * self.options.segment_size()
    }

    fn recycle(&self, path: PathBuf, first: u64) -> Result<(PathBuf, File, u32)> {
        let file = File::options().read(true).write(true).open(&path).map_err(Error::io("open", &path))?;
        let seed = self.head(&file, &path, first)?;
        Ok((path, file, seed))
    }

    fn allocate(&self, first: u64, capacity: u64) -> Result<(PathBuf, File, u32)> {
        let path = self.path.join(format!("{first:020}.new"));
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path);
        let file = file.map_err(Error::write("create", &path, capacity))?;
        let allocated =
            self.disk.allocate(&file, capacity).map_err(Error::write("allocate", &path, capacity));
        match allocated.and_then(|()| self.head(&file, &path, first)) {
            Ok(seed) => Ok((path, file, seed)),
            Err(error) => {
                // It holds the room that is missing. If it cannot be removed now, the next opening does it.
                fs::remove_file(&path).ok();
                Err(error)
            }
        }
    }

    /// Writes a segment's header, durably. The file is nobody's record yet: if the sync fails nothing is in doubt, and
    /// who tries again writes the header again.
    fn head(&self, file: &File, path: &Path, first: u64) -> Result<u32> {
        let (header, seed) = encode_segment_header(first, &self.options.identity);
        let size = header.len() as u64;
        self.disk.write_at(file, &header, 0).map_err(Error::write("write", path, size))?;
        self.disk.sync(file).map_err(Error::write("sync", path, size))?;
        Ok(seed)
    }

    fn sync(&self) -> Result<()> {
        self.disk.sync_folder(&self.handle).map_err(Error::poison(&self.path))
    }

    fn files(&self, extension: &str) -> Result<Vec<PathBuf>> {
        let entries = fs::read_dir(&self.path).map_err(Error::io("list", &self.path))?;
        let paths: io::Result<Vec<PathBuf>> = entries.map(|entry| Ok(entry?.path())).collect();
        let mut paths = paths.map_err(Error::io("list", &self.path))?;
        paths.retain(|path| path.extension() == Some(OsStr::new(extension)));
        Ok(paths)
    }
}

/// Opens every segment in a folder to look at it, the oldest first.
pub(crate) fn look(path: &Path) -> Result<Vec<Segment>> {
    let entries = fs::read_dir(path).map_err(Error::io("list", path))?;
    let paths: io::Result<Vec<PathBuf>> = entries.map(|entry| Ok(entry?.path())).collect();
    let paths = paths.map_err(Error::io("list", path))?;
    let is_segment = |path: &PathBuf| path.extension() == Some(OsStr::new("seg"));
    let mut found: Vec<(u64, PathBuf)> =
        paths.into_iter().filter(is_segment).filter_map(|path| Some((sequence_in(&path)?, path))).collect();
    found.sort_unstable();
    let mut segments = Vec::new();
    let mut owner = None;
    for (first, path) in found {
        let (segment, found) = Segment::look(&path, first)?;
        let expected = *owner.get_or_insert(found);
        if found != expected {
            return Err(Error::Foreign { path, found, expected });
        }
        segments.push(segment);
    }
    Ok(segments)
}

/// The number in a segment's name; a file named otherwise is not ours.
fn sequence_in(path: &Path) -> Option<u64> {
    let stem = path.file_stem()?.to_str()?;
    if stem.len() == 20 { stem.parse().ok() } else { None }
}

fn create_folder(path: &Path, disk: &dyn Disk) -> Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    create_folder_in(parent, path, disk)
}

fn create_folder_in(parent: &Path, path: &Path, disk: &dyn Disk) -> Result<()> {
    create_folder(parent, disk)?;
    fs::create_dir(path).map_err(Error::write("create", path, 0))?;
    let handle = File::open(parent).map_err(Error::io("open", parent))?;
    disk.sync_folder(&handle).map_err(Error::io("sync", parent))
}

fn lock(path: PathBuf) -> Result<File> {
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
