//! Where everything stands: layers from top to bottom, few crossings, arrows around boxes.
//!
//! The way of Sugiyama: each node one layer below the last thing it waits for; long arrows get a bend in every layer they
//! pass; the order within layers follows the neighbours' middle, up and down a few times; then places, as near to the
//! neighbours as there is room. Plain loops over vectors: the same definition gives the same picture.

use super::flow::Flow;

/// Room between things side by side.
const GAP_X: f64 = 28.0;
/// Room between layers.
const GAP_Y: f64 = 46.0;
/// How often the order and the places are improved.
const ROUNDS: usize = 8;

/// Something with a place: a node, or the bend of an arrow.
#[derive(Clone, Debug)]
pub(super) struct Spot {
    /// Its middle.
    pub(super) x: f64,
    /// Its top.
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
    /// What it needs from side to side: also for the words on the arrow that leads to it.
    room: f64,
    layer: usize,
    before: Vec<usize>,
    after: Vec<usize>,
}

/// Everything with its place. The first spots are the nodes, in their order.
pub(super) struct Layout {
    pub(super) spots: Vec<Spot>,
    /// For each arrow the spots it goes through, both ends included.
    pub(super) ways: Vec<Vec<usize>>,
    pub(super) width: f64,
    pub(super) height: f64,
}

impl Layout {
    /// Places nodes of these sizes.
    ///
    /// `words` are the widths of what stands on the arrows, above where they first arrive.
    pub(super) fn of(flow: &Flow, sizes: &[(f64, f64)], words: &[f64]) -> Self {
        let layers = layers(flow);
        let mut spots: Vec<_> =
            sizes.iter().zip(&layers).map(|((width, height), layer)| spot(*width, *height, *layer)).collect();
        let ways: Vec<_> = flow.arrows.iter().map(|arrow| way(&mut spots, arrow.from, arrow.to)).collect();
        for (way, words) in ways.iter().zip(words) {
            spots[way[1]].room = spots[way[1]].room.max(*words);
        }
        let mut rows = rows(&spots);
        order(&mut rows, &spots);
        place(&rows, &mut spots);
        let (width, height) = shift(&rows, &mut spots);
        Self { spots, ways, width, height }
    }
}

fn spot(width: f64, height: f64, layer: usize) -> Spot {
    Spot { x: 0.0, y: 0.0, width, height, room: width, layer, before: Vec::new(), after: Vec::new() }
}

