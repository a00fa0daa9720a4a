//! Layered layout from top to bottom with few crossings and edges around boxes.
//!
//! The algorithm is that of Sugiyama. Each node is one layer below its lowest predecessor. A long
//! edge gets a bend in every layer that it crosses. The order in a layer follows the median of the
//! neighbors, in several passes down and up. Then each node moves as close to its neighbors as
//! space permits. The code uses plain loops over vectors: the same definition produces the same
//! graph.

use super::flow::Graph;

/// Horizontal gap between nodes.
const GAP_X: f64 = 28.0;
/// Vertical gap between layers.
const GAP_Y: f64 = 46.0;
/// Number of passes that improve the order and the positions.
const ROUNDS: usize = 8;

/// Element with a position: a node, or a bend of an edge.
#[derive(Clone, Debug)]
pub(super) struct LayoutNode {
    /// Horizontal center.
    pub(super) x: f64,
    /// Top.
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
    /// Required width, including the label of the incoming edge.
    required_width: f64,
    layer: usize,
    before: Vec<usize>,
    after: Vec<usize>,
}

/// Elements with their positions. The nodes come first, in their order.
pub(super) struct Layout {
    pub(super) nodes: Vec<LayoutNode>,
    /// Elements on each edge, including both ends.
    pub(super) paths: Vec<Vec<usize>>,
    pub(super) width: f64,
    pub(super) height: f64,
}

impl Layout {
    /// Computes the layout of nodes with these sizes.
    ///
    /// `label_widths` are the widths of the edge labels, above the first element that an edge
    /// reaches.
    pub(super) fn of(graph: &Graph, sizes: &[(f64, f64)], label_widths: &[f64]) -> Self {
        let layers = layers(graph);
        let mut nodes: Vec<_> = sizes
            .iter()
            .zip(&layers)
            .map(|((width, height), layer)| node(*width, *height, *layer))
            .collect();
        let paths: Vec<_> = graph
            .edges
            .iter()
            .map(|edge| path(&mut nodes, edge.from, edge.to))
            .collect();

        // A label is beside its edge, above the first element that the edge reaches. That element
        // keeps the space free.
        for (path, label_widths) in paths.iter().zip(label_widths) {
            nodes[path[1]].required_width = nodes[path[1]].required_width.max(*label_widths);
        }

        let mut rows = rows(&nodes);
        order(&mut rows, &nodes);
        place(&rows, &mut nodes);
        let (width, height) = shift(&rows, &mut nodes);

        Self {
            nodes,
            paths,
            width,
            height,
        }
    }
}

fn node(width: f64, height: f64, layer: usize) -> LayoutNode {
    LayoutNode {
        x: 0.0,
        y: 0.0,
        width,
        height,
        required_width: width,
        layer,
        before: Vec::new(),
        after: Vec::new(),
    }
}

