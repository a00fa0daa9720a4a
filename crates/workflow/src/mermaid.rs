//! Flowchart of a graph in the language of Mermaid.

use std::fmt::Write as _;

use crate::graph::{Graph, StepKind};

/// Returns the flowchart of a graph.
pub(crate) fn to_mermaid(graph: &Graph) -> String {
    let mut chart = Chart {
        graph,
        text: "flowchart TD\n".to_owned(),
        next: 0,
    };

    let start = chart.node("([", "start", "])");
    let ends = chart.body(0, vec![(start, String::new())]);
    let end = chart.node("([", "end", "])");
    chart.edges(&ends, end);

    chart.text
}

/// Node that an edge leaves, and the label of the edge.
type Exit = (usize, String);

struct Chart<'a> {
    graph: &'a Graph,
    text: String,
    next: usize,
}

impl Chart<'_> {
    /// Draws the steps of a body; returns the nodes after which the flow continues.
    fn body(&mut self, body: usize, mut from: Vec<Exit>) -> Vec<Exit> {
        let graph = self.graph;
        for step in graph.bodies.get(body).iter().flat_map(|body| &body.steps) {
            let (open, close) = shape(&step.kind);
            let text = match &step.kind {
                StepKind::Delay { ms } => format!("{}: {ms} ms", step.name),
                _ => step.name.clone(),
            };

            let node = self.node(open, &text, close);
            self.edges(&from, node);

            let inside = |label: &str| vec![(node, label.to_owned())];
            from = match &step.kind {
                StepKind::Task(_) | StepKind::Delay { .. } | StepKind::Signal { .. } => inside(""),
                StepKind::Fork { branches } => branches
                    .iter()
                    .flat_map(|branch| self.body(*branch, inside(&graph.bodies[*branch].label)))
                    .collect(),
                StepKind::When { then, otherwise } => {
                    let mut ends = self.body(*then, inside("yes"));
                    ends.extend(self.body(*otherwise, inside("no")));
                    ends
                }
                StepKind::Each { body } => self.body(*body, inside("each")),
                StepKind::Child { body, workflow } => self.body(*body, inside(workflow)),
                StepKind::Repeat { body, max_rounds } => {
                    let ends = self.body(*body, inside(&format!("at most {max_rounds} rounds")));
                    // After each round, the flow returns to the condition.
                    self.edges(&ends, node);
                    inside("done")
                }
            };
        }
        from
    }

    fn node(&mut self, open: &str, text: &str, close: &str) -> usize {
        let node = self.next;
        self.next += 1;
        writeln!(
            self.text,
            "  n{node}{open}\"{}\"{close}",
            text.replace('"', "#quot;")
        )
        .expect("writing to a String never fails");
        node
    }

    fn edges(&mut self, from: &[Exit], to: usize) {
        for (node, label) in from {
            let label = if label.is_empty() {
                String::new()
            } else {
                format!("|\"{}\"|", label.replace('"', "#quot;"))
            };
            writeln!(self.text, "  n{node} -->{label} n{to}")
                .expect("writing to a String never fails");
        }
    }
}

fn shape(kind: &StepKind) -> (&'static str, &'static str) {
    match kind {
        StepKind::Task(_) => ("[", "]"),
        StepKind::Delay { .. } | StepKind::Signal { .. } => ("[/", "/]"),
        StepKind::When { .. } | StepKind::Repeat { .. } => ("{", "}"),
        StepKind::Fork { .. } | StepKind::Each { .. } => ("[[", "]]"),
        StepKind::Child { .. } => ("[(", ")]"),
    }
}
