//! Queries over the durable state of a shard.

pub(crate) mod attention;
pub(crate) mod counts;
pub(crate) mod dead_letters;
pub(crate) mod dedupe;
pub(crate) mod downtime;
pub(crate) mod indexed;
pub(crate) mod inspect;
pub(crate) mod job_claim;
pub(crate) mod job_log;
pub(crate) mod query;
pub(crate) mod reader;
pub(crate) mod request_key;
pub(crate) mod row_group;
pub(crate) mod sweep;
pub(crate) mod tasks;
pub(crate) mod work;
