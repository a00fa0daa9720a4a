// What views are built from: headings, tables, badges, figures, lists of facts.

import { h } from './dom.js';
import * as format from './format.js';

/** Drawings on a ground of sixteen units; what they mean stands beside them as text. */
const ICONS = {
  running: 'M5 3.500v9l7-4.500z',
  compensating: 'M6 4L2.500 7.500 6 11M3 7.500h6.500a3 3 0 0 1 0 6H7',
  completed: 'M3 8.500l3.500 3.500L13 4.500',
  failed: 'M4 4l8 8M12 4l-8 8',
  cancelled: 'M3.500 8h9',
  stuck: 'M8 2.500v7M8 12.500v.5',
  paused: 'M5.500 3.500v9M10.500 3.500v9',
  open: 'M8 3a5 5 0 1 0 .01 0',
  sun: 'M8 5a3 3 0 1 0 .01 0M8 1v1.500M8 13.500V15M1 8h1.500M13.500 8H15M3 3l1 1M12 12l1 1M13 3l-1 1M4 12l-1 1',
  moon: 'M13 9.500A5.500 5.500 0 0 1 6.500 3 5.500 5.500 0 1 0 13 9.500z',
  auto: 'M8 2.500a5.500 5.500 0 1 0 .01 0M8 2.500v11',
  search: 'M7 2.500a4.500 4.500 0 1 0 .01 0M10.500 10.500L14 14',
  person: 'M8 2.500a2.800 2.800 0 1 0 .01 0M2.500 14c0-3.500 2.500-5 5.500-5s5.500 1.500 5.500 5',
};

export function icon(name) {
  const path = h('svg:path', { d: ICONS[name] ?? ICONS.open });
  return h('svg:svg', { viewBox: '0 0 16 16', class: 'icon', 'aria-hidden': 'true' }, path);
}

/** Where an instance or a task stands: colour, drawing and word. */
export function badge(status, paused) {
  const word = h('span', { class: `badge ${status}` }, icon(status), format.words(status));
  return paused ? [word, ' ', h('span', { class: 'badge paused' }, icon('paused'), 'paused')] : word;
}

/** A plain mark: `mark('open', 'bad')`. */
export const mark = (text, look) => h('span', { class: `badge ${look}` }, format.words(text));

/** A time, seen from now; the whole of it in the tooltip. */
export function time(iso, look = 'ago') {
  if (!iso) return h('span', { class: 'faint' }, '–');
  const text = look === 'at' ? format.at(iso) : format.ago(iso);
  return h('time', { datetime: iso, title: format.whenFull(iso) }, text);
}

/** Columns are `{ title, show, number, class }`; rows are keyed, so that what is focused stays. */
export function table({ caption, columns, rows, key, empty }) {
  if (!rows.length) return h('p', { class: 'empty' }, empty ?? 'Nothing.');
  const head = columns.map((column) => h('th', { role: 'columnheader', scope: 'col', class: column.number ? 'number' : null }, column.title));
  const cell = (column, row) => {
    const kind = [column.number ? 'number' : '', column.class ?? ''].join(' ').trim();
    const name = column.head ? 'th' : 'td';
    // On narrow pages rows are drawn as blocks; the roles keep them a table for those who do not see.
    const role = column.head ? 'rowheader' : 'cell';
    return h(name, { role, class: kind || null, scope: column.head ? 'row' : null, 'data-title': column.title }, column.show(row));
  };
  const body = rows.map((row) => h('tr', { role: 'row', 'data-key': key?.(row) }, columns.map((column) => cell(column, row))));
  return h(
    'div',
    { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': caption },
    h('table', { role: 'table' },
      h('caption', { class: 'unseen' }, caption),
      h('thead', { role: 'rowgroup' }, h('tr', { role: 'row' }, head)),
      h('tbody', { role: 'rowgroup' }, body)),
  );
}

/** A part of a page with a heading. */
export function section(title, attributes, ...children) {
  const { aside, id, ...rest } = attributes ?? {};
  const name = id ?? title.toLowerCase().replaceAll(/[^a-z]+/g, '-');
  const head = h('div', { class: 'section-head' }, h('h2', { id: `h-${name}` }, title), aside ? h('div', { class: 'aside' }, aside) : null);
  return h('section', { 'aria-labelledby': `h-${name}`, 'data-key': `section-${name}`, ...rest }, head, ...children);
}

/** Names with values. */
export function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== undefined && value !== null && value !== '');
  return h('dl', { class: 'facts' }, shown.map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value))));
}

