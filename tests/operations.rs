//! Operations: authentication, audit log, diagnostics and backups.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "operations/access.rs"]
mod access;
#[path = "operations/api_description.rs"]
mod api_description;
#[path = "operations/audit.rs"]
mod audit;
#[path = "operations/backup.rs"]
mod backup;
#[path = "operations/bodies.rs"]
mod bodies;
#[path = "operations/damage.rs"]
mod damage;
#[path = "operations/data_loss.rs"]
mod data_loss;
#[path = "operations/descriptors.rs"]
mod descriptors;
#[path = "operations/doctor.rs"]
mod doctor;
#[path = "operations/four_eyes.rs"]
mod four_eyes;
#[path = "operations/full_disk.rs"]
mod full_disk;
#[path = "operations/issuer.rs"]
mod issuer;
#[path = "operations/node.rs"]
mod node;
#[path = "operations/oidc.rs"]
mod oidc;
#[path = "operations/permissions.rs"]
mod permissions;
#[path = "operations/process.rs"]
mod process;
#[path = "operations/quotas.rs"]
mod quotas;
#[path = "operations/rebuild.rs"]
mod rebuild;
#[path = "operations/route_table.rs"]
mod route_table;
#[path = "operations/sites.rs"]
mod sites;
#[path = "operations/tls.rs"]
mod tls;
#[path = "operations/tokens.rs"]
mod tokens;
#[path = "operations/visibility.rs"]
mod visibility;
