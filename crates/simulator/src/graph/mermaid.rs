//! A definition as a flowchart of Mermaid.

use std::fmt::Write as _;

use orlog_program::Definition;

use super::flow::{Flow, Node, Shape};
use super::{Look, Place};

/// The looks in colours that can be read on light and on dark ground.
const STYLES: [(Look, &str); 6] = [
    (Look::Pending, "fill:#f4f4f5,stroke:#71717a,color:#18181b"),
    (Look::Open, "fill:#dbeafe,stroke:#2563eb,color:#172554,stroke-width:3px"),
    (Look::Done, "fill:#dcfce7,stroke:#16a34a,color:#052e16"),
    (Look::Failed, "fill:#fee2e2,stroke:#dc2626,color:#450a0a"),
    (Look::Undone, "fill:#fef3c7,stroke:#d97706,color:#451a03"),
    (Look::Skipped, "fill:#f4f4f5,stroke:#a1a1aa,color:#71717a,stroke-dasharray:4 3"),
];

/// The text of a flowchart.
#[must_use]
pub fn mermaid(definition: &Definition, place: Option<&Place>) -> String {
    let flow = Flow::of(definition);
    let mut text = String::from("flowchart TD\n");
    for (index, node) in flow.nodes.iter().enumerate() {
        line(&mut text, format_args!("  n{index}{}", shaped(node, place)));
    }
    for arrow in &flow.arrows {
        let label = arrow.label.as_ref().map_or_else(String::new, |label| format!("|\"{}\"|", escape(label)));
        line(&mut text, format_args!("  n{} -->{label} n{}", arrow.from, arrow.to));
    }
    for (index, _) in flow.nodes.iter().enumerate().filter(|(_, node)| node.pivot) {
        line(&mut text, format_args!("  style n{index} stroke-width:4px"));
    }
    if let Some(place) = place {
        for (look, style) in STYLES {
            line(&mut text, format_args!("  classDef {} {style}", look.class()));
        }
        for (index, node) in flow.nodes.iter().enumerate() {
            if let Some(mark) = node.step.as_ref().and_then(|step| place.mark(step)) {
                line(&mut text, format_args!("  class n{index} {}", Look::of(mark).class()));
            }
        }
    }
    text
}

fn line(text: &mut String, what: std::fmt::Arguments<'_>) {
    writeln!(text, "{what}").expect("a String takes everything");
}

fn shaped(node: &Node, place: Option<&Place>) -> String {
    let mut lines = vec![format!("<b>{}</b>", escape(&node.title))];
    let kind = node.icon.map(|icon| format!("{} ", icon.word())).unwrap_or_default();
    lines.extend(Some(format!("{kind}{}", escape(&node.label))).filter(|label| !label.is_empty()));
    lines.extend(node.join.iter().map(|join| format!("<i>{}</i>", escape(join))));
    lines.extend(node.notes.iter().map(|note| escape(note)));
    lines.extend(node.undo.iter().map(|undo| format!("↩ {}", escape(undo))));
    lines.extend(node.pivot.then(|| "point of no return".to_owned()));
    let mark = node.step.as_ref().zip(place).and_then(|(step, place)| place.mark(step));
    lines.extend(mark.map(|mark| format!("({})", escape(mark))));
    let label = lines.join("<br/>");
    match node.shape {
        Shape::Pill => format!("([\"{label}\"])"),
        Shape::Box => format!("[\"{label}\"]"),
        Shape::Diamond => format!("{{\"{label}\"}}"),
    }
}

/// Mermaid reads `#name;` as a character; what HTML or Mermaid would take for its own is written so.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' => escaped.push_str("#quot;"),
            '#' => escaped.push_str("#35;"),
            '&' => escaped.push_str("#amp;"),
            '<' => escaped.push_str("#lt;"),
            '>' => escaped.push_str("#gt;"),
            '`' => escaped.push_str("#96;"),
            ';' => escaped.push_str("#59;"),
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}