/// Returns the layer of each node: the longest path from the start. Edges form no cycle in a
/// compiled definition; the number of rounds is bounded for others.
fn layers(graph: &Graph) -> Vec<usize> {
    let mut layers = vec![0_usize; graph.nodes.len()];
    for _ in 0..graph.nodes.len() {
        let mut changed = false;
        for edge in &graph.edges {
            let least = layers[edge.from] + 1;
            if layers[edge.to] < least && least <= graph.nodes.len() {
                layers[edge.to] = least;
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    layers
}

/// Returns the elements of an edge and creates its bends.
fn path(nodes: &mut Vec<LayoutNode>, from: usize, to: usize) -> Vec<usize> {
    let mut path = vec![from];
    for layer in nodes[from].layer + 1..nodes[to].layer {
        nodes.push(node(2.0, 0.0, layer));
        path.push(nodes.len() - 1);
    }
    path.push(to);
    for pair in path.windows(2) {
        nodes[pair[0]].after.push(pair[1]);
        nodes[pair[1]].before.push(pair[0]);
    }
    path
}

fn rows(nodes: &[LayoutNode]) -> Vec<Vec<usize>> {
    let count = nodes.iter().map(|node| node.layer + 1).max().unwrap_or(0);
    let mut rows = vec![Vec::new(); count];
    for (index, node) in nodes.iter().enumerate() {
        rows[node.layer].push(index);
    }
    rows
}

/// Sorts each row by the median position of its neighbors, alternating down and up, and keeps the
/// order with the fewest crossings.
fn order(rows: &mut Vec<Vec<usize>>, nodes: &[LayoutNode]) {
    // The order of the text counts as well: it is kept if no pass has fewer crossings.
    let mut best = rows.clone();
    let mut fewest = crossings(rows, nodes);

    for round in 0..ROUNDS {
        let down = round % 2 == 0;
        let count = rows.len();
        for step in 1..count {
            let (row, other) = if down {
                (step, step - 1)
            } else {
                (count - 1 - step, count - step)
            };
            let position: Vec<_> = positions(&rows[other], nodes.len());
            let middle = |index: usize| {
                let node = &nodes[index];
                let neighbors = if down { &node.before } else { &node.after };
                let neighbor_positions: Vec<f64> =
                    neighbors.iter().filter_map(|n| position[*n]).collect();
                if neighbor_positions.is_empty() {
                    None
                } else {
                    Some(mean(&neighbor_positions))
                }
            };

            // An element without neighbors keeps its place in the row.
            let own = positions(&rows[row], nodes.len());
            rows[row].sort_by(|a, b| {
                let key = |index: usize| middle(index).or(own[index]).unwrap_or_default();
                key(*a).total_cmp(&key(*b))
            });
        }

        // The medians can also make an order worse, so the best one of all passes is kept.
        let found = crossings(rows, nodes);
        if found < fewest {
            fewest = found;
            best.clone_from(rows);
        }
    }

    *rows = best;
}

fn positions(row: &[usize], count: usize) -> Vec<Option<f64>> {
    let mut found = vec![None; count];
    let mut place = 0.0;
    for index in row {
        found[*index] = Some(place);
        place += 1.0;
    }
    found
}

fn mean(values: &[f64]) -> f64 {
    let count = values.iter().fold(0.0, |count, _| count + 1.0);
    values.iter().sum::<f64>() / count
}

fn crossings(rows: &[Vec<usize>], nodes: &[LayoutNode]) -> usize {
    let mut count = 0;
    for pair in rows.windows(2) {
        let position = positions(&pair[1], nodes.len());
        let end_positions: Vec<Vec<f64>> = pair[0]
            .iter()
            .map(|index| {
                nodes[*index]
                    .after
                    .iter()
                    .filter_map(|next| position[*next])
                    .collect()
            })
            .collect();
        // Two edges cross if their starts and their ends have opposite orders.
        for (index, left) in end_positions.iter().enumerate() {
            for right in &end_positions[index + 1..] {
                count += left
                    .iter()
                    .map(|l| right.iter().filter(|r| *r < l).count())
                    .sum::<usize>();
            }
        }
    }
    count
}

/// Packs each row, then moves each element towards the center of its neighbors as far as space
/// permits.
fn place(rows: &[Vec<usize>], nodes: &mut [LayoutNode]) {
    for row in rows {
        let targets: Vec<f64> = vec![0.0; row.len()];
        arrange(row, &targets, nodes);
    }

    for round in 0..ROUNDS * 2 {
        let down = round % 2 == 0;
        // A row is arranged after its neighbor in the direction of the pass, whose positions are
        // final then.
        for step in 0..rows.len() {
            let row = &rows[if down { step } else { rows.len() - 1 - step }];
            let targets: Vec<f64> = row
                .iter()
                .map(|index| {
                    let node = &nodes[*index];
                    let near = if down { &node.before } else { &node.after };
                    let neighbor_positions: Vec<f64> =
                        near.iter().map(|other| nodes[*other].x).collect();
                    if neighbor_positions.is_empty() {
                        node.x
                    } else {
                        mean(&neighbor_positions)
                    }
                })
                .collect();
            arrange(row, &targets, nodes);
        }
    }
}

/// Moves a row as close to the target positions as its order and gaps permit. Neighbors that would
/// overlap form a block, which is centered on the mean of the target positions.
fn arrange(row: &[usize], targets: &[f64], nodes: &mut [LayoutNode]) {
    // A block: offsets of its members from its position, the position, and its weight.
    type Block = (Vec<(usize, f64)>, f64, f64);
    let mut blocks: Vec<Block> = Vec::new();
    for (index, target) in row.iter().zip(targets) {
        let mut block = (vec![(*index, 0.0)], *target, 1.0);
        while let Some(last) = blocks.last() {
            let (left, left_offset) = *last.0.last().expect("a block has members");
            let (right, right_offset) = block.0[0];
            // The labels of incoming edges are beside them, so they need space in the row as well.
            let needed =
                f64::midpoint(nodes[left].required_width, nodes[right].required_width) + GAP_X;

            // The blocks do not overlap.
            if (block.1 + right_offset) - (last.1 + left_offset) >= needed {
                break;
            }

            let (mut members, at, weight) = blocks.pop().expect("the last block exists");
            // The merged block is centered on the weighted mean, so that no member is preferred.
            let shift = left_offset + needed - right_offset;
            let together = weight + block.2;
            let place = (at * weight + (block.1 - shift) * block.2) / together;

            members.extend(
                block
                    .0
                    .iter()
                    .map(|(member, offset)| (*member, offset + shift)),
            );

            block = (members, place, together);
        }
        blocks.push(block);
    }

    for (members, at, _) in blocks {
        for (member, offset) in members {
            nodes[member].x = at + offset;
        }
    }
}

/// Moves all elements to positive coordinates and sets the height of each layer. Returns the total
/// size.
fn shift(rows: &[Vec<usize>], nodes: &mut [LayoutNode]) -> (f64, f64) {
    let left = nodes
        .iter()
        .map(|node| node.x - node.required_width / 2.0)
        .fold(f64::MAX, f64::min);

    let mut top = 0.0;
    for row in rows {
        let height = row
            .iter()
            .map(|index| nodes[*index].height)
            .fold(0.0, f64::max);
        for index in row {
            let node = &mut nodes[*index];
            node.x -= left;
            // An edge crosses a layer vertically, so that it intersects no box.
            node.height = if node.height > 0.0 {
                node.height
            } else {
                height
            };
            node.y = top + (height - node.height) / 2.0;
        }
        top += height + GAP_Y;
    }

    let right = nodes
        .iter()
        .map(|node| node.x + node.required_width / 2.0)
        .fold(0.0, f64::max);
    (right, top - GAP_Y)
}
