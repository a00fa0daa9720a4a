//! Lints of failure handlers.

use super::{has_no_warnings, warns};

#[test]
fn ol24_unknown_field_of_failure() {
    warns(
        "reference: =vars.why\nsteps: [{ id: a, do: { effect: e.a }, on_failure: { save: { why: =failure.kode } } }]",
        "OL24 5:66 `failure.kode` does not exist; the handler does not apply, and the saga fails \
         with `expression_error`",
    );
    warns(
        "steps: [{ id: a, do: { effect: e.a }, undo: { effect: e.u, data: { at: =failure.time } } }]",
        "OL24 4:72 `failure.time` does not exist; the compensation fails, and the instance becomes \
         stuck",
    );
    warns(
        "steps: [{ id: a, do: { effect: e.a } }]\nfailed: { fact: Off, data: { why: '=has(failure.reason)' } }",
        "OL24 5:35 `failure.reason` does not exist; the input that ends the instance becomes a \
         dead letter",
    );
    for field in ["code", "message", "step"] {
        has_no_warnings(&format!(
            "reference: =vars.why\nsteps: [{{ id: a, do: {{ effect: e.a }}, on_failure: {{ save: {{ why: =failure.{field} }} }} }}]"
        ));
    }
}
