//! Rendering of a definition as SVG.

use std::fmt::Write as _;

use orlog_program::Definition;

use super::flow::{Edge, Graph, Node, Shape};
use super::layout::{Layout, LayoutNode};
use super::{InstanceOverlay, NodeStyle};
use crate::test_file::escape;

/// Outer margin.
const MARGIN: f64 = 20.0;
/// Height of a line of text.
const LINE: f64 = 16.0;
/// Vertical padding in a box.
const PAD: f64 = 10.0;
/// Approximate width of a character; bold characters are wider.
const CHARACTER: f64 = 6.6;
const BOLD: f64 = 7.6;
/// Horizontal distance between the edges of loops.
const LOOP_GAP: f64 = 14.0;
/// Maximum text length; longer texts are cut and complete in the tooltip.
const LONGEST: usize = 40;

/// Colors for a light background, and for a dark one if the user prefers it.
const STYLE: &str = "\
text{font:12px system-ui,sans-serif;fill:#27272a}.t{font-weight:600;font-size:13px}.s{fill:#71717a}\
.u{fill:#b45309}\
.b{fill:#fff;stroke:#a1a1aa;stroke-width:1.5}.a{fill:none;stroke:#71717a;stroke-width:1.4}\
.h{fill:#71717a}\
.i{fill:none;stroke:#52525b;stroke-width:1.3;stroke-linejoin:round;stroke-linecap:round}\
.p{stroke:#7c3aed;stroke-width:4}\
.pt{fill:#7c3aed;font-size:11px}.l{fill:#3f3f46;font-size:11px}.lb{fill:#fafafa}.bg{fill:#fafafa}\
.pending .b{fill:#fff}.running .b{fill:#dbeafe;stroke:#2563eb;stroke-width:2.5}\
.completed .b{fill:#dcfce7;stroke:#16a34a}\
.failed .b{fill:#fee2e2;stroke:#dc2626;stroke-width:2.5}\
.compensated .b{fill:#fef3c7;stroke:#d97706}\
.skipped .b{fill:#f4f4f5;stroke-dasharray:4 3}.skipped text{fill:#a1a1aa}\
.running .m{fill:#1d4ed8}.completed .m{fill:#15803d}.failed .m{fill:#b91c1c}\
.compensated .m{fill:#b45309}.m{font-size:11px;fill:#71717a}\
@media (prefers-color-scheme:dark){text{fill:#e4e4e7}.s,.h{fill:#a1a1aa}.u{fill:#fbbf24}\
.b{fill:#27272a;stroke:#71717a}\
.a{stroke:#a1a1aa}.i{stroke:#d4d4d8}.l{fill:#d4d4d8}.lb,.bg{fill:#18181b}.p{stroke:#a78bfa}\
.pt{fill:#a78bfa}\
.pending .b{fill:#27272a}.running .b{fill:#1e3a8a;stroke:#60a5fa}\
.completed .b{fill:#14532d;stroke:#4ade80}\
.failed .b{fill:#7f1d1d;stroke:#f87171}.compensated .b{fill:#713f12;stroke:#fbbf24}\
.skipped .b{fill:#18181b}\
.skipped text{fill:#71717a}.m{fill:#a1a1aa}.running .m{fill:#93c5fd}.completed .m{fill:#86efac}\
.failed .m{fill:#fca5a5}\
.compensated .m{fill:#fcd34d}}";

