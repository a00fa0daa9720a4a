//! Findings as annotations that GitHub Actions shows at the lines of a pull request.

use orlog_program::Problem;

/// One workflow command, for example `::error file=a.saga.yaml,line=3,col=5::what is wrong`.
pub(super) fn annotation(level: &str, code: Option<&str>, problem: &Problem) -> String {
    let Problem { file, line, column, path, message, suggestion } = problem;
    let place = if *line > 0 { format!(",line={line},col={column}") } else { String::new() };
    let title = code.map(|code| format!(",title={}", property(code))).unwrap_or_default();
    let path = if path.is_empty() { String::new() } else { format!("{path}: ") };
    let suggestion = suggestion.as_ref().map(|suggestion| format!("; {suggestion}")).unwrap_or_default();
    let text = data(&format!("{path}{message}{suggestion}"));
    format!("::{level} file={}{place}{title}::{text}", property(file))
}

fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_ends_the_annotation() {
        let problem = Problem {
            file: "a,b:c.yaml".to_owned(),
            line: 3,
            column: 5,
            path: "steps[0]".to_owned(),
            message: "100 %\nwrong".to_owned(),
            suggestion: Some("try: again".to_owned()),
        };
        assert_eq!(
            annotation("warning", Some("OL01"), &problem),
            "::warning file=a%2Cb%3Ac.yaml,line=3,col=5,title=OL01::steps[0]: 100 %25%0Awrong; try: again"
        );
    }
}
