//! The order saga as a WebAssembly module: reserve, charge, ship; on a failure it compensates in
//! reverse order.

mod order;

pub use order::OrderSaga;

orlog_guest::export!(OrderSaga, include_str!("manifest.json"));
