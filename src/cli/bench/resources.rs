//! Resource usage of the process, as reported by the kernel.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;

/// CPU time and memory.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ResourceUsage {
    /// User and system CPU time of all threads.
    pub(super) cpu: Duration,
    /// Resident memory in bytes.
    pub(super) resident: u64,
}

impl ResourceUsage {
    /// Returns the resource usage of this process.
    pub(super) fn now() -> anyhow::Result<Self> {
        Self::of("self")
    }

    /// Returns the resource usage of another process.
    pub(super) fn by(process: u32) -> anyhow::Result<Self> {
        Self::of(&process.to_string())
    }

    fn of(process: &str) -> anyhow::Result<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat"));
        let stat =
            stat.context("cannot read /proc; the benchmark requires Linux and a running process")?;
        // The second field is the name of the program in parentheses, which can contain spaces.
        let fields: Vec<&str> = stat
            .rsplit(") ")
            .next()
            .unwrap_or_default()
            .split(' ')
            .collect();

        let ticks = |index: usize| {
            fields
                .get(index)
                .and_then(|f| f.parse::<u64>().ok())
                .unwrap_or(0)
        };
        let per_second = rustix::param::clock_ticks_per_second();
        // The second field is the resident set, in pages.
        let statm = std::fs::read_to_string(format!("/proc/{process}/statm"))?;
        let pages = statm
            .split(' ')
            .nth(1)
            .and_then(|f| f.parse::<u64>().ok())
            .unwrap_or(0);

        Ok(Self {
            // utime and stime are the fields 14 and 15 of stat; two fields precede the `) `.
            cpu: Duration::from_millis((ticks(11) + ticks(12)) * 1_000 / per_second.max(1)),
            resident: pages * u64::try_from(rustix::param::page_size())?,
        })
    }

    /// Returns the usage since `before`; memory is the current value.
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(before.cpu),
            resident: self.resident,
        }
    }
}

/// Returns the bytes that the files below a directory occupy on disk, including preallocated bytes.
pub(super) fn disk(dir: &Path) -> anyhow::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let meta = entry.metadata()?;
        bytes += if meta.is_dir() {
            disk(&entry.path())?
        } else {
            // Blocks, not the length, which differs for preallocated and sparse files.
            meta.blocks() * 512
        };
    }

    Ok(bytes)
}
