//! Operations: authentication, audit log, diagnostics and backups.

mod access;
mod api_description;
mod audit;
mod backup;
mod bodies;
mod contexts;
mod damage;
mod data_loss;
mod descriptors;
mod doctor;
mod four_eyes;
mod full_disk;
pub(crate) mod issuer;
mod node;
mod oidc;
mod permissions;
mod quotas;
mod rebuild;
mod reload;
mod route_table;
mod signatures;
mod sites;
mod tls;
mod tokens;
mod visibility;
