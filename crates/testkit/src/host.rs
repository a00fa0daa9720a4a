//! The machine that runs the tests: free ports, and programs that are not installed.

use std::net::TcpListener;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};

/// Ports of [`free_port`].
const PORTS: Range<u16> = 16_384..32_768;

/// Returns a free loopback port for a server that is started later. The port is below the range of
/// ephemeral ports, so that no outgoing connection takes it meanwhile, and no later call in this process
/// returns it.
///
/// # Panics
/// If no port is free.
#[must_use]
pub fn free_port() -> u16 {
    static NEXT: OnceLock<AtomicU16> = OnceLock::new();
    // Processes start at ports that are far apart, also with consecutive ids.
    let next = NEXT.get_or_init(|| {
        AtomicU16::new(u16::try_from(std::process::id().wrapping_mul(10_125) % 16_384).unwrap_or(0))
    });
    let mut candidates = (0..PORTS.len())
        .map(|_| PORTS.start + next.fetch_add(1, Ordering::Relaxed) % (PORTS.end - PORTS.start));
    candidates
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("a free port")
}

/// Fails the test because a program is not installed; names the make target that installs it.
///
/// # Panics
/// Always.
#[track_caller]
pub fn missing(name: &str, target: &str) -> ! {
    panic!("{name} is not installed; run: make {target}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn free_ports_are_distinct_and_not_ephemeral() {
        let ports: BTreeSet<u16> = (0..100).map(|_| free_port()).collect();
        assert_eq!(ports.len(), 100);
        let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
        let first_ephemeral: u16 = range.split_whitespace().next().unwrap().parse().unwrap();
        assert!(
            ports.iter().all(|port| *port < first_ephemeral),
            "{ports:?}"
        );
    }
}
