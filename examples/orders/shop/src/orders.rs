//! The orders customers place; what becomes of each is told by its content, as in life.

use fastrand::Rng;
use serde_json::{Value, json};

/// Nobody has this in stock.
pub const SOLD_OUT: &str = "unicorn-saddle";
/// Who never answers.
pub const SILENT: &str = "nobody@example.org";
/// A card that is always declined ends so.
pub const DECLINED: &str = "0002";
/// Where no parcel can go.
pub const NOWHERE: &str = "Atlantis";

/// An order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Names it everywhere: the correlation id of its saga.
    pub id: String,
    /// The customer's mail address.
    pub customer: String,
    /// What is ordered.
    pub sku: String,
    /// To be paid, in cents.
    pub total: u64,
    /// The last four digits of the card.
    pub card: String,
    /// Where it goes.
    pub address: String,
}

/// What its content leads to, where nothing else goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrives.
    Shipped,
    /// The stock is rejected.
    SoldOut,
    /// The customer never authorizes the payment.
    Unauthorized,
    /// The card is declined.
    Declined,
    /// It cannot be shipped, so the money goes back.
    Undeliverable,
}

impl Order {
    /// An order with that fate.
    #[must_use]
    pub fn new(id: String, fate: Fate, total: u64) -> Self {
        let or = |when: Fate, bad: &str, good: &str| (if fate == when { bad } else { good }).to_owned();
        Self {
            id,
            customer: or(Fate::Unauthorized, SILENT, "ada@example.org"),
            sku: or(Fate::SoldOut, SOLD_OUT, "teapot"),
            total,
            card: or(Fate::Declined, DECLINED, "4242"),
            address: or(Fate::Undeliverable, NOWHERE, "12 Harbour Street"),
        }
    }

    /// The event that begins its saga, as a `CloudEvent`.
    #[must_use]
    pub fn placed(&self) -> Value {
        json!({
            "specversion": "1.0",
            "id": format!("placed-{}", self.id),
            "source": "urn:shop:checkout",
            "type": "OrderPlaced",
            "correlationid": self.id,
            "data": {
                "orderId": self.id,
                "customer": self.customer,
                "items": [{ "sku": self.sku, "quantity": 1 }],
                "total": self.total,
                "card": self.card,
                "address": self.address,
            },
        })
    }
}

/// So many orders; the same seed always gives the same ones. Six in ten arrive.
#[must_use]
pub fn orders(seed: u64, count: usize) -> Vec<Order> {
    let mut chance = Rng::with_seed(seed);
    (1..=count)
        .map(|number| Order::new(format!("o-{number:05}"), fate(&mut chance), chance.u64(100..50_000)))
        .collect()
}

fn fate(chance: &mut Rng) -> Fate {
    match chance.u8(0..100) {
        0..60 => Fate::Shipped,
        60..70 => Fate::SoldOut,
        70..80 => Fate::Unauthorized,
        80..90 => Fate::Declined,
        _ => Fate::Undeliverable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_orders_again_and_every_fate() {
        let first = orders(7, 200);
        assert_eq!(first, orders(7, 200));
        assert_ne!(first, orders(8, 200));
        let count = |is: &dyn Fn(&Order) -> bool| first.iter().filter(|order| is(order)).count();
        for found in [
            count(&|o| o.sku == SOLD_OUT),
            count(&|o| o.customer == SILENT),
            count(&|o| o.card == DECLINED),
            count(&|o| o.address == NOWHERE),
        ] {
            assert!((5..=40).contains(&found), "{found} of 200");
        }
    }
}
