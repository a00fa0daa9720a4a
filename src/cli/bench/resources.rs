//! What the process has used, as the kernel counts it.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;

/// Processor time and memory.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Used {
    /// User and system, all threads.
    pub(super) cpu: Duration,
    /// Resident memory, bytes.
    pub(super) resident: u64,
}

impl Used {
    /// Until now.
    pub(super) fn now() -> anyhow::Result<Self> {
        Self::of("self")
    }

    /// Until now, by another process.
    pub(super) fn by(process: u32) -> anyhow::Result<Self> {
        Self::of(&process.to_string())
    }

    fn of(process: &str) -> anyhow::Result<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat"));
        let stat = stat.context("bench reads /proc, so it needs Linux and the process")?;
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
        let ticks = |index: usize| fields.get(index).and_then(|f| f.parse::<u64>().ok()).unwrap_or(0);
        let per_second = rustix::param::clock_ticks_per_second();
        let statm = std::fs::read_to_string(format!("/proc/{process}/statm"))?;
        let pages = statm.split(' ').nth(1).and_then(|f| f.parse::<u64>().ok()).unwrap_or(0);
        Ok(Self {
            // utime and stime are the fields 14 and 15 of stat; two fields stand before the `) `.
            cpu: Duration::from_millis((ticks(11) + ticks(12)) * 1_000 / per_second.max(1)),
            resident: pages * u64::try_from(rustix::param::page_size())?,
        })
    }

    /// What was used since `before`; memory is that of now.
    pub(super) fn since(self, before: Self) -> Self {
        Self { cpu: self.cpu.saturating_sub(before.cpu), resident: self.resident }
    }
}

/// Bytes that the files below a folder occupy on disk (preallocated ones included).
pub(super) fn disk(folder: &Path) -> anyhow::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let meta = entry.metadata()?;
        bytes += if meta.is_dir() { disk(&entry.path())? } else { meta.blocks() * 512 };
    }
    Ok(bytes)
}
