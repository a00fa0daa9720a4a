//! What the system says about the process, where it is Linux; nothing elsewhere.

use std::fs;

use orlog_actors::Sheet as _;
use prometheus_client::metrics::counter::Counter;
use std::sync::atomic::AtomicU64;

use super::types::{count, one, real};
use crate::telemetry::Shown;

/// Shows it.
pub(super) fn show(shown: &mut Shown) {
    let ticks = count(rustix::param::clock_ticks_per_second());
    if let Some((used, started, pages)) =
        fs::read_to_string("/proc/self/stat").ok().as_deref().and_then(figures)
    {
        let cpu = Counter::<f64, AtomicU64>::default();
        cpu.inc_by(count(used) / ticks);
        shown.put("process_cpu_seconds_total", cpu);
        shown.put("process_resident_memory_bytes", one(pages * rustix::param::page_size() as u64));
        let booted = fs::read_to_string("/proc/stat").unwrap_or_default();
        let booted = booted.lines().find_map(|line| line.strip_prefix("btime ")?.parse().ok());
        if let Some(booted) = booted {
            shown.put("process_start_time_seconds", real(count(booted) + count(started) / ticks));
        }
    }
    if let Ok(files) = fs::read_dir("/proc/self/fd") {
        shown.put("process_open_fds", one(files.count() as u64));
    }
    let allowed = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let allowed = allowed
        .lines()
        .find_map(|line| line.strip_prefix("Max open files")?.split_whitespace().next()?.parse().ok());
    if let Some(allowed) = allowed {
        shown.put("process_max_fds", one(allowed));
    }
}

/// Ticks used, the tick at which it began, and pages in memory. The name in brackets may hold anything.
fn figures(stat: &str) -> Option<(u64, u64, u64)> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some((number(11)? + number(12)?, number(19)?, number(21)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_a_strange_name_is_read() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 2 3 4 100 20 0 0 20 0 9 0 5555 1000 42 18446";
        assert_eq!(figures(stat), Some((120, 5555, 42)));
        assert_eq!(figures("7 (a"), None);
    }
}
