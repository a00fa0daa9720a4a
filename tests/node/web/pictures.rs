//! Pictures of the web UI for the documentation: a node with the definitions of `orlog init`, orders that
//! complete, retry, fail and wait. `make pictures` writes them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::http::Method;
use orlog_effect::limits::breaker::BreakerOptions;
use orlog_effect::retry::Backoff;
use orlog_effect::{FunctionCall, FunctionProvider, Policy, ProviderError, Upstream};
use orlog_testkit::WAIT_TIMEOUT;
use orlog_testkit::browser::Browser;
use serde_json::{Value, json};

use crate::api::node::event;
use crate::harness::node::{Node, NodeBuilder};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
/// Maximum size of a picture, in bytes.
const MAX_SIZE: u64 = 150_000;
/// Pictures: name, path of the page, text that it contains, height of the window, and an expression that is true
/// when it is ready.
const PICTURES: [(&str, &str, &str, u32, &str); 6] = [
    ("instances", "/instances", "Scanned", 900, "true"),
    (
        "failed-instance",
        "/instances/order/o-1007",
        "card_declined",
        1000,
        OPEN_DATA,
    ),
    (
        "graph",
        "/instances/trip/t-1",
        "Waiting for approve",
        1000,
        "document.querySelector('.graph .g-completed')",
    ),
    ("node", "/node", "circuit breaker of carrier", 900, "true"),
    ("schedules", "/schedules", "weekly-restock", 520, "true"),
    ("overview", "/", "Longest unchanged", 900, HAS_RATES),
];
/// The overview has received two responses, whose difference gives the rates.
const HAS_RATES: &str =
    "[...document.querySelectorAll('.stat .value')].every((stat) => stat.textContent !== '…')";
/// Expands the data of the transition that requests the charge.
const OPEN_DATA: &str = "(() => { const data = document.querySelectorAll('.timeline details')[1]; \
                         if (!data?.open) data?.querySelector('summary').click(); return data?.open; })()";

