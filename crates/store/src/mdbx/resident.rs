//! Bounds the pages of the tables that this process keeps mapped in memory.
//!
//! Each page of the file that a read or a flush has touched stays mapped, and counts as resident
//! memory of the process, until the kernel reclaims it. Released pages remain in the page cache of
//! the kernel, so the next read maps them again without a read of the disk.

use std::fs;
use std::ops::Range;
use std::path::Path;

use rustix::mm::{Advice, madvise};
use rustix::param::page_size;

/// Releases the mapped pages of the file if the process has more than `limit` bytes of file pages
/// in memory. Returns whether it did.
pub(super) fn release(file: &Path, limit: u64) -> bool {
    if resident_file_bytes().is_none_or(|resident| resident <= limit) {
        return false;
    }
    let Some(mapped) = mapping_of(file) else {
        return false;
    };

    #[expect(unsafe_code, reason = "madvise changes the mapping of memory")]
    // SAFETY: the range is a shared, read-only mapping of the file by MDBX. A dropped page of such
    // a mapping is read from the file again, so its content does not change.
    let released = unsafe { madvise(mapped.start as *mut _, mapped.len(), Advice::LinuxDontNeed) };
    released.is_ok()
}

/// Returns the file pages in memory of this process, in bytes.
fn resident_file_bytes() -> Option<u64> {
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split(' ').nth(2)?.parse().ok()?;
    Some(pages * page_size() as u64)
}

/// Returns the addresses at which the file is mapped read-only.
fn mapping_of(file: &Path) -> Option<Range<usize>> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let file = fs::canonicalize(file).ok()?;
    let file = file.to_str()?;

    maps.lines().find_map(|line| {
        // 7f5c1000-7f5c3000 r--s 00000000 fd:01 1234    /data/tables/mdbx.dat
        let (addresses, rest) = line.split_once(' ')?;
        // The path of another file can end with the same text, so the whole path is compared.
        let is_table =
            rest.starts_with("r--s") && line.ends_with(file) && rest.contains(&format!(" {file}"));
        let (start, end) = addresses.split_once('-').filter(|_| is_table)?;
        Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
    })
}

#[cfg(test)]
mod tests {
    use crate::samples::{apply, at, key, small, transition};

    #[test]
    fn released_pages_are_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let (mut writer, reader) = crate::open(dir.path(), small()).unwrap();
        let changes: Vec<_> = (0..200)
            .map(|n| apply(transition(&key("acme", &format!("o-{n}")), 1)))
            .collect();
        writer.commit(&changes, at(1)).unwrap();
        writer.flush().unwrap();
        let file = dir.path().join("tables/mdbx.dat");
        assert!(
            super::release(&file, 0),
            "the file is mapped, and the test itself has file pages in memory"
        );
        assert!(!super::release(&file, u64::MAX));
        assert_eq!(
            reader
                .instance(&key("acme", "o-7"))
                .unwrap()
                .unwrap()
                .version,
            1
        );
        assert_eq!(super::mapping_of(&dir.path().join("tables/other")), None);
    }
}
