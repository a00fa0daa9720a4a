//! Number of reads that run at the same time.

/// Returns the number of reads that run at the same time on this machine.
pub(crate) fn running_reads() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    processors.saturating_sub(1).max(1)
}
