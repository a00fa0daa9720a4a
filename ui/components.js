// Components of the views: badges, tables, sections, statistics, definition lists, fields.

import { h } from './dom.js';
import * as format from './format.js';

/** SVG paths of the icons on a grid of 16 units. A text next to each icon states its meaning. */
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
  user: 'M8 2.500a2.800 2.800 0 1 0 .01 0M2.500 14c0-3.500 2.500-5 5.500-5s5.500 1.500 5.500 5',
};

export function icon(name) {
  const path = h('svg:path', { d: ICONS[name] ?? ICONS.open });
  return h('svg:svg', { viewBox: '0 0 16 16', class: 'icon', 'aria-hidden': 'true' }, path);
}

/** Status badge of an instance: color, icon and text. */
export function badge(status, paused) {
  const label = h('span', { class: `badge ${status}` }, icon(status), format.words(status));
  return paused ? [label, ' ', h('span', { class: 'badge paused' }, icon('paused'), 'paused')] : label;
}

/** Badge without an icon: `statusMark('open', 'stuck')`. */
export const statusMark = (text, variant) => h('span', { class: `badge ${variant}` }, format.words(text));

/** Status cell of an entry: its badge, and the reason of a failed or unreadable one. */
export const statusWithError = (mark, { error }) => (error ? [mark, h('div', { class: 'error-text' }, error)] : mark);

/** Cell of an entry whose state the node could read; a dash for an unreadable one, whose fields are placeholders. */
export const ifReadable = (render) => (entry) => (entry.status === 'unreadable' ? h('span', { class: 'muted' }, '–') : render(entry));

/** Time relative to now, or absolute. The tooltip contains the full time. */
export function time(iso, style = 'relative') {
  if (!iso) return h('span', { class: 'muted' }, '–');
  const text = style === 'absolute' ? format.absolute(iso) : format.relative(iso);
  return h('time', { datetime: iso, title: format.full(iso) }, text);
}

/** Table. Columns are `{ title, render, number, head, class }`. `key` identifies a row, so that it retains the focus. */
export function table({ caption, columns, rows, key, empty }) {
  if (!rows.length) return h('p', { class: 'empty' }, empty ?? 'No entries.');
  const head = columns.map((column) => h('th', { role: 'columnheader', scope: 'col', class: column.number ? 'number' : null }, column.title));
  const cell = (column, row) => {
    const className = [column.number ? 'number' : '', column.class ?? ''].join(' ').trim();
    const name = column.head ? 'th' : 'td';
    // Narrow pages display rows as blocks; the roles preserve the table for screen readers.
    const role = column.head ? 'rowheader' : 'cell';
    return h(name, { role, class: className || null, scope: column.head ? 'row' : null, 'data-title': column.title }, column.render(row));
  };
  const body = rows.map((row) => h('tr', { role: 'row', 'data-key': key?.(row) }, columns.map((column) => cell(column, row))));
  return h(
    'div',
    { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': caption },
    h('table', { role: 'table' },
      h('caption', { class: 'visually-hidden' }, caption),
      h('thead', { role: 'rowgroup' }, h('tr', { role: 'row' }, head)),
      h('tbody', { role: 'rowgroup' }, body)),
  );
}

/** Section with a heading. */
export function section(title, attributes, ...children) {
  const { aside, id, ...rest } = attributes ?? {};
  const name = id ?? title.toLowerCase().replaceAll(/[^a-z]+/g, '-');
  const head = h('div', { class: 'section-head' }, h('h2', { id: `h-${name}` }, title), aside ? h('div', { class: 'aside' }, aside) : null);
  return h('section', { 'aria-labelledby': `h-${name}`, 'data-key': `section-${name}`, ...rest }, head, ...children);
}

/** List of names and values; omits empty values. */
export function definitionList(pairs) {
  const present = pairs.filter(([, value]) => value !== undefined && value !== null && value !== '');
  return h('dl', { class: 'definition-list' }, present.map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value))));
}