/// Returns a complete SVG document.
#[must_use]
pub fn svg(definition: &Definition, current: Option<&InstanceOverlay>) -> String {
    let graph = Graph::of(definition);
    let sizes: Vec<_> = graph.nodes.iter().map(|node| size(node, current)).collect();
    let label_widths: Vec<_> = graph
        .edges
        .iter()
        .map(|edge| edge.label.as_deref().map_or(0.0, label_width))
        .collect();
    let layout = Layout::of(&graph, &sizes, &label_widths);

    // Edges of loops run to the right of all nodes, each with its own column.
    let loops_width = graph
        .back_edges
        .iter()
        .fold(0.0, |width, _| width + LOOP_GAP);
    let width = layout.width + loops_width + 2.0 * MARGIN;
    let height = layout.height + 2.0 * MARGIN + LINE;

    let mut text = String::new();
    let name = escape(&format!(
        "{} version {}",
        definition.saga, definition.version
    ));

    line(
        &mut text,
        format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
            viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\">"
        ),
    );
    line(
        &mut text,
        format_args!("<title>{name}</title><style>{STYLE}</style>"),
    );
    line(
        &mut text,
        format_args!("<rect class=\"bg\" width=\"100%\" height=\"100%\"/>"),
    );

    let phase = current
        .and_then(|current| current.phase.as_ref())
        .map(|phase| format!(": {phase}"));
    let caption = format!("{name}{}", escape(&phase.unwrap_or_default()));
    line(
        &mut text,
        format_args!("<text class=\"s\" x=\"{MARGIN}\" y=\"{MARGIN:.0}\">{caption}</text>"),
    );
    line(
        &mut text,
        format_args!("<g transform=\"translate({MARGIN} {:.0})\">", MARGIN + LINE),
    );

    // Edges are drawn first, so that boxes cover their ends.
    for (edge, elements) in graph.edges.iter().zip(&layout.paths) {
        draw_edge(&mut text, elements, &layout.nodes);
        let layout_nodes: Vec<_> = elements.iter().map(|index| &layout.nodes[*index]).collect();
        draw_label(&mut text, edge, &layout_nodes);
    }

    let mut right = layout.width;
    for edge in &graph.back_edges {
        right += LOOP_GAP;
        draw_back_edge(
            &mut text,
            &layout.nodes[edge.from],
            &layout.nodes[edge.to],
            right,
        );
    }

    for (node, layout_node) in graph.nodes.iter().zip(&layout.nodes) {
        draw_node(&mut text, node, layout_node, current);
    }

    text.push_str("</g>\n</svg>\n");
    text
}

fn line(text: &mut String, args: std::fmt::Arguments<'_>) {
    writeln!(text, "{args}").expect("writing to a String never fails");
}

fn state<'p>(node: &Node, current: Option<&'p InstanceOverlay>) -> Option<&'p str> {
    node.step
        .as_ref()
        .zip(current)
        .and_then(|(step, current)| current.label(step))
}

/// Returns the lines below the title, each with its class.
fn details(node: &Node) -> Vec<(String, &'static str)> {
    let mut lines = Vec::new();
    lines.extend(Some((node.label.clone(), "d")).filter(|(label, _)| !label.is_empty()));
    lines.extend(node.notes.iter().map(|note| (note.clone(), "s")));
    lines.extend(
        node.compensation
            .iter()
            .map(|compensation| (format!("\u{21a9} {compensation}"), "u")),
    );
    lines
}

fn size(node: &Node, current: Option<&InstanceOverlay>) -> (f64, f64) {
    let details = details(node);
    let icon = if node.icon.is_some() { 22.0 } else { 0.0 };
    let state = state(node, current).map_or(0.0, |state| wide(state, CHARACTER) + 14.0);
    let title = wide(&node.title, BOLD) + icon + state;

    let longest = details
        .iter()
        .map(|(text, _)| wide(text, CHARACTER))
        .fold(title, f64::max);
    let lines = details.iter().fold(1.0, |count, _| count + 1.0);
    let pivot = if node.pivot { 16.0 } else { 0.0 };

    match node.shape {
        Shape::Pill => (title + 40.0, 30.0),
        Shape::Box => (
            longest.max(110.0) + 2.0 * PAD,
            lines * LINE + 2.0 * PAD + pivot,
        ),
        Shape::Diamond => (longest + 70.0, lines * LINE + 34.0),
    }
}

fn wide(text: &str, character: f64) -> f64 {
    text.chars()
        .take(LONGEST)
        .fold(0.0, |sum, _| sum + character)
}

fn cut(text: &str) -> String {
    if text.chars().count() <= LONGEST {
        return escape(text);
    }

    let short: String = text.chars().take(LONGEST - 1).collect();
    format!("{}\u{2026}", escape(&short))
}

