//! The order saga as a WebAssembly module: take the goods from the shelf, charge, ship; when something fails, undo what was
//! done, the last first.

mod order;

pub use order::Orders;

orlog_guest::export!(Orders, include_str!("manifest.json"));
