//! Web UI in a real browser, on a node with the definitions of the examples.

mod access;
mod dead_letters;
mod keyboard;
mod operators;
mod rights;
mod scale;
mod site;
mod tasks;
mod views;
