//! The contract of a bus, executed: each promise of `orlog_bus::Bus` is one function here, for every implementation.
//!
//! A [`Ground`] opens the bus, and opens it again on what is left of it, as after a restart of the process. The macro
//! [`crate::bus_suite!`] makes one test of each function. Nothing here waits by sleeping: what must come is awaited with a
//! deadline, and what must not come is ruled out by something that comes after it.

mod consuming;
mod fixture;
mod publishing;
mod scan;

pub use consuming::{
    a_consumer_may_begin_where_it_says, a_name_has_one_consumer_at_a_time,
    a_part_is_given_what_lies_in_its_slots, a_refused_message_is_delivered_again,
    a_waiting_consumer_is_woken, acknowledging_is_harmless_when_repeated_or_wrong,
    dropping_next_loses_nothing, never_more_than_max_in_flight_are_unacknowledged,
    subscriptions_do_not_disturb_each_other, the_cursor_is_the_end_of_the_gapless_prefix,
    what_was_not_acknowledged_is_delivered_again_after_reopening,
};
pub use fixture::Ground;
pub use publishing::{
    a_message_that_matches_twice_is_delivered_once, an_id_is_stored_once,
    concurrent_publishers_get_numbers_of_their_own, filters_match_as_in_nats, hostile_subjects_are_refused,
    messages_arrive_whole_and_in_order, strange_contents_survive, the_stream_keeps_its_identity,
    what_was_published_is_there_after_reopening,
};
pub use scan::the_past_is_read_without_a_name;

/// Makes a test of every promise; the argument is an expression that makes a fresh [`Ground`].
#[macro_export]
macro_rules! bus_suite {
    ($ground:expr) => {
        $crate::bus_suite!(@each $ground;
            what_was_published_is_there_after_reopening,
            messages_arrive_whole_and_in_order,
            concurrent_publishers_get_numbers_of_their_own,
            an_id_is_stored_once,
            what_was_not_acknowledged_is_delivered_again_after_reopening,
            the_cursor_is_the_end_of_the_gapless_prefix,
            a_refused_message_is_delivered_again,
            never_more_than_max_in_flight_are_unacknowledged,
            filters_match_as_in_nats,
            a_message_that_matches_twice_is_delivered_once,
            a_consumer_may_begin_where_it_says,
            a_part_is_given_what_lies_in_its_slots,
            subscriptions_do_not_disturb_each_other,
            a_waiting_consumer_is_woken,
            dropping_next_loses_nothing,
            a_name_has_one_consumer_at_a_time,
            acknowledging_is_harmless_when_repeated_or_wrong,
            hostile_subjects_are_refused,
            strange_contents_survive,
            the_stream_keeps_its_identity,
            the_past_is_read_without_a_name,
        );
    };
    (@each $ground:expr; $($name:ident),* $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                $crate::bus_suite::$name(&$ground).await;
            }
        )*
    };
}
