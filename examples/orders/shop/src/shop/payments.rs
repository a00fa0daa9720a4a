//! Payment service: executes once per idempotency key, and fails according to the fault settings.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde_json::Value;

use super::state::{ShopState, error_response};

/// Point of failure of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FailurePoint {
    /// Before the action.
    Before,
    /// After the action; the response is lost.
    After,
}

pub(super) async fn charge(
    State(state): State<Arc<ShopState>>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> (StatusCode, Json<Value>) {
    execute_call(&state, "payments.charge", &headers, &body).await
}

pub(super) async fn refund(
    State(state): State<Arc<ShopState>>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> (StatusCode, Json<Value>) {
    execute_call(&state, "payments.refund", &headers, &body).await
}

async fn execute_call(
    state: &ShopState,
    effect: &str,
    headers: &HeaderMap,
    body: &Value,
) -> (StatusCode, Json<Value>) {
    let key = headers
        .get("idempotency-key")
        .and_then(|key| key.to_str().ok());
    let (Some(key), Some(order)) = (key, body["orderId"].as_str()) else {
        return error_response(
            StatusCode::BAD_REQUEST,
            "an idempotency-key and an orderId are required",
        );
    };
    state.record().call(key, order, effect, body);
    if state.fault_settings().down {
        return error_response(StatusCode::SERVICE_UNAVAILABLE, "down for maintenance");
    }
    let failure = failure(state);
    state.work().await;
    if failure == Some(FailurePoint::Before) {
        return error_response(StatusCode::INTERNAL_SERVER_ERROR, "injected fault");
    }
    let executed = state.record().execute(key, effect, body);
    match executed {
        Err(fault) => error_response(StatusCode::UNPROCESSABLE_ENTITY, &fault),
        Ok(_) if failure == Some(FailurePoint::After) => error_response(
            StatusCode::INTERNAL_SERVER_ERROR,
            "executed, but the response was lost",
        ),
        Ok((status, response)) => {
            let status =
                StatusCode::from_u16(status).expect("the record contains valid HTTP statuses");
            (status, Json(response))
        }
    }
}

fn failure(state: &ShopState) -> Option<FailurePoint> {
    let rate = state.fault_settings().fail_rate;
    state.draw(|chance| match chance.f64() {
        draw if draw >= rate => None,
        draw if draw < rate / 2.0 => Some(FailurePoint::Before),
        _ => Some(FailurePoint::After),
    })
}
