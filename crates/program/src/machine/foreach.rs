//! Steps that are done once for each element of a list: so many at once, in the order of the list.

use serde_json::Value;

use super::compiled::Foreach;
use super::execution::Run;
use super::forward::Unready;
use super::state::{At, Slot};
use super::step_state::Mark;
use crate::expression::kind_of;
use crate::limits::MAX_ELEMENTS;

impl Run<'_> {
    /// Remembers the list and begins the first elements.
    pub(super) fn begin_elements(&mut self, index: usize, foreach: &Foreach) -> Result<(), Unready> {
        let list = match foreach.list.evaluate(&self.bindings_of_all())? {
            Value::Array(list) if list.len() <= MAX_ELEMENTS => list,
            Value::Array(list) => {
                let message =
                    format!("the list has {} elements, at most {MAX_ELEMENTS} are gone through", list.len());
                return Err(Unready { code: "too_many_elements".to_owned(), message });
            }
            other => {
                let message = format!("`foreach` goes through a list, this is {}", kind_of(&other));
                return Err(Unready { code: "no_list".to_owned(), message });
            }
        };
        for (name, _) in &self.saga.steps[index].save {
            self.state.vars.insert(name.clone(), Value::Array(vec![Value::Null; list.len()]));
        }
        self.state.set_elements(index, list);
        self.state.steps[index] = Slot::of(Mark::Open);
        self.next_elements(index);
        Ok(())
    }

    /// Begins as many elements as may be under way; the step is done when every element is.
    pub(super) fn next_elements(&mut self, index: usize) {
        let limit = self.saga.steps[index].foreach.as_ref().map_or(1, |foreach| foreach.limit);
        let mut under_way = self.units(index).filter(|at| self.state.slot(*at).mark.is_under_way()).count();
        for at in self.units(index) {
            if under_way >= limit {
                return;
            }
            if self.state.slot(at).mark != Mark::Waiting {
                continue;
            }
            if let Err(error) = self.ask(at, false) {
                return self.not_begun(at, error.into());
            }
            under_way += 1;
        }
        let over = |at: At| matches!(self.state.slot(at).mark, Mark::Done | Mark::Skipped);
        if self.units(index).all(over) {
            self.state.steps[index] = Slot::of(Mark::Done);
            self.note(At::step(index), "all done");
            self.step_done(index);
        }
    }

    /// One element failed for good: those under way are given up, the step has failed.
    pub(super) fn give_up_rest(&mut self, index: usize, mark: Mark) {
        for at in self.units(index) {
            self.give_up(at);
        }
        self.state.steps[index] = Slot::of(mark);
    }
}