/// Draws a smooth line through the elements, from the bottom of the first to the top of the last,
/// with an arrowhead.
fn draw_edge(text: &mut String, elements: &[usize], layout_nodes: &[LayoutNode]) {
    let Some((first, rest)) = elements.split_first() else {
        return;
    };

    let mut from = (
        layout_nodes[*first].x,
        layout_nodes[*first].y + layout_nodes[*first].height,
    );
    let mut path = format!("M{:.1} {:.1}", from.0, from.1);

    for (current, index) in rest.iter().enumerate() {
        let layout_node = &layout_nodes[*index];
        let last = current + 1 == rest.len();
        // The arrowhead takes the last part of the way to the box.
        let end = if last {
            layout_node.y - 7.0
        } else {
            layout_node.y
        };

        let half = (end - from.1) / 2.0;
        let curve = format!(
            " C{:.1} {:.1} {:.1} {:.1} {:.1} {end:.1}",
            from.0,
            from.1 + half,
            layout_node.x,
            end - half,
            layout_node.x
        );
        path.push_str(&curve);

        from = (layout_node.x, end);

        // A bend crosses its layer vertically, so that the edge intersects no box.
        if !last {
            from.1 = layout_node.y + layout_node.height;
            path.extend([format!("V{:.1}", from.1)]);
        }
    }

    line(text, format_args!("<path class=\"a\" d=\"{path}\"/>"));
    line(
        text,
        format_args!(
            "<path class=\"h\" d=\"M{:.1} {:.1}h9l-4.500 8z\"/>",
            from.0 - 4.5,
            from.1 - 1.0
        ),
    );
}

/// Draws a line from the end of a loop to its first step, right of all nodes, with an arrowhead.
fn draw_back_edge(text: &mut String, from: &LayoutNode, to: &LayoutNode, right: f64) {
    let side = |node: &LayoutNode| (node.x + node.width / 2.0, node.y + node.height / 2.0);
    let (from_x, from_y) = side(from);
    let (to_x, to_y) = side(to);
    let end = to_x + 7.0;

    line(
        text,
        format_args!(
            "<path class=\"a\" d=\"M{from_x:.1} {from_y:.1}H{right:.1}V{to_y:.1}H{end:.1}\"/>"
        ),
    );
    line(
        text,
        format_args!(
            "<path class=\"h\" d=\"M{end:.1} {:.1}v9l-8 -4.500z\"/>",
            to_y - 4.5
        ),
    );
}

/// Returns the width of an edge label.
fn label_width(label: &str) -> f64 {
    wide(label, 6.4) + 10.0
}

/// Draws the condition of a case, with its own background, above the first element that the edge
/// reaches.
fn draw_label(text: &mut String, edge: &Edge, layout_nodes: &[&LayoutNode]) {
    let (Some(label), [_, to, ..]) = (&edge.label, layout_nodes) else {
        return;
    };

    let x = to.x;
    let y = to.y - 20.0;
    let width = label_width(label);
    line(
        text,
        format_args!(
            "<g><title>{}</title><rect class=\"lb\" x=\"{:.1}\" y=\"{:.1}\" width=\"{width:.1}\" \
            height=\"15\" rx=\"3\"/><text class=\"l\" text-anchor=\"middle\" x=\"{x:.1}\" \
            y=\"{:.1}\">{}</text></g>",
            escape(label),
            x - width / 2.0,
            y - 9.0,
            y + 2.0,
            cut(label),
        ),
    );
}

