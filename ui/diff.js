// Difference of two texts, line by line.

/** Maximum number of compared pairs of lines; larger differences are displayed as removed and added lines. */
const MAX_PAIRS = 4_000_000;
/** Number of unchanged lines around a change. */
const CONTEXT = 3;

/** Returns the changed lines with their context: `{ kind, number, text }`; kind is ` `, `-`, `+`, or `…` for omitted lines. */
export function diff(before, after) {
  const [old, next] = [lines(before), lines(after)];
  let start = 0;
  while (start < old.length && start < next.length && old[start] === next[start]) start += 1;
  let end = 0;
  while (end < old.length - start && end < next.length - start && old.at(-1 - end) === next.at(-1 - end)) end += 1;
  const same = (from, to) => next.slice(from, to).map((text, index) => ({ kind: ' ', number: from + index + 1, text }));
  const changed = compare(old.slice(start, old.length - end), next.slice(start, next.length - end), start);
  return omitUnchanged([...same(0, start), ...changed, ...same(next.length - end, next.length)]);
}

const lines = (text) => text.replace(/\n$/, '').split('\n');

/** Returns all lines of two texts after `offset` lines. Longest common subsequence, from the end. */
function compare(old, next, offset) {
  const removed = (index) => ({ kind: '-', number: offset + index + 1, text: old[index] });
  const added = (index) => ({ kind: '+', number: offset + index + 1, text: next[index] });
  if (old.length * next.length > MAX_PAIRS) return [...old.keys()].map(removed).concat([...next.keys()].map(added));
  const width = next.length + 1;
  const lengths = new Uint32Array((old.length + 1) * width);
  for (let i = old.length - 1; i >= 0; i -= 1) {
    for (let j = next.length - 1; j >= 0; j -= 1) {
      lengths[i * width + j] = old[i] === next[j] ? lengths[(i + 1) * width + j + 1] + 1 : Math.max(lengths[(i + 1) * width + j], lengths[i * width + j + 1]);
    }
  }
  const result = [];
  let [i, j] = [0, 0];
  while (i < old.length || j < next.length) {
    if (i < old.length && j < next.length && old[i] === next[j]) {
      result.push({ ...added(j), kind: ' ' });
      i += 1;
      j += 1;
    } else if (i < old.length && (j === next.length || lengths[(i + 1) * width + j] >= lengths[i * width + j + 1])) {
      result.push(removed(i));
      i += 1;
    } else {
      result.push(added(j));
      j += 1;
    }
  }
  return result;
}

/** Replaces unchanged lines that are far from a change. */
function omitUnchanged(all) {
  const isNear = (index) => all.slice(Math.max(0, index - CONTEXT), index + CONTEXT + 1).some((line) => line.kind !== ' ');
  const result = [];
  all.forEach((line, index) => {
    if (isNear(index)) result.push(line);
    else if (result.at(-1)?.kind !== '…') result.push({ kind: '…', number: null, text: '' });
  });
  return result;
}
