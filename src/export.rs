//! Export of instances and tasks to files and to PostgreSQL.

pub(crate) mod api;
pub(crate) mod cli;