/** A figure with what it is; `points` draw how it went. */
export function figure(label, value, { hint, points, look, href } = {}) {
  const name = href ? h('a', { href }, label) : label;
  return h(
    'div',
    { class: `figure ${look ?? ''}`.trim(), 'data-key': `figure-${label}` },
    h('div', { class: 'label' }, name),
    h('div', { class: 'value' }, value),
    hint ? h('div', { class: 'hint' }, hint) : null,
    points ? line(points) : null,
  );
}

/** A line through points, the last at the right; a picture of what the number beside it tells. */
function line(points) {
  const [width, height] = [120, 28];
  const top = Math.max(...points, 1e-9);
  const step = width / Math.max(points.length - 1, 1);
  const places = points.map((point, at) => `${(at * step).toFixed(1)},${(height - 2 - (point / top) * (height - 4)).toFixed(1)}`);
  const path = places.length > 1 ? `M${places.join('L')}` : '';
  return h(
    'svg:svg',
    { viewBox: `0 0 ${width} ${height}`, class: 'line', preserveAspectRatio: 'none', 'aria-hidden': 'true' },
    h('svg:path', { d: path ? `${path}L${width},${height}L0,${height}z` : '', class: 'ground' }),
    h('svg:path', { d: path }),
  );
}

/** JSON, to read. */
export function json(value, label) {
  return h('pre', { class: 'json', tabindex: '0', role: 'region', 'aria-label': label }, JSON.stringify(value, null, 2));
}

/** Something that opens. */
export function more(title, ...children) {
  return h('details', {}, h('summary', {}, title), ...children);
}

export function button(text, click, { look, disabled, label } = {}) {
  return h('button', { type: 'button', class: look ?? null, disabled, 'aria-label': label, on: { click } }, text);
}

/** A labelled field; the hint is read after the name, not as a part of it. */
export function field(label, control, hint) {
  const id = `hint-${label.toLowerCase().replaceAll(/[^a-z]+/g, '-')}`;
  if (hint) control.setAttribute('aria-describedby', id);
  return h('div', { class: 'field' }, h('label', {}, h('span', {}, label), control), hint ? h('small', { id }, hint) : null);
}

/** To the page before and the one behind; cursors lead there. */
export function pager({ cursors, next }, step) {
  return h('nav', { class: 'pager', 'aria-label': 'Pages', 'data-key': 'pager' },
    button('Previous page', () => step(false), { disabled: cursors.length < 2 }),
    h('span', {}, `Page ${format.number(cursors.length)}`),
    button('Next page', () => step(true), { disabled: !next }));
}

/** Turns a page: the reader begins at its heading. */
export function turn(state, forward) {
  if (forward) state.cursors.push(state.next);
  else state.cursors.pop();
  document.querySelector('h1')?.focus();
  window.scrollTo(0, 0);
}

/** "at least 20,000" where a count was cut off. */
export const atLeast = (count, complete) => (complete ? format.number(count) : `at least ${format.number(count)}`);

/** What an instance waits for, in one line for all that ends at the same time: `A or B`. */
export function waiting(waits) {
  const groups = new Map();
  for (const wait of waits) {
    const key = `${wait.kind} ${wait.until}`;
    groups.set(key, { ...wait, names: [...(groups.get(key)?.names ?? []), wait.name] });
  }
  return [...groups.values()].map(({ kind, until, names }) => ({ kind, until, names: names.join(' or ') }));
}

let forget;

/** Says what came of something, for eyes and for ears. */
export function say(text, look = 'good') {
  const place = document.getElementById('said');
  place.replaceChildren(h('p', { class: look }, text));
  clearTimeout(forget);
  forget = setTimeout(() => place.replaceChildren(), 10_000);
}