/// Effects of a trip and their results, except the charge.
const TRIP_EFFECTS: [(&str, &str); 7] = [
    ("flights.book", r#"{ "booking": "f-77" }"#),
    ("flights.cancel", "{}"),
    ("hotels.book", r#"{ "booking": "h-12" }"#),
    ("hotels.cancel", "{}"),
    ("visas.apply", r#"{ "visa": "v-3" }"#),
    ("visas.withdraw", "{}"),
    ("mail.itinerary", "{}"),
];

/// Returns the upstream of the shop. A card has a limit; the first attempt of such a charge has no response.
fn shop() -> Upstream {
    let charge = |call: FunctionCall| async move {
        match call.payload["amount"].as_u64().unwrap_or_default() {
            amount if amount > 100_000 && call.attempt.number == 1 => Err(
                ProviderError::unavailable("restarting", "the payment service is restarting"),
            ),
            amount if amount > 100_000 => Err(ProviderError::permanent(
                "card_declined",
                "the limit of the card is 1000.00",
            )),
            _ => Ok(json!({ "chargeId": "c-5521" })),
        }
    };
    let policy = Policy {
        backoff: short(),
        ..Policy::default()
    };
    FunctionProvider::new()
        .effect("stock.reserve", |_| async {
            Ok(json!({ "reservation": "r-118" }))
        })
        .effect("stock.release", |_| async { Ok(json!({})) })
        .effect("payments.charge", charge)
        .effect("payments.refund", |_| async { Ok(json!({})) })
        .upstream("shop", policy)
}

fn short() -> Backoff {
    Backoff {
        initial: Duration::from_millis(50),
        max: Duration::from_millis(200),
        ..Backoff::default()
    }
}

/// Returns the upstream of the carrier, which responds while it is switched on.
fn carrier(works: Arc<AtomicBool>) -> Upstream {
    let ship = move |_: FunctionCall| {
        let works = works.load(Ordering::SeqCst);
        async move {
            if works {
                Ok(json!({ "tracking": "t-90210" }))
            } else {
                Err(ProviderError::unavailable(
                    "unreachable",
                    "carrier.example does not respond",
                ))
            }
        }
    };
    let breaker = BreakerOptions {
        failure_threshold: 3,
        rate: None,
        open_duration: WAIT_TIMEOUT,
    };
    let policy = Policy {
        backoff: short(),
        breaker: Some(breaker),
        ..Policy::default()
    };
    FunctionProvider::new()
        .effect("shipping.ship", ship)
        .upstream("carrier", policy)
}

fn placed(number: u64, total: u64) -> Value {
    let data =
        json!({ "orderId": format!("o-{number}"), "sku": "lamp", "quantity": 2, "total": total });
    event(&format!("placed-{number}"), "OrderPlaced", &data)
}

fn project(template: &str, file: &str) -> String {
    std::fs::read_to_string(
        Path::new(ROOT)
            .join("src/cli/init")
            .join(template)
            .join(file),
    )
    .unwrap()
}

/// Returns the directory of the pictures: that of the documentation if they are written.
fn directory() -> PathBuf {
    let documentation = Path::new(ROOT).join("docs/images");
    if std::env::var_os("ORLOG_WRITE_DOCS").is_some() {
        return documentation;
    }
    super::site::pictures().join("documentation")
}

/// Starts a node with the definitions and their upstreams; the carrier works while the switch is on.
async fn start_node(works: &Arc<AtomicBool>) -> Node {
    let mut builder =
        NodeBuilder::new().config(|config| "orlog-1".clone_into(&mut config.node_name));
    for (template, saga) in [("order", "order"), ("trip", "trip"), ("trip", "visa")] {
        builder = builder.definition(saga, &project(template, &format!("{saga}.saga.yaml")));
    }
    let mut agency = FunctionProvider::new();
    for (effect, result) in TRIP_EFFECTS {
        let result: Value = serde_json::from_str(result).unwrap();
        agency = agency.effect(effect, move |_: FunctionCall| {
            std::future::ready(Ok(result.clone()))
        });
    }
    let builder = builder
        .upstream(shop())
        .upstream(carrier(Arc::clone(works)));
    builder
        .upstream(agency.upstream("agency", Policy::default()))
        .start()
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn pictures_of_the_documentation_show_the_current_views() {
    let works = Arc::new(AtomicBool::new(true));
    let node = start_node(&works).await;
    let publish = async |number: u64, total: u64, status: &str| {
        let placed = placed(number, total).to_string();
        node.ask(Method::POST, "", "/v1/events", placed).await;
        let path = format!("/v1/sagas/order/o-{number}");
        node.until("", &path, |order| order["status"] == status)
            .await;
    };
    for number in 1001..1012 {
        let (total, status) = if number == 1007 {
            (249_900, "failed")
        } else {
            (number * 7, "completed")
        };
        publish(number, total, status).await;
    }
    let trip = json!({ "tripId": "t-1", "traveller": "Ada", "city": "Hanoi", "price": 250_000, "visaRequired": true });
    let requested = event("trip-1", "TripRequested", &trip).to_string();
    node.ask(Method::POST, "", "/v1/events", requested).await;
    node.until("", "/v1/sagas/trip/t-1", |trip| {
        trip["waits"]
            .as_array()
            .is_some_and(|waits| waits.len() == 1)
    })
    .await;
    works.store(false, Ordering::SeqCst);
    for number in 1012..1015 {
        publish(number, number * 7, "running").await;
    }
    for (name, cron, zone) in [
        ("weekly-restock", "0 6 * * 1", "Europe/Berlin"),
        ("monthly-order", "0 18 1 * *", "America/New_York"),
    ] {
        let schedule = json!({ "saga": "order", "cron": cron, "zone": zone });
        let path = format!("/v1/schedules/{name}");
        let response = node.ask(Method::PUT, "", &path, schedule.to_string()).await;
        assert!(response.status.is_success(), "{response:?}");
    }

    let (url, mut browser) = (node.serve().await, Browser::start());
    for (name, path, text, height, ready) in PICTURES {
        browser.set_color_scheme(1280, height, false);
        browser.navigate(&format!("{url}/#{path}"));
        browser.wait_for_text(text);
        browser.until("!document.querySelector('[data-key=loading]')");
        if name == "overview" {
            for number in 1101..1121 {
                let placed = placed(number, number * 7).to_string();
                node.ask(Method::POST, "", "/v1/events", placed).await;
            }
        }
        browser.until(ready);
        let file = directory().join(format!("{name}.webp"));
        browser.screenshot(&file);
        let size = std::fs::metadata(&file).unwrap().len();
        assert!((5_000..MAX_SIZE).contains(&size), "{name} has {size} bytes");
        assert!(
            Path::new(ROOT)
                .join("docs/images")
                .join(format!("{name}.webp"))
                .is_file(),
            "{name}: make pictures"
        );
    }
    let record = browser.record();
    assert!(
        record.console_errors.is_empty(),
        "{:#?}",
        record.console_errors
    );
    drop(browser);
    node.stop().await;
}
