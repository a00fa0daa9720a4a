//! Sample data: an event that starts an instance, and the fields that a step reads from its result.

use std::collections::BTreeMap;
use std::path::Path;

use orlog_model::EventType;
use orlog_program::{CompiledDefinition, CorrelationSpec, Definition, Step};
use orlog_simulator::SimulationStep;
use orlog_simulator::explore::{set_field, usual_fields};
use orlog_simulator::test_file::{TestFile, TestStepKind};
use serde_json::{Map, Value, json};

use super::LoadedDefinition;
use super::files::{TEST_SUFFIX, list_matching};

const CORRELATION: &str = "demo-1";

/// Returns the event as text for single quotes of a shell.
#[must_use]
pub fn event(definitions: &[LoadedDefinition]) -> String {
    let start_event = definitions.iter().find_map(|definition| {
        let starts = definition
            .program
            .manifest()
            .subscriptions
            .iter()
            .find(|trigger| trigger.starts)?;
        Some((definition, &starts.kind))
    });

    let (kind, version, data) = match start_event {
        Some((definition, kind)) => {
            let (version, data) = tested_start_data(definition, kind);
            (kind.to_string(), version, data)
        }
        None => ("Hello".to_owned(), 1, json!({ "greeting": "hello" })),
    };

    let mut event = json!({
        "specversion": "1.0",
        "id": "demo-1",
        "source": "demo",
        "type": kind,
        "correlationid": CORRELATION,
        "data": data,
    });
    if version > 1 {
        event["dataversion"] = json!(version);
    }

    event.to_string().replace('\'', "")
}

/// Returns the newest accepted version of a start event, and its data: every field that the
/// variables, the business name and the correlation rule of the definition read.
#[must_use]
pub fn start_data(compiled: &CompiledDefinition, kind: &EventType) -> (u32, Value) {
    let mut data = json!({});
    let form = compiled.definition();
    let usual = usual_fields(form);
    for template in form.vars.values().chain(&form.reference) {
        put_fields(&mut data, &template.to_string(), &usual);
    }

    correlate(&mut data, form, kind);
    let accepted = form
        .events
        .get(kind)
        .and_then(|versions| versions.accepts.iter().max());

    (accepted.copied().unwrap_or(1), data)
}

/// Sets the fields that the correlation rule of the definition reads.
fn correlate(data: &mut Value, definition: &Definition, kind: &EventType) {
    let rule = match &definition.correlate {
        CorrelationSpec::Field(text) => Some(text),
        CorrelationSpec::ByType(texts) => texts.get(kind),
        CorrelationSpec::Envelope => None,
    };
    for path in rule
        .into_iter()
        .flat_map(|text| match text.strip_prefix('=') {
            Some(expression) => fields(expression),
            None => vec![text.clone()],
        })
    {
        set_field(data, &path, json!(CORRELATION));
    }
}

/// Returns the version and the data of a start event: the fields of its first test, and those that
/// only the definition names.
fn tested_start_data(definition: &LoadedDefinition, kind: &EventType) -> (u32, Value) {
    let Some(compiled) = &definition.compiled else {
        return (1, json!({}));
    };

    let (version, mut data) = start_data(compiled, kind);
    let tested = definition
        .file
        .as_deref()
        .and_then(|file| tested_data(file, kind, version));
    if let (Value::Object(fields), Some(tested)) = (&mut data, tested) {
        fields.extend(tested);
        correlate(&mut data, compiled.definition(), kind);
    }

    (version, data)
}

/// Returns the data of the first event of this type and version in the test files of a definition.
fn tested_data(definition: &Path, kind: &EventType, version: u32) -> Option<Map<String, Value>> {
    let dir = definition.parent()?;
    let dir = if dir.as_os_str().is_empty() {
        Path::new(".")
    } else {
        dir
    };
    let files = list_matching(dir, |name| name.ends_with(TEST_SUFFIX))
        .into_iter()
        .flatten();
    let tests = files.filter_map(|file| {
        let text = std::fs::read_to_string(&file).ok()?;
        // `orlog test` reports an invalid file.
        let tests = TestFile::parse(&text, "").ok()?;
        (Path::new(&tests.definition).file_name() == definition.file_name()).then_some(tests)
    });

    let mut steps = tests
        .flat_map(|tests| tests.cases)
        .flat_map(|case| case.steps);
    steps.find_map(|step| match step.kind {
        TestStepKind::Step {
            step: SimulationStep::Event(event),
            rejected: None,
        } if event.kind == *kind && event.version == version => event.data.as_object().cloned(),
        _ => None,
    })
}

