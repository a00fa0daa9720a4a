//! Web UI in a real browser, on a node with the definitions of the examples.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[expect(dead_code, reason = "a part of it is for the tests of operations")]
#[path = "operations/issuer.rs"]
mod issuer;
#[expect(dead_code, reason = "a part of it is for the tests of the API")]
#[path = "api/node.rs"]
mod node;
#[path = "web/site.rs"]
mod site;

#[path = "web/access.rs"]
mod access;
#[path = "web/dead_letters.rs"]
mod dead_letters;
#[path = "web/keyboard.rs"]
mod keyboard;
#[path = "web/operators.rs"]
mod operators;
#[path = "web/rights.rs"]
mod rights;
#[path = "web/scale.rs"]
mod scale;
#[path = "web/tasks.rs"]
mod tasks;
#[path = "web/views.rs"]
mod views;
