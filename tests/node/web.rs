//! Web UI in a real browser, on a node with the definitions of the examples.

mod access;
mod batches;
mod contexts;
mod dead_letters;
mod deploy;
mod flows;
mod keyboard;
mod messages;
mod operators;
mod pictures;
mod rights;
mod scale;
mod schedules;
mod site;
mod start;
mod tasks;
mod views;
