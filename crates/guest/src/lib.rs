//! Saga interface for WebAssembly modules in Rust: inputs from the runner, and transitions.
//!
//! A saga is a type with one function, and a manifest that lists the events it consumes.
//! [`export!`] generates the functions and the custom section that the runner requires. It does so
//! for `wasm32` only, so that the tests of the saga run on the host.
//!
//! ```
//! use orlog_guest::{Input, InputBody, Saga, SagaDecision, TransitionBuilder};
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
//!     fn handle(
//!         state: Option<Fine>,
//!         input: Input,
//!         transition: &mut TransitionBuilder,
//!     ) -> SagaDecision<Fine> {
//!         match (state, input.body) {
//!             (None, InputBody::Event(event)) => match event.data() {
//!                 Ok(fine) => {
//!                     transition.arm_timer("penalty", 60 * 24 * 60 * 60 * 1000);
//!                     SagaDecision::Transition(fine)
//!                 }
//!                 Err(error) => SagaDecision::DeadLetter(error.to_string()),
//!             },
//!             (Some(fine), InputBody::Timer { .. }) => {
//!                 transition.command("penalty", "fines.AddPenalty", &fine.cents);
//!                 SagaDecision::Transition(fine)
//!             }
//!             (_, _) => SagaDecision::Ignore("nothing to do".to_owned()),
//!         }
//!     }
//! }
//!
//! orlog_guest::export!(
//!     Fines,
//!     r#"{
//!         "saga": "fine",
//!         "version": 1,
//!         "events": [{"type": "FineSent", "starts": true}],
//!         "commands": ["fines.AddPenalty"]
//!     }"#
//! );
//! ```

#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
pub mod abi;
mod input;
mod saga;
mod transition;

pub use input::{Context, Event, Failure, Input, InputBody, WorkOutcome, WorkResult};
pub use saga::{Migration, MigrationSource, Saga, SagaDecision, apply, migrate};
pub use transition::{Command, Effect, ExcludedUser, Status, TaskSpec, TransitionBuilder};

/// Exports a saga from a module: `export!(MySaga, MANIFEST)`. The manifest is a constant string
/// (JSON, see `docs/wasm.md`), for example `include_str!("manifest.json")`. On targets other than
/// `wasm32` it only checks the types.
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
                None => panic!("a slice of this length has this many bytes"),
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
                $crate::abi::call($crate::apply::<$saga>, state, state_length, input, length)
            }
            #[unsafe(no_mangle)]
            extern "C" fn migrate(
                state: *const u8,
                state_length: usize,
                from: *const u8,
                length: usize,
            ) -> u64 {
                $crate::abi::call($crate::migrate::<$saga>, state, state_length, from, length)
            }
        };
    };
}
