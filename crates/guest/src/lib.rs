//! For sagas that are WebAssembly modules written in Rust: what the runner tells them, and what they may order.
//!
//! A saga is a type with one function, and a manifest that says which events it takes. [`export!`] makes the functions and
//! the custom section that the runner looks for; it does so for `wasm32` only, so that the saga's own tests run on the host.
//!
//! ```
//! use orlog_guest::{Answer, Input, Orders, Saga, What};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! struct Fine { cents: u64 }
//!
//! struct Fines;
//!
//! impl Saga for Fines {
//!     type State = Fine;
//!
//!     fn on(state: Option<Fine>, input: Input, orders: &mut Orders) -> Answer<Fine> {
//!         match (state, input.what) {
//!             (None, What::Event(event)) => match event.data() {
//!                 Ok(fine) => {
//!                     orders.arm("penalty", 60 * 24 * 60 * 60 * 1000);
//!                     Answer::Become(fine)
//!                 }
//!                 Err(error) => Answer::Reject(error.to_string()),
//!             },
//!             (Some(fine), What::Timer { .. }) => {
//!                 orders.command("penalty", "fines.AddPenalty", &fine.cents);
//!                 Answer::Become(fine)
//!             }
//!             (_, _) => Answer::Ignore("nothing to do".to_owned()),
//!         }
//!     }
//! }
//!
//! orlog_guest::export!(
//!     Fines,
//!     r#"{"saga": "fine", "version": 1, "events": [{"type": "FineSent", "starts": true}], "commands": ["fines.AddPenalty"]}"#
//! );
//! ```

#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
pub mod abi;
mod input;
mod saga;
mod transition;

pub use input::{Context, Event, Failure, Input, Outcome, Verdict, What};
pub use saga::{Answer, Migration, Origin, Saga, apply, migrate};
pub use transition::{Command, Effect, Orders, Status, Task};

/// Makes a saga a module: `export!(MySaga, MANIFEST)`, where the manifest is a constant text (JSON, see `docs/wasm.md`), for
/// example `include_str!("manifest.json")`. On other targets than `wasm32` it only checks the types.
#[macro_export]
macro_rules! export {
    ($saga:ty, $manifest:expr) => {
        const _: &str = $manifest;
        const _: fn(&[u8], &[u8]) -> ::std::vec::Vec<u8> = $crate::apply::<$saga>;
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            const MANIFEST: &[u8] = $manifest.as_bytes();
            #[used]
            #[unsafe(link_section = "orlog.manifest")]
            static SECTION: [u8; MANIFEST.len()] = match MANIFEST.first_chunk() {
                Some(bytes) => *bytes,
                None => panic!("a slice has as many bytes as it is long"),
            };
            #[unsafe(no_mangle)]
            extern "C" fn alloc(length: usize) -> *mut u8 {
                $crate::abi::alloc(length)
            }
            #[unsafe(no_mangle)]
            extern "C" fn apply(
                state: *const u8,
                state_length: usize,
                input: *const u8,
                length: usize,
            ) -> u64 {
                $crate::abi::call($crate::apply::<$saga>, (state, state_length), (input, length))
            }
            #[unsafe(no_mangle)]
            extern "C" fn migrate(
                state: *const u8,
                state_length: usize,
                from: *const u8,
                length: usize,
            ) -> u64 {
                $crate::abi::call($crate::migrate::<$saga>, (state, state_length), (from, length))
            }
        };
    };
}