fn draw_node(
    text: &mut String,
    node: &Node,
    layout_node: &LayoutNode,
    current: Option<&InstanceOverlay>,
) {
    let state = state(node, current);
    let style = node
        .step
        .as_ref()
        .zip(current)
        .and_then(|(step, current)| current.style(step));
    let class = style.map_or("plain", NodeStyle::class);
    let left = layout_node.x - layout_node.width / 2.0;
    let middle = layout_node.y + layout_node.height / 2.0;

    line(
        text,
        format_args!(
            "<g class=\"{class}\"><title>{}</title>",
            tooltip(node, state)
        ),
    );

    match node.shape {
        Shape::Diamond => line(
            text,
            format_args!(
                "<path class=\"b\" d=\"M{left:.1} {middle:.1}L{:.1} {:.1}L{:.1} {middle:.1}L{:.1} \
                {:.1}z\"/>",
                layout_node.x,
                layout_node.y,
                left + layout_node.width,
                layout_node.x,
                layout_node.y + layout_node.height,
            ),
        ),
        Shape::Pill | Shape::Box => {
            let radius = if node.shape == Shape::Pill {
                layout_node.height / 2.0
            } else {
                7.0
            };
            line(
                text,
                format_args!(
                    "<rect class=\"b\" x=\"{left:.1}\" y=\"{:.1}\" width=\"{:.1}\" \
                    height=\"{:.1}\" rx=\"{radius:.1}\"/>",
                    layout_node.y, layout_node.width, layout_node.height,
                ),
            );
        }
    }

    match node.shape {
        Shape::Box => draw_box(text, node, layout_node, state),
        Shape::Pill | Shape::Diamond => {
            let mut y = middle + 4.0 - (LINE * if state.is_some() { 0.5 } else { 0.0 });
            line(
                text,
                format_args!(
                    "<text class=\"t\" text-anchor=\"middle\" x=\"{:.1}\" y=\"{y:.1}\">{}</text>",
                    layout_node.x,
                    cut(&node.title),
                ),
            );
            if let Some(state) = state {
                y += LINE;
                line(
                    text,
                    format_args!(
                        "<text class=\"m\" text-anchor=\"middle\" x=\"{:.1}\" \
                        y=\"{y:.1}\">{}</text>",
                        layout_node.x,
                        escape(state),
                    ),
                );
            }
        }
    }

    if let Some(join) = &node.join {
        line(
            text,
            format_args!(
                "<text class=\"l\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                layout_node.x + 10.0,
                layout_node.y - 5.0,
                escape(join),
            ),
        );
    }

    text.push_str("</g>\n");
}

fn draw_box(text: &mut String, node: &Node, layout_node: &LayoutNode, state: Option<&str>) {
    let left = layout_node.x - layout_node.width / 2.0 + PAD;
    let right = layout_node.x + layout_node.width / 2.0 - PAD;
    let mut y = layout_node.y + PAD + 11.0;
    let mut x = left;

    if let Some(icon) = node.icon {
        line(
            text,
            format_args!(
                "<path class=\"i\" transform=\"translate({x:.1} {:.1})\" d=\"{}\"/>",
                y - 12.0,
                icon.path(),
            ),
        );
        x += 22.0;
    }

    line(
        text,
        format_args!(
            "<text class=\"t\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>",
            cut(&node.title)
        ),
    );

    if let Some(state) = state {
        line(
            text,
            format_args!(
                "<text class=\"m\" text-anchor=\"end\" x=\"{right:.1}\" y=\"{y:.1}\">{}</text>",
                escape(state),
            ),
        );
    }

    for (detail, class) in details(node) {
        y += LINE;
        line(
            text,
            format_args!(
                "<text class=\"{class}\" x=\"{left:.1}\" y=\"{y:.1}\">{}</text>",
                cut(&detail)
            ),
        );
    }

    if node.pivot {
        let bottom = layout_node.y + layout_node.height;
        line(
            text,
            format_args!(
                "<text class=\"pt\" x=\"{left:.1}\" y=\"{:.1}\">pivot</text>",
                bottom - 9.0
            ),
        );
        line(
            text,
            format_args!(
                "<path class=\"p\" d=\"M{:.1} {bottom:.1}H{:.1}\"/>",
                left - PAD,
                right + PAD
            ),
        );
    }
}

fn tooltip(node: &Node, state: Option<&str>) -> String {
    let kind = node
        .icon
        .map(|icon| format!("{} ", icon.alt_text()))
        .unwrap_or_default();

    let mut lines = vec![format!("{kind}{}", node.title)];
    lines.extend(details(node).into_iter().map(|(text, _)| text));
    lines.extend(state.map(ToOwned::to_owned));
    escape(&lines.join("\n"))
}