/// Returns a value for each field that a step reads from its result.
#[must_use]
pub fn fields_of_step(definition: &Definition, step: &Step) -> Map<String, Value> {
    // Without the other steps, the values fulfil the conditions of this one.
    let alone = Definition {
        steps: vec![step.clone()],
        ..definition.clone()
    };
    let usual = usual_fields(&alone);
    let mut data = json!({});

    for template in step.save.values() {
        put_fields(&mut data, &template.to_string(), &usual);
    }

    for condition in step.ok.iter().filter_map(|matcher| matcher.when.as_deref()) {
        put_fields(&mut data, condition, &usual);
    }

    match data {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

fn put_fields(data: &mut Value, text: &str, usual: &BTreeMap<String, Value>) {
    for path in fields(text) {
        let value = usual.get(&path).cloned().unwrap_or_else(|| json!("1"));
        set_field(data, &path, value);
    }
}

/// Returns the paths after `event.` in the text of expressions; an optional access (`event.?car`)
/// reads a field too. A method at the end of a path is no field.
fn fields(text: &str) -> Vec<String> {
    let text = text.replace(".?", ".");
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    let paths = text.split("event.").skip(1).map(|rest| {
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let path = rest[..end].trim_end_matches('.');
        let is_call = rest[end..].starts_with('(');

        if is_call {
            path.rsplit_once('.').map_or("", |(path, _)| path)
        } else {
            path
        }
        .to_owned()
    });

    paths.filter(|path| !path.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use orlog_bus::codec::{self, DecodeDefaults};
    use orlog_model::Timestamp;
    use orlog_simulator::{
        DecisionObserver, InputResult, ObservedDecision, Simulator, SimulatorPrograms,
    };

    use super::*;
    use crate::definitions;
    use crate::definitions::schedules::file::is_schedule;

    struct Silent;

    impl DecisionObserver for Silent {
        fn on_decision(&mut self, _: &ObservedDecision<'_>) {}
    }

    #[test]
    fn collects_fields_read_by_expressions() {
        let text =
            r#"{"a":"=event.orderId","b":"=event.customer.?email.orValue(1) + event.total"}"#;
        assert_eq!(fields(text), ["orderId", "customer.email", "total"]);
    }

    #[test]
    fn sample_event_has_the_data_of_the_first_test() {
        let templates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../src/cli/init");
        for (file, expected) in [
            (
                "jobs/video.saga.yaml",
                json!({ "videoId": CORRELATION, "source": "film.mp4", "formats": ["webm", "av1"] }),
            ),
            (
                "trip/trip.saga.yaml",
                json!({ "tripId": CORRELATION, "traveller": "ada", "city": "Oslo", "price": 90000, "visaRequired": false }),
            ),
        ] {
            let definition = definitions::load_file(&templates.join(file)).unwrap();
            let event: Value = serde_json::from_str(&event(&[definition])).unwrap();
            assert_eq!(event["data"], expected, "{file}");
        }
    }

    #[test]
    fn sample_event_starts_an_instance_of_every_example() {
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
        let dirs = std::fs::read_dir(examples)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let files = dirs
            .filter(|dir| dir.is_dir())
            .flat_map(|dir| definitions::read_dir(&dir).unwrap());
        let mut count = 0;
        for file in files.filter(|file| !is_schedule(&file.path.to_string_lossy())) {
            let definition = definitions::load_file(&file.path).unwrap();
            let text = event(std::slice::from_ref(&definition));
            let value = serde_json::from_str(&text).unwrap();
            let defaults = DecodeDefaults {
                tenant: None,
                now: Timestamp::default(),
            };
            let event = codec::from_json(&value, &defaults).unwrap();
            let programs = SimulatorPrograms::new(vec![definition.program]);
            let mut simulator = Simulator::new(std::sync::Arc::new(programs), Timestamp::default());
            let results = simulator.publish(&event, &mut Silent);
            let started = matches!(&results[..], [Ok((key, InputResult::Applied(_)))] if key.correlation.as_str() == CORRELATION);
            assert!(started, "{}: {text}: {results:?}", file.path.display());
            count += 1;
        }
        assert!(count >= 7, "{count} examples");
    }
}
