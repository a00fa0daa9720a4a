//! Rendering of a definition as a Mermaid flowchart.

use std::fmt::Write as _;

use orlog_program::Definition;

use super::flow::{Graph, Node, Shape};
use super::{InstanceOverlay, NodeStyle};

/// Styles in colors that are readable on light and dark backgrounds.
const STYLES: [(NodeStyle, &str); 6] = [
    (
        NodeStyle::Pending,
        "fill:#f4f4f5,stroke:#71717a,color:#18181b",
    ),
    (
        NodeStyle::Running,
        "fill:#dbeafe,stroke:#2563eb,color:#172554,stroke-width:3px",
    ),
    (
        NodeStyle::Completed,
        "fill:#dcfce7,stroke:#16a34a,color:#052e16",
    ),
    (
        NodeStyle::Failed,
        "fill:#fee2e2,stroke:#dc2626,color:#450a0a",
    ),
    (
        NodeStyle::Compensated,
        "fill:#fef3c7,stroke:#d97706,color:#451a03",
    ),
    (
        NodeStyle::Skipped,
        "fill:#f4f4f5,stroke:#a1a1aa,color:#71717a,stroke-dasharray:4 3",
    ),
];

/// Returns the text of a flowchart.
#[must_use]
pub fn mermaid(definition: &Definition, overlay: Option<&InstanceOverlay>) -> String {
    let graph = Graph::of(definition);
    let mut text = String::from("flowchart TD\n");
    for (index, node) in graph.nodes.iter().enumerate() {
        line(
            &mut text,
            format_args!("  n{index}{}", shaped(node, overlay)),
        );
    }

    for edge in &graph.edges {
        let label = edge
            .label
            .as_ref()
            .map_or_else(String::new, |label| format!("|\"{}\"|", escape(label)));
        line(
            &mut text,
            format_args!("  n{} -->{label} n{}", edge.from, edge.to),
        );
    }

    for edge in &graph.back_edges {
        let label = edge
            .label
            .as_ref()
            .map_or_else(String::new, |label| format!("|\"{}\"|", escape(label)));
        line(
            &mut text,
            format_args!("  n{} -.->{label} n{}", edge.from, edge.to),
        );
    }

    // A style of its own, because the class of a node shows the state of its step.
    for (index, _) in graph
        .nodes
        .iter()
        .enumerate()
        .filter(|(_, node)| node.pivot)
    {
        line(&mut text, format_args!("  style n{index} stroke-width:4px"));
    }

    if let Some(overlay) = overlay {
        for (node_style, style) in STYLES {
            line(
                &mut text,
                format_args!("  classDef {} {style}", node_style.class()),
            );
        }
        for (index, node) in graph.nodes.iter().enumerate() {
            if let Some(style) = node.step.as_ref().and_then(|step| overlay.style(step)) {
                line(
                    &mut text,
                    format_args!("  class n{index} {}", style.class()),
                );
            }
        }
    }
    text
}

fn line(text: &mut String, args: std::fmt::Arguments<'_>) {
    writeln!(text, "{args}").expect("writing to a String never fails");
}

fn shaped(node: &Node, overlay: Option<&InstanceOverlay>) -> String {
    let mut lines = vec![format!("<b>{}</b>", escape(&node.title))];
    let kind = node
        .icon
        .map(|icon| format!("{} ", icon.alt_text()))
        .unwrap_or_default();

    lines.extend(Some(format!("{kind}{}", escape(&node.label))).filter(|label| !label.is_empty()));
    lines.extend(
        node.join
            .iter()
            .map(|join| format!("<i>{}</i>", escape(join))),
    );
    lines.extend(node.notes.iter().map(|note| escape(note)));
    lines.extend(
        node.compensation
            .iter()
            .map(|compensation| format!("↩ {}", escape(compensation))),
    );
    lines.extend(node.pivot.then(|| "pivot".to_owned()));

    let state = node
        .step
        .as_ref()
        .zip(overlay)
        .and_then(|(step, overlay)| overlay.label(step));
    lines.extend(state.map(|state| format!("({})", escape(state))));

    let label = lines.join("<br/>");

    match node.shape {
        Shape::Pill => format!("([\"{label}\"])"),
        Shape::Box => format!("[\"{label}\"]"),
        Shape::Diamond => format!("{{\"{label}\"}}"),
    }
}

/// Escapes a text: Mermaid reads `#name;` as a character. Replaces characters with a meaning in
/// HTML or Mermaid.
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