/** Statistic with its label. `points` add a sparkline. */
export function stat(label, value, { hint, points, href } = {}) {
  const name = href ? h('a', { href }, label) : label;
  return h(
    'div',
    { class: 'stat', 'data-key': `stat-${label}` },
    h('div', { class: 'label' }, name),
    h('div', { class: 'value' }, value),
    hint ? h('div', { class: 'hint' }, hint) : null,
    points ? sparkline(points) : null,
  );
}

/** Sparkline of the points, the last one at the right. */
function sparkline(points) {
  const [width, height] = [120, 28];
  const max = Math.max(...points, 1e-9);
  const interval = width / Math.max(points.length - 1, 1);
  const positions = points.map((point, index) => `${(index * interval).toFixed(1)},${(height - 2 - (point / max) * (height - 4)).toFixed(1)}`);
  const path = positions.length > 1 ? `M${positions.join('L')}` : '';
  return h(
    'svg:svg',
    { viewBox: `0 0 ${width} ${height}`, class: 'sparkline', preserveAspectRatio: 'none', 'aria-hidden': 'true' },
    h('svg:path', { d: path ? `${path}L${width},${height}L0,${height}z` : '', class: 'area' }),
    h('svg:path', { d: path }),
  );
}

/** Formatted JSON. */
export function json(value, label) {
  return h('pre', { class: 'json', tabindex: '0', role: 'region', 'aria-label': label }, JSON.stringify(value, null, 2));
}

/** Content that the user can expand. */
export function disclosure(title, ...children) {
  return h('details', {}, h('summary', {}, title), ...children);
}

export function button(text, onClick, { variant, disabled, label } = {}) {
  return h('button', { type: 'button', class: variant ?? null, disabled, 'aria-label': label, on: { click: onClick } }, text);
}

/** Labelled field. Screen readers announce the hint after the name. `scope` makes the id of the hint unique. */
export function field(label, control, hint, scope = 'page') {
  const id = `${scope}-hint-${label.toLowerCase().replaceAll(/[^a-z]+/g, '-')}`;
  if (hint) control.setAttribute('aria-describedby', id);
  return h('div', { class: 'field' }, h('label', {}, h('span', {}, label), control), hint ? h('small', { id }, hint) : null);
}

/** Buttons for the previous and the next page. `cursors` contains the cursor of each visited page. */
export function pager({ cursors, nextCursor }, onChange) {
  return h('nav', { class: 'pager', 'aria-label': 'Pages', 'data-key': 'pager' },
    button('Previous page', () => onChange(false), { disabled: cursors.length < 2 }),
    h('span', {}, `Page ${format.number(cursors.length)}`),
    button('Next page', () => onChange(true), { disabled: !nextCursor }));
}

/** Changes the page and moves the focus to its heading. */
export function turnPage(state, forward) {
  if (forward) state.cursors.push(state.nextCursor);
  else state.cursors.pop();
  document.querySelector('h1')?.focus();
  window.scrollTo(0, 0);
}

/** Formats a count: "at least 20,000" if it is incomplete. */
export const atLeast = (count, complete) => (complete ? format.number(count) : `at least ${format.number(count)}`);

/** Groups waits with the same kind and deadline: `A or B`. */
export function groupWaits(waits) {
  const groups = new Map();
  for (const wait of waits) {
    const key = `${wait.kind} ${wait.until}`;
    const { names = [], tokens = [] } = groups.get(key) ?? {};
    groups.set(key, { ...wait, names: [...names, wait.name], tokens: [...tokens, wait.token] });
  }
  return [...groups.values()].map(({ kind, until, names, tokens }) => ({ kind, until, names: names.join(' or '), tokens: tokens.join(', ') }));
}

/** Formats a business reference: a name, or `part=text` for each part; null if there is none. */
export function referenceText(reference) {
  if (reference === null || typeof reference === 'string') return reference;
  return Object.entries(reference).map(([part, text]) => `${part}=${text}`).join(', ');
}

let clearTimer;

/** Displays a message for 10 seconds and announces it to screen readers. */
export function announce(text) {
  const region = document.getElementById('announcement');
  region.replaceChildren(h('p', {}, text));
  clearTimeout(clearTimer);
  clearTimer = setTimeout(() => region.replaceChildren(), 10_000);
}
