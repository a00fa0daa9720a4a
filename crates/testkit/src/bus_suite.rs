//! Conformance suite of buses: one function per guarantee of `orlog_bus::Bus`, for every
//! implementation.
//!
//! A [`BusFixture`] opens the bus and reopens it on its stored data, as after a process restart. The
//! macro [`crate::bus_suite!`] creates one test per function. Tests never sleep: they await expected
//! messages with a deadline. Unexpected messages are ruled out by a later message.

mod consuming;
mod fixture;
mod publishing;
mod scan;

pub use consuming::{
    ack_floor_is_the_end_of_the_gapless_prefix, ack_is_idempotent,
    consumer_can_start_after_a_position, dropping_next_is_cancel_safe,
    durable_name_has_one_consumer, max_in_flight_is_enforced, nak_redelivers,
    partition_receives_its_slots_only, subscriptions_are_independent, tenants_are_served_in_turn,
    unacknowledged_messages_are_redelivered_after_reopening, waiting_consumer_wakes_on_publish,
};
pub use fixture::BusFixture;
pub use publishing::{
    arbitrary_payloads_round_trip, concurrent_publishers_get_unique_sequences,
    duplicate_message_id_is_stored_once, filters_follow_nats_rules, invalid_subjects_are_rejected,
    messages_arrive_intact_and_in_order, overlapping_filters_deliver_once, publish_is_durable,
    stream_id_is_stable,
};
pub use scan::scan_needs_no_durable_name;

/// Creates a test for every guarantee; the argument is an expression that creates a new [`BusFixture`].
#[macro_export]
macro_rules! bus_suite {
    ($fixture:expr) => {
        $crate::bus_suite!(@each $fixture;
            publish_is_durable,
            messages_arrive_intact_and_in_order,
            concurrent_publishers_get_unique_sequences,
            duplicate_message_id_is_stored_once,
            unacknowledged_messages_are_redelivered_after_reopening,
            ack_floor_is_the_end_of_the_gapless_prefix,
            nak_redelivers,
            max_in_flight_is_enforced,
            tenants_are_served_in_turn,
            filters_follow_nats_rules,
            overlapping_filters_deliver_once,
            consumer_can_start_after_a_position,
            partition_receives_its_slots_only,
            subscriptions_are_independent,
            waiting_consumer_wakes_on_publish,
            dropping_next_is_cancel_safe,
            durable_name_has_one_consumer,
            ack_is_idempotent,
            invalid_subjects_are_rejected,
            arbitrary_payloads_round_trip,
            stream_id_is_stable,
            scan_needs_no_durable_name,
        );
    };
    (@each $fixture:expr; $($name:ident),* $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                $crate::bus_suite::$name(&$fixture).await;
            }
        )*
    };
}
