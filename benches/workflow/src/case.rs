//! Cases: a library, a runner and a storage.

use anyhow::Result;
use clap::ValueEnum;

use crate::load::Measurement;
use crate::servers::Servers;
use crate::{orlog, sayiir};

/// One row of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Case {
    OrlogInProcess,
    SayiirInProcess,
    OrlogCheckpointsMemory,
    SayiirCheckpointsMemory,
    OrlogCheckpointsPostgres,
    SayiirCheckpointsPostgres,
    OrlogCheckpointsEmbedded,
    OrlogPooledPostgres,
    SayiirPooledPostgres,
    SayiirPooledPostgresWide,
    OrlogPooledNats,
}

/// Cases that are compared with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Group {
    InProcess,
    CheckpointsMemory,
    CheckpointsPostgres,
    CheckpointsEmbedded,
    PooledPostgres,
    PooledNats,
}

impl Case {
    pub(crate) const ALL: [Self; 11] = [
        Self::OrlogInProcess,
        Self::SayiirInProcess,
        Self::OrlogCheckpointsMemory,
        Self::SayiirCheckpointsMemory,
        Self::OrlogCheckpointsPostgres,
        Self::SayiirCheckpointsPostgres,
        Self::OrlogCheckpointsEmbedded,
        Self::OrlogPooledPostgres,
        Self::SayiirPooledPostgres,
        Self::SayiirPooledPostgresWide,
        Self::OrlogPooledNats,
    ];

    pub(crate) fn group(self) -> Group {
        match self {
            Self::OrlogInProcess | Self::SayiirInProcess => Group::InProcess,
            Self::OrlogCheckpointsMemory | Self::SayiirCheckpointsMemory => {
                Group::CheckpointsMemory
            }
            Self::OrlogCheckpointsPostgres | Self::SayiirCheckpointsPostgres => {
                Group::CheckpointsPostgres
            }
            Self::OrlogCheckpointsEmbedded => Group::CheckpointsEmbedded,
            Self::OrlogPooledPostgres
            | Self::SayiirPooledPostgres
            | Self::SayiirPooledPostgresWide => Group::PooledPostgres,
            Self::OrlogPooledNats => Group::PooledNats,
        }
    }

    pub(crate) fn is_orlog(self) -> bool {
        match self {
            Self::OrlogInProcess
            | Self::OrlogCheckpointsMemory
            | Self::OrlogCheckpointsPostgres
            | Self::OrlogCheckpointsEmbedded
            | Self::OrlogPooledPostgres
            | Self::OrlogPooledNats => true,
            Self::SayiirInProcess
            | Self::SayiirCheckpointsMemory
            | Self::SayiirCheckpointsPostgres
            | Self::SayiirPooledPostgres
            | Self::SayiirPooledPostgresWide => false,
        }
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::SayiirPooledPostgresWide => "sayiir, 32 workers",
            Self::SayiirPooledPostgres => "sayiir, 4 workers",
            Self::OrlogPooledPostgres | Self::OrlogPooledNats => "orlog-workflow, 4 workers",
            Self::SayiirInProcess
            | Self::SayiirCheckpointsMemory
            | Self::SayiirCheckpointsPostgres => "sayiir",
            Self::OrlogInProcess
            | Self::OrlogCheckpointsMemory
            | Self::OrlogCheckpointsPostgres
            | Self::OrlogCheckpointsEmbedded => "orlog-workflow",
        }
    }

    pub(crate) async fn measure(self, servers: &Servers, seconds: u64) -> Result<Measurement> {
        let in_flight = self.group().in_flight();
        match self {
            Self::OrlogInProcess => orlog::in_process(in_flight, seconds).await,
            Self::SayiirInProcess => sayiir::in_process(in_flight, seconds).await,
            Self::OrlogCheckpointsMemory => orlog::checkpoints_memory(in_flight, seconds).await,
            Self::SayiirCheckpointsMemory => sayiir::checkpoints_memory(in_flight, seconds).await,
            Self::OrlogCheckpointsPostgres => {
                orlog::checkpoints_postgres(servers, in_flight, seconds).await
            }
            Self::SayiirCheckpointsPostgres => {
                sayiir::checkpoints_postgres(servers, in_flight, seconds).await
            }
            Self::OrlogCheckpointsEmbedded => {
                orlog::checkpoints_embedded(servers, in_flight, seconds).await
            }
            Self::OrlogPooledPostgres => {
                orlog::pooled_postgres(servers, 4, in_flight, seconds).await
            }
            Self::SayiirPooledPostgres => {
                sayiir::pooled_postgres(servers, 4, in_flight, seconds).await
            }
            Self::SayiirPooledPostgresWide => {
                sayiir::pooled_postgres(servers, 32, in_flight, seconds).await
            }
            Self::OrlogPooledNats => orlog::pooled_nats(servers, 4, in_flight, seconds).await,
        }
    }
}

impl Group {
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::InProcess => "in process",
            Self::CheckpointsMemory => "checkpoints, memory",
            Self::CheckpointsPostgres => "checkpoints, PostgreSQL",
            Self::CheckpointsEmbedded => "checkpoints, embedded",
            Self::PooledPostgres => "pooled, PostgreSQL",
            Self::PooledNats => "pooled, NATS",
        }
    }

    /// Returns the number of workflows in flight.
    pub(crate) fn in_flight(self) -> usize {
        match self {
            Self::InProcess | Self::CheckpointsMemory | Self::CheckpointsPostgres => 64,
            Self::PooledPostgres | Self::PooledNats => 256,
            Self::CheckpointsEmbedded => 1024,
        }
    }
}
