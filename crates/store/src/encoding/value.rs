//! Values: a byte that states the format, then MessagePack without field names.
//!
//! A field may be added at the end of a struct with `#[serde(default)]`: values without it stay readable. Any other
//! change needs a new format.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::table::Table;

/// The format of every value so far.
const FORMAT: u8 = 1;

/// The value of rows whose key says it all.
pub(crate) const EMPTY: &[u8] = &[FORMAT];

/// Appends a value.
pub(crate) fn encode<T: Serialize>(buffer: &mut Vec<u8>, value: &T) {
    buffer.push(FORMAT);
    rmp_serde::encode::write(buffer, value)
        .expect("values of the model can be encoded, and memory takes them");
}

/// Reads a value of `table`.
pub(crate) fn decode<T: DeserializeOwned>(table: Table, bytes: &[u8]) -> Result<T, Error> {
    let wrong =
        |reason: String| Error::Corrupt { place: format!("a value of table {}", table.name()), reason };
    match bytes.split_first() {
        Some((&FORMAT, body)) => rmp_serde::from_slice(body).map_err(|error| wrong(error.to_string())),
        Some((format, _)) => Err(wrong(format!("its format is {format}, {FORMAT} is known"))),
        None => Err(wrong("it is empty".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use orlog_model::{
        ArmedTimer, Effect, EffectName, InDoubt, InputKind, Lane, Name, Origin, OutboxKey, Outcome, Record,
        Retry, StreamPosition, Timestamp, TraceParent, Verdict, WorkKind,
    };
    use serde_json::{Value, json};
    use uuid::Uuid;

    use super::*;

    #[test]
    fn an_effect_of_an_older_store_is_read_and_one_that_says_nothing_new_is_written_like_it() {
        let retry = Some(Retry { attempts: Some(3), backoff: None });
        let effect = Effect {
            tag: Name::new("charge").unwrap(),
            name: EffectName::new("payments.charge").unwrap(),
            payload: json!({ "amount": 12 }),
            timeout: Some(Duration::from_secs(5)),
            retry,
            in_doubt: None,
        };
        let older: (&str, &str, Value, Option<Duration>, Option<Retry>) =
            ("charge", "payments.charge", effect.payload.clone(), effect.timeout, retry);
        let (mut before, mut after) = (Vec::new(), Vec::new());
        encode(&mut before, &older);
        encode(&mut after, &effect);
        assert_eq!(before, after);
        assert_eq!(decode::<Effect>(Table::Outbox, &before).unwrap(), effect);

        let asks = Effect { in_doubt: Some(InDoubt::Ask), ..effect };
        let mut bytes = Vec::new();
        encode(&mut bytes, &asks);
        assert_eq!(decode::<Effect>(Table::Outbox, &bytes).unwrap(), asks);
    }

    #[test]
    fn a_history_record_of_an_older_store_is_read_and_a_new_one_comes_back_whole() {
        let record = crate::samples::record(7);
        let older = (7, record.at, &record.input, &record.label, &record.note, record.status, &record.work);
        let (mut before, mut after) = (Vec::new(), Vec::new());
        encode(&mut before, &older);
        encode(&mut after, &record);
        assert_eq!(before, after);
        assert_eq!(decode::<Record>(Table::History, &before).unwrap(), record);

        let origin = Origin { kind: Some(InputKind::Timer), node: "node-1".to_owned(), waited: Some(1500) };
        let new = Record { origin, ..record };
        let mut bytes = Vec::new();
        encode(&mut bytes, &new);
        assert_eq!(decode::<Record>(Table::History, &bytes).unwrap(), new);
    }

    #[test]
    fn a_checkpoint_of_an_older_store_is_read_and_one_without_a_time_is_written_like_it() {
        let position = StreamPosition::behind(Uuid::from_u128(7), 40);
        let (mut before, mut after) = (Vec::new(), Vec::new());
        encode(&mut before, &(Uuid::from_u128(7), 40_u64));
        encode(&mut after, &position);
        assert_eq!(before, after);
        assert_eq!(decode::<StreamPosition>(Table::Checkpoint, &before).unwrap(), position);

        let timed = StreamPosition { at: Some(Timestamp::from_millis(9)), ..position };
        let mut bytes = Vec::new();
        encode(&mut bytes, &timed);
        assert_eq!(decode::<StreamPosition>(Table::Checkpoint, &bytes).unwrap(), timed);
    }

    #[test]
    fn an_outcome_and_a_timer_of_an_older_store_are_read_and_new_ones_name_their_spans() {
        let trace = TraceParent::new("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
        let (work_id, at) = (Uuid::from_u128(7), Timestamp::from_millis(9));
        let outbox =
            OutboxKey { lane: Lane { kind: WorkKind::Effect, name: "pay.charge".into() }, sequence: 3 };
        let facts = Vec::new();
        let plain =
            Outcome { work_id, outbox, verdict: Verdict::Accepted, attempts: 1, at, facts, trace: None };
        let mut older = Vec::new();
        encode(&mut older, &(work_id, plain.outbox.clone(), Verdict::Accepted, 1, at));
        assert_eq!(decode::<Outcome>(Table::Held, &older).unwrap(), plain);
        let (mut bytes, traced) = (Vec::new(), Outcome { trace: trace.clone(), ..plain });
        encode(&mut bytes, &traced);
        assert_eq!(decode::<Outcome>(Table::Held, &bytes).unwrap(), traced);

        let plain = ArmedTimer { name: Name::new("late").unwrap(), token: 2, due: at, trace: None };
        let (mut before, mut after) = (Vec::new(), Vec::new());
        encode(&mut before, &("late", 2, at));
        encode(&mut after, &plain);
        assert_eq!(
            (&before, decode::<ArmedTimer>(Table::Instance, &before).unwrap()),
            (&after, plain.clone())
        );
        let (mut bytes, traced) = (Vec::new(), ArmedTimer { trace, ..plain });
        encode(&mut bytes, &traced);
        assert_eq!(decode::<ArmedTimer>(Table::Instance, &bytes).unwrap(), traced);
    }
}
