//! Tracing: one trace for all activities that an event causes, and the log of a real process.

mod embedded;
mod fixture;
mod logs;
mod pods;
mod sampling;
