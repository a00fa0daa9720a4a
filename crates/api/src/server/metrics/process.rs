//! Process metrics from Linux; empty on other systems.

use std::fs;

use orlog_actors::MetricSink as _;
use prometheus_client::metrics::counter::Counter;
use std::sync::atomic::AtomicU64;

use super::types::{count, float_gauge, int_gauge};
use orlog_node::telemetry::MetricsRegistry;

/// Registers the metrics.
pub(super) fn register(registry: &mut MetricsRegistry) {
    let ticks = count(rustix::param::clock_ticks_per_second());
    if let Some((used, started, pages)) = fs::read_to_string("/proc/self/stat")
        .ok()
        .as_deref()
        .and_then(parse_stat)
    {
        let cpu = Counter::<f64, AtomicU64>::default();
        cpu.inc_by(count(used) / ticks);
        registry.register("process_cpu_seconds_total", cpu);
        registry.register(
            "process_resident_memory_bytes",
            int_gauge(pages * rustix::param::page_size() as u64),
        );

        // The kernel states the start of a process in ticks since the boot.
        let booted = fs::read_to_string("/proc/stat").unwrap_or_default();
        let booted = booted
            .lines()
            .find_map(|line| line.strip_prefix("btime ")?.parse().ok());
        if let Some(booted) = booted {
            registry.register(
                "process_start_time_seconds",
                float_gauge(count(booted) + count(started) / ticks),
            );
        }
    }

    if let Ok(files) = fs::read_dir("/proc/self/fd") {
        registry.register("process_open_fds", int_gauge(files.count() as u64));
    }
    let allowed = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let allowed = allowed.lines().find_map(|line| {
        line.strip_prefix("Max open files")?
            .split_whitespace()
            .next()?
            .parse()
            .ok()
    });

    if let Some(allowed) = allowed {
        registry.register("process_max_fds", int_gauge(allowed));
    }
}

/// Parses `stat`: used CPU ticks, start tick and memory pages. The name in brackets can contain any
/// character.
fn parse_stat(stat: &str) -> Option<(u64, u64, u64)> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    // The fields are those of proc(5) from the third on, so that an index is the number there minus
    // 3.
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some((number(11)? + number(12)?, number(19)?, number(21)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_stat_with_special_name_is_parsed() {
        let stat =
            "7 (a) b (c) S 1 7 7 0 -1 4194560 1 2 3 4 100 20 0 0 20 0 9 0 5555 1000 42 18446";
        assert_eq!(parse_stat(stat), Some((120, 5555, 42)));
        assert_eq!(parse_stat("7 (a"), None);
    }
}
