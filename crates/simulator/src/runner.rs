//! Plays moves on a lab: what a move means for the instance that a test or an exploration is about.

mod inputs;
mod names;

use orlog_model::{Action, Failure, Input, InstanceKey, SagaName, Timestamp, Verdict};

use crate::simulator::{Lab, Observer, Taken};
use crate::step::{EventMove, Move};
use names::{Called, action};

/// A lab, and the instance that moves are about: the first of its saga.
#[derive(Clone)]
pub struct Player {
    /// The runner.
    pub lab: Lab,
    saga: SagaName,
    focus: Option<InstanceKey>,
    last: Vec<(InstanceKey, Input)>,
    count: u64,
}

/// What a move came to.
#[derive(Clone, Debug, PartialEq)]
pub enum Played {
    /// Time passed, and so many timers fired.
    Passed(usize),
    /// An input was taken, by each instance it was for.
    Taken(Vec<Taken>),
    /// It was for no instance; why.
    Nobody(String),
}

impl Played {
    /// Whether anything changed.
    #[must_use]
    pub fn changed(&self) -> bool {
        match self {
            Played::Passed(fired) => *fired > 0,
            Played::Taken(all) => all.iter().any(|taken| matches!(taken, Taken::Applied(_) | Taken::Kept)),
            Played::Nobody(_) => false,
        }
    }
}

/// A move that cannot be made now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cannot {
    /// No instance has begun.
    #[error("no instance of {0} has begun yet")]
    NotBegun(SagaName),
    /// Nothing of that tag was asked for.
    #[error("nothing was asked for under the tag `{tag}`; {}", open_words(.open))]
    NotAsked {
        /// The tag.
        tag: String,
        /// Tags under which something is open.
        open: Vec<String>,
    },
    /// The step is not answered in that way.
    #[error("{0}")]
    Wrong(String),
    /// There was no input yet.
    #[error("there is no input yet that could come a second time")]
    NothingBefore,
}

fn open_words(open: &[String]) -> String {
    if open.is_empty() { "nothing is open".to_owned() } else { format!("open are: {}", open.join(", ")) }
}

impl Player {
    /// On an empty lab.
    #[must_use]
    pub fn new(lab: Lab, saga: SagaName) -> Self {
        Self { lab, saga, focus: None, last: Vec::new(), count: 0 }
    }

    /// The instance that moves are about, once it is known.
    #[must_use]
    pub fn focus(&self) -> Option<&InstanceKey> {
        self.focus.as_ref()
    }

    /// The saga that moves are about.
    #[must_use]
    pub fn saga(&self) -> &SagaName {
        &self.saga
    }

    /// Makes a move, at the instance given or at the first one.
    ///
    /// # Errors
    /// Why it cannot be made; nothing has changed then.
    pub fn play(
        &mut self,
        one: &Move,
        at: Option<&InstanceKey>,
        observer: &mut dyn Observer,
    ) -> Result<Played, Cannot> {
        match one {
            Move::Event(event) => {
                let focus = at.or(self.focus.as_ref()).cloned();
                Ok(self.event(event, focus.as_ref(), observer))
            }
            Move::Advance(by) => Ok(self.advance_to(self.lab.now().after(*by), observer)),
            Move::At(time) => Ok(self.advance_to(*time, observer)),
            Move::Duplicate => self.duplicate(observer),
            Move::Timeout { .. }
            | Move::Doubt { .. }
            | Move::Ok { .. }
            | Move::Fail { .. }
            | Move::Task { .. }
            | Move::Operator(_)
            | Move::Signal { .. } => {
                let focus = at.or(self.focus.as_ref()).cloned();
                let key = focus.ok_or_else(|| Cannot::NotBegun(self.saga.clone()))?;
                self.address(one, &key, observer)
            }
        }
    }

