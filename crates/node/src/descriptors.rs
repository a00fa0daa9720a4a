//! File descriptors of the process: raises their limit and divides it between stores, journals and
//! connections.
//!
//! Connections of callers are the only descriptors whose number others decide. Their limit is set
//! so that the stores, journals, streams and upstreams always have enough.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::{BusKind, Config, MIN_CONNECTIONS};

/// Connections for health checks and metrics, in addition to the configured ones.
pub const RESERVED_CONNECTIONS: usize = 32;
/// Descriptors of the process itself: runtime, logs, audit trail, definitions, upstream files.
const OF_PROCESS: u64 = 64;
/// Descriptors of one shard: lock, directories, segments and tables.
const OF_SHARD: u64 = 24;
/// Descriptors of the embedded log in addition to its segments.
const OF_LOG: u64 = 16;
/// Descriptors of the connections to NATS.
const OF_NATS: u64 = 32;

/// Too few file descriptors.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "the limit of {limit} open files is too low: {shards} shards and {MIN_CONNECTIONS} \
     connections require {required}; raise it: LimitNOFILE= in systemd, `ulimit -n` in a shell"
)]
pub struct TooFewDescriptors {
    limit: u64,
    required: u64,
    shards: u16,
}

/// Raises the limit of open files to the maximum that the system allows.
pub fn raise_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return;
    }

    if let Err(error) = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: maximum,
            maximum,
        },
    ) {
        tracing::warn!(%error, "the limit of open files cannot be raised");
    }
}

/// Keeps the descriptors that this process inherited from the programs that it starts: helpers of
/// scripts, and commands of secrets.
#[cfg(feature = "script")]
pub fn close_on_exec() {
    if let Err(error) = orlog_effect::script::close_on_exec() {
        tracing::warn!(%error, "inherited descriptors cannot be closed before a program starts");
    }
}

/// Returns the maximum number of connections: the configured one, or less if the limit of open
/// files requires it.
///
/// # Errors
/// If the limit of open files is too low for the stores and [`MIN_CONNECTIONS`].
pub fn max_connections(config: &Config) -> Result<usize, TooFewDescriptors> {
    // `None` means unlimited.
    match getrlimit(Resource::Nofile).current {
        Some(limit) => share(limit, config),
        None => Ok(config.http.max_connections),
    }
}

/// Returns the share of the connections of callers: half of what the stores and the transport
/// leave. The other half is for upstreams, backups and exports.
fn share(limit: u64, config: &Config) -> Result<usize, TooFewDescriptors> {
    let fixed = reserved(config);
    let connections = usize::try_from(limit.saturating_sub(fixed) / 2).unwrap_or(usize::MAX);
    if connections < MIN_CONNECTIONS {
        // Twice the minimum, because callers receive half of the rest.
        let required = fixed + 2 * MIN_CONNECTIONS as u64;
        return Err(TooFewDescriptors {
            limit,
            required,
            shards: config.shards,
        });
    }

    Ok(connections.min(config.http.max_connections))
}

fn reserved(config: &Config) -> u64 {
    let shards = if config.role.runs_sagas() {
        u64::from(config.shards)
    } else {
        0
    };
    let transport = match config.bus.kind {
        BusKind::Embedded => OF_LOG + config.bus.retention_size / config.bus.segment_size.max(1),
        BusKind::Nats => OF_NATS,
    };

    OF_PROCESS + RESERVED_CONNECTIONS as u64 + shards * OF_SHARD + transport
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_for_stores_and_upstreams() {
        let config = Config::default();
        assert_eq!(share(1 << 20, &config), Ok(config.http.max_connections));
        let some = share(1024, &config).unwrap();
        assert!(some as u64 + reserved(&config) + 400 < 1024, "{some}");
        let many = Config {
            shards: 16,
            ..Config::default()
        };
        assert!(share(1024, &many).unwrap() < some);
    }

    #[test]
    fn a_limit_that_the_stores_exceed_is_an_error() {
        let config = Config {
            shards: 64,
            ..Config::default()
        };
        let error = share(1024, &config).unwrap_err();
        assert!(error.to_string().contains("raise it"), "{error}");
        let required = error.required;
        assert_eq!(share(required, &config), Ok(MIN_CONNECTIONS));
    }
}
