//! A real log of fines by a police office: each fine is open until its payments reach the amount due.
//!
//! The log is read from `../shared/data` beside the repository and is never part of it. If it is missing, the test
//! prints a message.

use std::collections::BTreeMap;
use std::path::Path;

use orlog_model::Status;
use orlog_program::compile_yaml;
use orlog_testkit::definition_suite::InstanceDriver;
use serde_json::json;

use super::start_again::send;

const LOG: &str = "../../../shared/data/roadtraffic100traces.csv";

/// The creation starts the fine. Expenses are added, a penalty replaces the amount of the fine, payments in part add up.
const FINE: &str = "saga: fine
version: 1
start: Create Fine
vars: { fine: =event.cents, expenses: 0 }
on:
  - { event: Send Fine, save: { expenses: =vars.expenses + event.cents } }
  - { event: Add penalty, save: { fine: =event.cents } }
steps:
  - id: paid
    do: { event: Payment, until: '=events.map(e, e.cents).sum() >= vars.fine + vars.expenses' }
    save: { paid: '=events.map(e, e.cents).sum()', payments: =size(events) }
completed: { fact: FineSettled, data: { paid: =vars.paid } }
";

/// Row of the log: activity and amount in cents. No field contains a comma.
struct LogRow {
    case: String,
    time: String,
    label: String,
    cents: i64,
}

fn log(text: &str) -> Vec<LogRow> {
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let header = lines.next().expect("the log has a header");
    let column = |name: &str| {
        header
            .iter()
            .position(|column| *column == name)
            .expect("the log has this column")
    };
    let [case, label, time] = ["case:concept:name", "concept:name", "time:timestamp"].map(column);
    let amounts = ["paymentAmount", "expense", "amount"].map(column);
    let mut rows: Vec<_> = lines
        .map(|row| {
            let mut amounts = amounts.iter().filter_map(|at| row[*at].parse::<f64>().ok());
            let amount = amounts.find(|amount| *amount > 0.0).unwrap_or_default();
            #[expect(
                clippy::cast_possible_truncation,
                reason = "amounts of fines are small"
            )]
            let cents = (amount * 100.0).round() as i64;
            let [case, label, time] = [case, label, time].map(|at| row[at].to_owned());
            LogRow {
                case,
                time,
                label,
                cents,
            }
        })
        .collect();
    rows.sort_by(|a, b| a.time.cmp(&b.time));
    rows
}

/// Returns after how many payments a fine is settled, and the amount paid; `None` if it stays open.
fn settled(rows: &[LogRow]) -> Option<(usize, i64)> {
    let (mut fine, mut expenses, mut paid, mut payments) = (0, 0, 0, 0);
    for row in rows {
        match row.label.as_str() {
            "Payment" => {
                paid += row.cents;
                payments += 1;
                if paid >= fine + expenses {
                    return Some((payments, paid));
                }
            }
            "Create Fine" | "Add penalty" => fine = row.cents,
            "Send Fine" => expenses += row.cents,
            _ => {}
        }
    }
    None
}

#[test]
fn payments_of_a_real_log_settle_their_fines_together() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(LOG);
    let Ok(text) = std::fs::read_to_string(&path) else {
        return println!("skipped: {} is missing", path.display());
    };
    let saga = compile_yaml(FINE, "fine.saga.yaml").unwrap();
    let mut cases: BTreeMap<String, Vec<LogRow>> = BTreeMap::new();
    for row in log(&text) {
        cases.entry(row.case.clone()).or_default().push(row);
    }
    let (mut together, mut open) = (0, 0);
    for (case, rows) in &cases {
        let mut run = InstanceDriver::new(&saga);
        for (n, row) in rows.iter().enumerate() {
            let mut deliver = || {
                send(
                    &mut run,
                    &format!("{case}-{n}"),
                    &row.label,
                    json!({ "cents": row.cents }),
                )
            };
            // Events without a meaning for the instance are ignored. Each payment is delivered twice.
            let first = deliver();
            if row.label == "Payment" {
                let second = deliver();
                assert!(
                    first.is_err() || second.is_err(),
                    "{case}: a payment counted twice"
                );
            }
        }
        let Some((payments, paid)) = settled(rows) else {
            assert_eq!(run.status(), Status::Running, "{case}");
            open += 1;
            continue;
        };
        assert_eq!(run.status(), Status::Completed, "{case}");
        let vars = &run.state_view()["vars"];
        assert_eq!(
            (&vars["payments"], &vars["paid"]),
            (&json!(payments), &json!(paid)),
            "{case}"
        );
        together += usize::from(payments > 1);
    }
    assert!(
        together > 0 && open > 0,
        "{} fines, {together} settled by several payments, {open} open",
        cases.len()
    );
}