/// The longest way from the start. Arrows form no circle: a definition that compiled has none; for one that did not, the
/// rounds are bounded.
fn layers(flow: &Flow) -> Vec<usize> {
    let mut layers = vec![0_usize; flow.nodes.len()];
    for _ in 0..flow.nodes.len() {
        let mut changed = false;
        for arrow in &flow.arrows {
            let least = layers[arrow.from] + 1;
            if layers[arrow.to] < least && least <= flow.nodes.len() {
                layers[arrow.to] = least;
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    layers
}

/// The spots of an arrow; bends are made on the way.
fn way(spots: &mut Vec<Spot>, from: usize, to: usize) -> Vec<usize> {
    let mut way = vec![from];
    for layer in spots[from].layer + 1..spots[to].layer {
        spots.push(spot(2.0, 0.0, layer));
        way.push(spots.len() - 1);
    }
    way.push(to);
    for pair in way.windows(2) {
        spots[pair[0]].after.push(pair[1]);
        spots[pair[1]].before.push(pair[0]);
    }
    way
}

fn rows(spots: &[Spot]) -> Vec<Vec<usize>> {
    let count = spots.iter().map(|spot| spot.layer + 1).max().unwrap_or(0);
    let mut rows = vec![Vec::new(); count];
    for (index, spot) in spots.iter().enumerate() {
        rows[spot.layer].push(index);
    }
    rows
}

/// Sorts each row by the middle of its neighbours' positions, down and up in turn, and keeps the order with the fewest
/// crossings.
fn order(rows: &mut Vec<Vec<usize>>, spots: &[Spot]) {
    let mut best = rows.clone();
    let mut fewest = crossings(rows, spots);
    for round in 0..ROUNDS {
        let down = round % 2 == 0;
        let count = rows.len();
        for step in 1..count {
            let (row, other) = if down { (step, step - 1) } else { (count - 1 - step, count - step) };
            let position: Vec<_> = positions(&rows[other], spots.len());
            let middle = |index: usize| {
                let spot = &spots[index];
                let neighbours = if down { &spot.before } else { &spot.after };
                let places: Vec<f64> = neighbours.iter().filter_map(|n| position[*n]).collect();
                if places.is_empty() { None } else { Some(mean(&places)) }
            };
            let own = positions(&rows[row], spots.len());
            rows[row].sort_by(|a, b| {
                let key = |index: usize| middle(index).or(own[index]).unwrap_or_default();
                key(*a).total_cmp(&key(*b))
            });
        }
        let found = crossings(rows, spots);
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

fn crossings(rows: &[Vec<usize>], spots: &[Spot]) -> usize {
    let mut count = 0;
    for pair in rows.windows(2) {
        let position = positions(&pair[1], spots.len());
        let ends: Vec<Vec<f64>> = pair[0]
            .iter()
            .map(|index| spots[*index].after.iter().filter_map(|next| position[*next]).collect())
            .collect();
        for (index, left) in ends.iter().enumerate() {
            for right in &ends[index + 1..] {
                count += left.iter().map(|l| right.iter().filter(|r| *r < l).count()).sum::<usize>();
            }
        }
    }
    count
}

/// Packs each row, then moves everything towards the middle of its neighbours as far as there is room.
fn place(rows: &[Vec<usize>], spots: &mut [Spot]) {
    for row in rows {
        let wanted: Vec<f64> = vec![0.0; row.len()];
        settle(row, &wanted, spots);
    }
    for round in 0..ROUNDS * 2 {
        let down = round % 2 == 0;
        for step in 0..rows.len() {
            let row = &rows[if down { step } else { rows.len() - 1 - step }];
            let wanted: Vec<f64> = row
                .iter()
                .map(|index| {
                    let spot = &spots[*index];
                    let near = if down { &spot.before } else { &spot.after };
                    let places: Vec<f64> = near.iter().map(|other| spots[*other].x).collect();
                    if places.is_empty() { spot.x } else { mean(&places) }
                })
                .collect();
            settle(row, &wanted, spots);
        }
    }
}

/// Puts a row as near to the wanted places as its order and its gaps allow: neighbours that would overlap form a block, which
/// stands around the mean of what its members want.
fn settle(row: &[usize], wanted: &[f64], spots: &mut [Spot]) {
    // A block: its members' offsets from its own place, that place, and its weight.
    type Block = (Vec<(usize, f64)>, f64, f64);
    let mut blocks: Vec<Block> = Vec::new();
    for (index, want) in row.iter().zip(wanted) {
        let mut block = (vec![(*index, 0.0)], *want, 1.0);
        while let Some(last) = blocks.last() {
            let (left, left_offset) = *last.0.last().expect("a block has members");
            let (right, right_offset) = block.0[0];
            let needed = f64::midpoint(spots[left].room, spots[right].room) + GAP_X;
            if (block.1 + right_offset) - (last.1 + left_offset) >= needed {
                break;
            }
            let (mut members, at, weight) = blocks.pop().expect("it was just seen");
            let shift = left_offset + needed - right_offset;
            let together = weight + block.2;
            let place = (at * weight + (block.1 - shift) * block.2) / together;
            members.extend(block.0.iter().map(|(member, offset)| (*member, offset + shift)));
            block = (members, place, together);
        }
        blocks.push(block);
    }
    for (members, at, _) in blocks {
        for (member, offset) in members {
            spots[member].x = at + offset;
        }
    }
}

/// Moves everything into the positive and gives each layer its height. The size of the whole.
fn shift(rows: &[Vec<usize>], spots: &mut [Spot]) -> (f64, f64) {
    let left = spots.iter().map(|spot| spot.x - spot.room / 2.0).fold(f64::MAX, f64::min);
    let mut top = 0.0;
    for row in rows {
        let height = row.iter().map(|index| spots[*index].height).fold(0.0, f64::max);
        for index in row {
            let spot = &mut spots[*index];
            spot.x -= left;
            // An arrow passes a layer straight down, so that it meets no box.
            spot.height = if spot.height > 0.0 { spot.height } else { height };
            spot.y = top + (height - spot.height) / 2.0;
        }
        top += height + GAP_Y;
    }
    let right = spots.iter().map(|spot| spot.x + spot.room / 2.0).fold(0.0, f64::max);
    (right, top - GAP_Y)
}
