//! Loops: the steps that each loop repeats. They have one way in, the first steps, and one way out,
//! the step that ends the loop.

use crate::definition::Step;
use crate::diagnostic::{RawDiagnostic, RawDiagnostics};
use crate::limits::MAX_LOOP_STEPS;
use crate::steps::{Action, RepeatAction};

/// Order of the steps, and the first steps of each loop.
pub(super) struct LoopContext<'a> {
    pub(super) steps: &'a [Step],
    pub(super) before: &'a [Vec<usize>],
    pub(super) ancestors: &'a [Vec<bool>],
}

/// Returns for each step the loop that contains it: the index of the step that ends the loop.
/// `firsts` are the first steps of each loop, by its index.
pub(super) fn loops(
    context: &LoopContext<'_>,
    firsts: &[(usize, Vec<usize>)],
    findings: &mut RawDiagnostics,
) -> Vec<Option<usize>> {
    let mut loops = vec![None; context.steps.len()];
    let mut started = 0_usize;
    for (end, firsts) in firsts {
        let body = body(context, *end, firsts, findings);

        // A step has one loop and one number of its round, so loops must not overlap (ADR 0064).
        for step in &body {
            if loops[*step].replace(*end).is_some() || context.repeat(*step).is_some() {
                findings.push(context.nested(*end, *step));
            }
        }

        check(context, *end, firsts, &body, findings);

        let rounds = context.repeat(*end).map_or(0, |repeat| repeat.max);
        let steps = usize::try_from(rounds)
            .unwrap_or(usize::MAX)
            .saturating_mul(body.len());
        started = started.saturating_add(steps);

        // A loop whose steps never wait starts all of them in one transition (ADR 0064).
        if started > MAX_LOOP_STEPS {
            let message =
                format!("the loops can start {started} steps; the limit is {MAX_LOOP_STEPS}");
            let finding = RawDiagnostic::new(format!("steps[{end}].do.max"), message);
            findings.push(finding.with_suggestion("lower `max`, or move steps into a child saga"));
        }
    }
    loops
}

/// Returns the steps on the paths from the first steps to the end of the loop.
fn body(
    context: &LoopContext<'_>,
    end: usize,
    firsts: &[usize],
    findings: &mut RawDiagnostics,
) -> Vec<usize> {
    for (n, first) in firsts
        .iter()
        .enumerate()
        .filter(|(_, first)| !context.ancestors[end][**first])
    {
        let first = &context.steps[*first].id;
        let end_id = &context.steps[end].id;
        let message = format!("no path leads from `{first}` to the end of the loop `{end_id}`");
        let finding = RawDiagnostic::new(format!("steps[{end}].do.repeat[{n}]"), message);
        findings.push(finding.with_suggestion("name a step that comes before this one"));
    }

    // The end is no part of the body, because a step is not its own ancestor.
    (0..context.steps.len())
        .filter(|step| {
            context.ancestors[end][*step]
                && firsts
                    .iter()
                    .any(|first| first == step || context.ancestors[*step][*first])
        })
        .collect()
}

/// Checks the steps of a loop, and that no path passes by its first steps or its end.
fn check(
    context: &LoopContext<'_>,
    end: usize,
    firsts: &[usize],
    body: &[usize],
    findings: &mut RawDiagnostics,
) {
    let steps = context.steps;
    let loop_id = &context.steps[end].id;
    let mut report = |step: usize, field: &str, message: String, suggestion: String| {
        let finding = RawDiagnostic::new(format!("steps[{step}].{field}"), message);
        findings.push(finding.with_suggestion(suggestion));
    };

    for step in body.iter().copied() {
        let id = &steps[step].id;

        // Its elements would need a second number in tags and states (ADR 0064).
        if steps[step].foreach.is_some() {
            let message = format!("step `{id}` of the loop `{loop_id}` has `foreach`");
            report(
                step,
                "foreach",
                message,
                "start a child saga that iterates over the list".to_owned(),
            );
        }

        if steps[step].pivot {
            let message = format!("step `{id}` of the loop `{loop_id}` is a pivot");
            report(
                step,
                "pivot",
                message,
                "make a step after the loop the pivot".to_owned(),
            );
        }

        let from = |inside: bool| {
            context.before[step]
                .iter()
                .find(|before| body.contains(before) == inside)
        };

        // A path into the loop beside its first steps would skip the start of a round.
        match (firsts.contains(&step), from(true), from(false)) {
            (true, Some(inside), _) => {
                let inside = &steps[*inside].id;
                let message =
                    format!("`{id}` comes after `{inside}`, so a round does not start with it");
                report(
                    end,
                    "do.repeat",
                    message,
                    format!("remove `{id}` from `repeat`"),
                );
            }
            (false, _, Some(outside)) => {
                let outside = &steps[*outside].id;
                let message = format!(
                    "step `{id}` of the loop `{loop_id}` comes after `{outside}`, which is not \
                     repeated"
                );
                let suggestion =
                    format!("order `{outside}` before the loop, or add `{id}` to its `repeat`");
                report(step, "after", message, suggestion);
            }
            (_, _, _) => {}
        }
    }

    // A path out of the loop beside its end would run in each round.
    for (step, before) in context
        .before
        .iter()
        .enumerate()
        .filter(|(step, _)| !body.contains(step))
    {
        let inside = before.iter().find(|before| body.contains(before));
        let outside = before.iter().find(|before| !body.contains(before));

        match (step == end, inside, outside) {
            (false, Some(inside), _) => {
                let id = &steps[step].id;
                let inside = &steps[*inside].id;
                let message = format!(
                    "step `{id}` follows `{inside}` of the loop `{loop_id}`, which can start \
                     another round"
                );
                let suggestion = format!("let it follow `{loop_id}`, or let `{loop_id}` follow it");
                report(step, "after", message, suggestion);
            }
            (true, _, Some(outside)) => {
                let outside = &steps[*outside].id;
                let message =
                    format!("the loop `{loop_id}` follows `{outside}`, which it does not repeat");
                report(
                    step,
                    "after",
                    message,
                    format!("order `{outside}` before the loop"),
                );
            }
            (_, _, _) => {}
        }
    }
}

impl LoopContext<'_> {
    fn repeat(&self, step: usize) -> Option<&RepeatAction> {
        let Action::Repeat(repeat) = &self.steps[step].action else {
            return None;
        };
        Some(repeat)
    }

    fn nested(&self, end: usize, step: usize) -> RawDiagnostic {
        let end_id = &self.steps[end].id;
        let id = &self.steps[step].id;
        let message = format!("`{id}` belongs to the loop `{end_id}` and to another one");
        RawDiagnostic::new(format!("steps[{end}].do.repeat"), message)
            .with_suggestion("start a child saga for the inner loop")
    }
}