    /// What is for one instance.
    fn address(
        &mut self,
        one: &Move,
        key: &InstanceKey,
        observer: &mut dyn Observer,
    ) -> Result<Played, Cannot> {
        let input = match one {
            Move::Timeout { tag } => return self.timeout(key, tag, observer),
            Move::Doubt { tag } => self.doubt(key, tag)?,
            Move::Ok { tag, event, data } => self.ok(key, tag, event.as_ref(), data)?,
            Move::Fail { tag, event, code, message, data } => {
                let failure = Failure {
                    code: code.clone().unwrap_or_else(|| "failed".to_owned()),
                    message: message.clone().unwrap_or_else(|| format!("{tag} failed")),
                };
                let called = match event {
                    Some(event) => Called::Event(event),
                    None if code.is_some() => Called::Code,
                    None => Called::Nothing,
                };
                self.fail(key, tag, called, failure, data)?
            }
            Move::Task { tag, outcome, by, data } => {
                self.task(key, tag, outcome.as_ref(), by.as_deref(), data)?
            }
            Move::Operator(verb) => {
                let action = action(verb);
                self.control(action)
            }
            Move::Signal { kind, data } => {
                self.control(Action::Signal { kind: kind.clone(), data: data.clone() })
            }
            Move::Event(_) | Move::Advance(_) | Move::At(_) | Move::Duplicate => {
                return Err(Cannot::Wrong("it is for no instance".to_owned()));
            }
        };
        Ok(self.take(key, input, observer))
    }

    fn take(&mut self, key: &InstanceKey, input: Input, observer: &mut dyn Observer) -> Played {
        let taken = self.lab.take(key, &input, observer);
        self.last = vec![(key.clone(), input)];
        Played::Taken(vec![taken])
    }

    fn duplicate(&mut self, observer: &mut dyn Observer) -> Result<Played, Cannot> {
        if self.last.is_empty() {
            return Err(Cannot::NothingBefore);
        }
        let last = self.last.clone();
        Ok(Played::Taken(last.iter().map(|(key, input)| self.lab.take(key, input, observer)).collect()))
    }

    fn advance_to(&mut self, time: Timestamp, observer: &mut dyn Observer) -> Played {
        Played::Passed(self.lab.advance_to(time, observer))
    }

    fn event(&mut self, one: &EventMove, focus: Option<&InstanceKey>, observer: &mut dyn Observer) -> Played {
        let event = self.event_from(one, focus);
        let routes = self.lab.programs().route(&event);
        let keys: Vec<_> = routes.iter().flatten().cloned().collect();
        if self.focus.is_none() {
            let of_saga = keys.iter().find(|key| key.saga == self.saga);
            self.focus = of_saga.filter(|_| self.starts(&event.kind)).cloned();
        }
        if let Some(Err((saga, why))) = routes.iter().find(|route| route.is_err()) {
            return Played::Nobody(format!("{saga}: {why}"));
        }
        if keys.is_empty() {
            return Played::Nobody(format!("no definition takes {}", event.kind));
        }
        let input = Input::Event(event);
        let taken = keys.iter().map(|key| self.lab.take(key, &input, observer)).collect();
        self.last = keys.into_iter().map(|key| (key, input.clone())).collect();
        Played::Taken(taken)
    }

    fn timeout(
        &mut self,
        key: &InstanceKey,
        tag: &str,
        observer: &mut dyn Observer,
    ) -> Result<Played, Cannot> {
        let due = self.lab.instance(key).and_then(|instance| {
            instance.timers.iter().find(|timer| timer.name.as_str() == tag).map(|timer| timer.due)
        });
        if let Some(due) = due {
            return Ok(self.advance_to(due.max(self.lab.now()), observer));
        }
        let message = format!("{tag} was not done in time");
        let failure = Failure { code: "timeout".to_owned(), message };
        let input = self.outcome(key, tag, Verdict::TimedOut { failure })?;
        Ok(self.take(key, input, observer))
    }
}
