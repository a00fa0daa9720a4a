//! Runs the definition suite on every definition under `examples`: each input twice, each step failing
//! in turn, each compensation twice, and no pending work at the end.

use std::path::{Path, PathBuf};

use orlog_program::CompiledDefinition;
use orlog_testkit::definition_suite::{self, PayloadSamples};
use serde_json::json;

fn definitions(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("the directory is readable") {
        let path = entry.expect("the entry can be read").path();
        if path.is_dir() {
            definitions(&path, found);
        } else if path.to_string_lossy().ends_with(".saga.yaml") {
            found.push(path);
        }
    }
}

/// Returns payloads that lead to completion. A loan requires a good score; human tasks receive more
/// data.
fn samples(definition: &CompiledDefinition) -> PayloadSamples {
    let samples = PayloadSamples::of(definition.definition());
    match definition.definition().saga.as_str() {
        "loan" => samples
            .starting(json!({ "loanId": "l1", "applicant": "ada", "cents": 900_000, "currency": "EUR" }))
            .answering("score", json!({ "score": 500 })),
        "media" => samples.starting(json!({
            "videoId": "v1",
            "source": "s3://in/v1.mov",
            "formats": [
                { "name": "low", "size": "640x360", "bitrate": "800k" },
                { "name": "high", "size": "1920x1080", "bitrate": "5M" },
            ],
        })),
        "onboarding" => samples.starting(json!({
            "employeeId": "e1", "name": "ada", "role": "engineer", "firstDay": "2026-02-01T08:00:00Z",
        })),
        "trip" => {
            samples.starting(json!({ "tripId": "t1", "customer": "ada", "flight": 1, "hotel": 2, "car": 3 }))
        }
        _ => samples,
    }
}

#[test]
fn every_example_passes_the_definition_suite() {
    let mut files = Vec::new();
    definitions(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("examples"),
        &mut files,
    );
    files.sort();
    assert!(files.len() >= 8, "the examples are found: {files:?}");
    for file in files {
        let text = std::fs::read_to_string(&file).expect("the file can be read");
        let compiled = orlog_program::compile_yaml(&text, &file.display().to_string());
        let compiled = compiled.unwrap_or_else(|problems| panic!("{problems:#?}"));
        let played = definition_suite::check_with(&compiled, &samples(&compiled));
        println!(
            "{}: {} lives, {} inputs",
            file.display(),
            played.runs,
            played.inputs
        );
        assert!(
            played.runs > compiled.definition().steps.len(),
            "{}: each step fails once",
            file.display()
        );
    }
}
