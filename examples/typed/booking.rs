//! A booking of a seat as a typed saga: reserve it, charge for it, and give it back when the card is refused.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use orlog::typed::{
    Call, Compensation, Declined, Event, Handler, Handlers, Identifier, NoFailure, Saga, Trigger,
};
use orlog_effect::Refusal;
use orlog_program::{Compiled, Problem};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// What all events of a booking share.
pub(crate) struct BookingId(String);

impl Identifier for BookingId {
    const FIELD: &'static str = "booking";

    fn text(&self) -> String {
        self.0.clone()
    }
}

/// Somebody wants a seat; with this a booking begins.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SeatWanted {
    /// The booking.
    pub(crate) booking: String,
    /// The seat.
    pub(crate) seat: u32,
    /// The number of the card that pays.
    pub(crate) card: String,
}

impl Event for SeatWanted {
    const TYPE: &'static str = "SeatWanted";
}

impl Trigger for SeatWanted {
    type Id = BookingId;

    fn id(&self) -> BookingId {
        BookingId(self.booking.clone())
    }
}

/// The seat is taken for this booking.
#[derive(Serialize, Deserialize)]
pub(crate) struct SeatReserved {
    seat: u32,
}

/// The seat was taken before.
#[derive(Serialize, Deserialize)]
pub(crate) struct SeatTaken {
    reason: String,
}

/// The card paid.
#[derive(Serialize, Deserialize)]
pub(crate) struct Paid {
    receipt: String,
}

/// Who pays earns points. No part of the booking: the handler tells it to whoever wants to know.
#[derive(Serialize, Deserialize)]
pub(crate) struct PointsEarned {
    card: String,
}

/// The card did not pay.
#[derive(Serialize, Deserialize)]
pub(crate) struct CardRefused {
    reason: String,
}

/// The ticket is out.
#[derive(Serialize, Deserialize)]
pub(crate) struct TicketSent {}

/// The booking is done.
#[derive(Serialize, Deserialize)]
pub(crate) struct Booked {}

/// The booking came to nothing.
#[derive(Serialize, Deserialize)]
pub(crate) struct BookingFailed {}

macro_rules! events {
    ($($event:ident),*) => { $(impl Event for $event { const TYPE: &'static str = stringify!($event); })* };
}
events!(SeatReserved, SeatTaken, Paid, PointsEarned, CardRefused, TicketSent, Booked, BookingFailed);

/// The seats that are taken, and for which booking.
pub(crate) type House = Arc<Mutex<BTreeSet<(u32, String)>>>;

/// The seat that a handler is told of.
#[derive(Deserialize)]
pub(crate) struct Place {
    seat: u32,
    booking: String,
}

/// Takes a seat.
pub(crate) struct Reserve(pub(crate) House);

#[async_trait]
impl Handler for Reserve {
    const EFFECT: &'static str = "house.reserve";
    type Command = Place;
    type Ok = SeatReserved;
    type Fail = SeatTaken;

    async fn handle(&self, place: Place, _call: &mut Call) -> Result<SeatReserved, Declined<SeatTaken>> {
        let mut house = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if house.iter().any(|(seat, booking)| *seat == place.seat && *booking != place.booking) {
            return Err(Declined::Event(SeatTaken { reason: format!("seat {} is taken", place.seat) }));
        }
        house.insert((place.seat, place.booking));
        Ok(SeatReserved { seat: place.seat })
    }
}

/// Gives a seat back.
pub(crate) struct Release(pub(crate) House);

#[async_trait]
impl Compensation for Release {
    const EFFECT: &'static str = "house.release";
    type Command = Place;

    async fn undo(&self, place: Place) -> Result<(), Refusal> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&(place.seat, place.booking));
        Ok(())
    }
}

/// What the bank is told.
#[derive(Deserialize)]
pub(crate) struct Card {
    card: String,
}

/// Lets the card pay.
pub(crate) struct Charge;

#[async_trait]
impl Handler for Charge {
    const EFFECT: &'static str = "bank.charge";
    type Command = Card;
    type Ok = Paid;
    type Fail = CardRefused;

    async fn handle(&self, order: Card, call: &mut Call) -> Result<Paid, Declined<CardRefused>> {
        if order.card.starts_with('0') {
            return Err(Declined::Event(CardRefused { reason: "the card is expired".to_owned() }));
        }
        call.tell(PointsEarned { card: order.card.clone() })?;
        Ok(Paid { receipt: format!("receipt for {}", order.card) })
    }
}

/// Gives the money back.
pub(crate) struct Refund;

#[async_trait]
impl Compensation for Refund {
    const EFFECT: &'static str = "bank.refund";
    type Command = Card;

    async fn undo(&self, order: Card) -> Result<(), Refusal> {
        println!("refund to {}", order.card);
        Ok(())
    }
}

/// Sends the ticket.
pub(crate) struct Send;

#[async_trait]
impl Handler for Send {
    const EFFECT: &'static str = "mail.ticket";
    type Command = Place;
    type Ok = TicketSent;
    type Fail = NoFailure;

    async fn handle(&self, _place: Place, _call: &mut Call) -> Result<TicketSent, Declined<NoFailure>> {
        Ok(TicketSent {})
    }
}

/// All handlers over one house.
pub(crate) fn handlers(house: &House) -> Handlers {
    let reserve = Reserve(Arc::clone(house));
    Handlers::new()
        .handler(reserve)
        .compensation(Release(Arc::clone(house)))
        .handler(Charge)
        .compensation(Refund)
        .handler(Send)
}

/// The saga.
pub(crate) fn saga() -> Result<Arc<Compiled>, Vec<Problem>> {
    let place = || json!({ "seat": "=vars.seat", "booking": "=key.correlation" });
    Saga::<SeatWanted>::new("booking")
        .tune(|saga| saga.var("seat", json!("=event.seat")).var("card", json!("=event.card")))
        .step::<Reserve>("reserve", place())
        .undo::<Release>(place())
        .step::<Charge>("charge", json!({ "card": "=vars.card" }))
        .undo::<Refund>(json!({ "card": "=vars.card" }))
        .step::<Send>("send", place())
        .completed::<Booked>(json!({}))
        .failed::<BookingFailed>(json!({ "reason": "=failure.message" }))
        .build()
}
