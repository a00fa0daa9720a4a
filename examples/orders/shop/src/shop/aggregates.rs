//! Aggregates behind the gateway: accept a command once, execute it a little later, and respond with an
//! event.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::state::{ShopState, error_response};
use crate::orders::{NOWHERE, SOLD_OUT, UNRESPONSIVE};
use crate::record::ExecutedAction;

/// Command as the runner submits it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Envelope {
    command_id: String,
    aggregate_type: String,
    aggregate_id: String,
    command_type: String,
    payload_json: Value,
    metadata: Metadata,
}

#[derive(Clone, Debug, Deserialize)]
struct Metadata {
    correlation_id: String,
}

/// Response of an aggregate.
#[derive(Debug, PartialEq)]
enum AggregateResponse {
    /// Executes an action and emits this event.
    Acts(ExecutedAction, &'static str),
    /// Executes no action and emits this event.
    Emits(&'static str, Value),
    /// Emits no event.
    NoEvent,
}

pub(super) async fn accept(
    State(state): State<Arc<ShopState>>,
    Json(envelope): Json<Envelope>,
) -> (StatusCode, Json<Value>) {
    let name = format!("{}.{}", envelope.aggregate_type, envelope.command_type);
    let order = envelope.metadata.correlation_id.clone();
    let response = match response(&name, &envelope.payload_json) {
        Ok(response) => response,
        Err(reason) => return error_response(StatusCode::UNPROCESSABLE_ENTITY, &reason),
    };
    let id = envelope.command_id.clone();
    if state.record().command(&id, &order, &name) {
        tokio::spawn(act(Arc::clone(&state), envelope, response));
    }
    (StatusCode::ACCEPTED, Json(json!({ "command_id": id })))
}

async fn act(state: Arc<ShopState>, envelope: Envelope, response: AggregateResponse) {
    state.work().await;
    let (event, more) = match response {
        AggregateResponse::Acts(act, event) => {
            state
                .record()
                .act(&envelope.metadata.correlation_id, act, &envelope.command_id);
            (event, json!({}))
        }
        AggregateResponse::Emits(event, more) => (event, more),
        AggregateResponse::NoEvent => return,
    };
    state.emit(event_envelope(&envelope, event, more));
}

/// Returns the response of an aggregate to a command.
fn response(name: &str, payload: &Value) -> Result<AggregateResponse, String> {
    let no_goods = || {
        payload["items"]
            .as_array()
            .is_some_and(|items| items.iter().any(|i| i["sku"] == SOLD_OUT))
    };
    Ok(match name {
        "inventory.ReserveStock" if no_goods() => {
            AggregateResponse::Emits("StockRejected", json!({ "reason": "sold out" }))
        }
        "inventory.ReserveStock" => {
            AggregateResponse::Acts(ExecutedAction::Reserved, "StockReserved")
        }
        "inventory.ReleaseStock" => {
            AggregateResponse::Acts(ExecutedAction::Released, "StockReleased")
        }
        "payment.RequestAuthorization" if payload["customer"] == UNRESPONSIVE => {
            AggregateResponse::NoEvent
        }
        "payment.RequestAuthorization" => {
            AggregateResponse::Acts(ExecutedAction::Authorized, "PaymentAuthorized")
        }
        "shipping.ShipOrder" if payload["address"] == NOWHERE => AggregateResponse::Emits(
            "ShippingFailed",
            json!({ "reason": "address cannot be shipped to" }),
        ),
        "shipping.ShipOrder" => AggregateResponse::Acts(ExecutedAction::Shipped, "OrderShipped"),
        other => return Err(format!("no aggregate accepts {other}")),
    })
}

/// Builds an event in the envelope of the aggregate service. Its id is derived from the command id, so
/// a repeated event has the same id.
fn event_envelope(envelope: &Envelope, event: &str, more: Value) -> Value {
    let order = &envelope.metadata.correlation_id;
    let mut payload = more;
    payload["orderId"] = json!(order);
    json!({
        "event_id": format!("{}:{event}", envelope.command_id),
        "aggregate_id": envelope.aggregate_id,
        "aggregate_type": envelope.aggregate_type,
        "event_type": event,
        "payload": payload,
        "metadata": { "correlation_id": order, "causation_id": envelope.command_id },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::orders::{ExpectedResult, Order};

    #[track_caller]
    fn check(name: &str, fate: ExpectedResult, expected: &AggregateResponse) {
        let data = Order::new("o".to_owned(), fate, 1).placed()["data"].clone();
        assert_eq!(response(name, &data).as_ref(), Ok(expected));
    }

    #[test]
    fn order_content_decides_the_response() {
        check(
            "inventory.ReserveStock",
            ExpectedResult::Shipped,
            &AggregateResponse::Acts(ExecutedAction::Reserved, "StockReserved"),
        );
        let sold_out = AggregateResponse::Emits("StockRejected", json!({ "reason": "sold out" }));
        check("inventory.ReserveStock", ExpectedResult::SoldOut, &sold_out);
        check(
            "payment.RequestAuthorization",
            ExpectedResult::Unauthorized,
            &AggregateResponse::NoEvent,
        );
        check(
            "shipping.ShipOrder",
            ExpectedResult::CardRejected,
            &AggregateResponse::Acts(ExecutedAction::Shipped, "OrderShipped"),
        );
        let nowhere = AggregateResponse::Emits(
            "ShippingFailed",
            json!({ "reason": "address cannot be shipped to" }),
        );
        check(
            "shipping.ShipOrder",
            ExpectedResult::Undeliverable,
            &nowhere,
        );
        response("inventory.Juggle", &Value::Null).unwrap_err();
    }
}
