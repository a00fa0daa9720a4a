// Dead letters: what could not be applied, piled up by cause, because they are mended and sent again by cause.

import { h } from '../dom.js';
import * as api from '../api.js';
import * as format from '../format.js';
import * as router from '../router.js';
import { ask, explained } from '../dialog.js';
import { atLeast, button, json, section, table, time } from '../components.js';

const EVERY = 5000;
const ROWS = 50;
const REMEDIES = {
  undecodable: 'The message is no event. Mend whoever sends it; nothing here can make sense of it.',
  schema_mismatch: 'The definition refused the data. Mend the sender or deploy a definition that takes it, then send again.',
  program_error: 'The definition failed at it: an expression, a limit, a bug. Deploy a mended one, then send again.',
  definition_missing: 'The definition that the instance is pinned to is not here. Deploy it, then send again.',
  snapshot_inconsistent: 'The stored state cannot be read by its program. Deploy the program that wrote it, then send again.',
  retries_exhausted: 'It crashed its instance too often. The log of the node has the cause.',
  too_many_early: 'Too much came before its instance began. See why it did not begin, then send again.',
};

export function open(page) {
  page.title('Dead letters');
  const state = { cursors: [''], shown: new Map() };
  const look = page.follow(async (signal) => {
    const [causes, letters] = await Promise.all([
      api.get('/v1/dead-letters/causes', {}, signal),
      api.get('/v1/dead-letters', { limit: ROWS, cursor: state.cursors.at(-1) }, signal),
    ]);
    Object.assign(state, { causes, letters });
    draw();
  }, EVERY);
  const step = (forward) => {
    if (forward) state.cursors.push(state.letters.next);
    else state.cursors.pop();
    look();
  };
  const draw = () => page.draw(piles(state.causes, look), list(state, draw, look), pager(state, step));
}

function piles({ items, complete }, look) {
  if (!items.length) return section('By cause', {}, h('p', { class: 'calm' }, 'There are no dead letters.'));
  return section('By cause', { aside: complete ? null : h('span', { class: 'faint' }, 'not all were looked at') }, h('ul', { class: 'piles' }, items.map((pile) => h('li', { 'data-key': `${pile.reason} ${pile.saga}` },
    h('div', { class: 'pile-head' }, h('strong', {}, format.words(pile.reason)), h('span', {}, pile.saga ? `in ${pile.saga}` : 'for no instance'), h('span', { class: 'count' }, atLeast(pile.count, complete))),
    h('p', {}, h('q', {}, pile.message)),
    h('p', { class: 'faint' }, REMEDIES[pile.reason] ?? '', ' Between ', time(pile.oldest, 'at'), ' and ', time(pile.newest, 'at'), '.'),
    button('Send again …', () => many(pile, look), { look: 'main', label: `Send again: ${format.words(pile.reason)} ${pile.saga ?? ''}` })))));
}

function many(pile, look) {
  ask({
    title: 'Send them again?',
    text: `${format.words(pile.reason)}${pile.saga ? ` in ${pile.saga}` : ''}: oldest first. The first goes alone; the others follow only where it does not fail again.`,
    fields: [
      { name: 'limit', label: 'At most', value: String(Math.min(pile.count, 1000)) },
      { name: 'canary', label: 'First of all', value: '1', hint: 'So many go alone. Empty: all at once.' },
    ],
    action: 'Send again',
    async run({ limit, canary }) {
      const answer = await api.post('/v1/dead-letters/redrive', { reason: pile.reason, saga: pile.saga ?? undefined, limit: count('At most', limit), canary: canary ? count('First of all', canary) : undefined });
      look();
      const failed = answer.set_aside + answer.refused;
      const parts = [`${answer.taken + answer.published} sent`, failed ? `${failed} failed again` : '', answer.left ? `${answer.left} left where they are` : ''].filter(Boolean);
      const why = answer.failures[0] ? ` The first: ${answer.failures[0].detail}` : '';
      return `${parts.join(', ')}.${why}`;
    },
  });
}

function count(label, text) {
  if (!/^[1-9]\d*$/.test(text)) throw new Error(`${label}: write a whole number from 1 on.`);
  return Number(text);
}

function list(state, draw, look) {
  const columns = [
    { title: 'What', head: true, show: (letter) => [letter.label, h('div', { class: 'faint' }, format.words(letter.reason))] },
    { title: 'For', show: (letter) => (letter.saga ? h('a', { href: router.instance(letter.saga, letter.correlation) }, `${letter.saga} ${letter.correlation}`) : h('span', { class: 'faint' }, 'no instance')) },
    { title: 'Why', class: 'why', show: (letter) => [letter.message, original(state, letter, draw)] },
    { title: 'When', show: (letter) => [time(letter.at), h('div', { class: 'faint' }, letter.node)] },
    { title: 'Do', class: 'do', show: (letter) => h('div', { class: 'buttons' },
      button('Send again', () => one(letter, look), { label: `Send again: ${letter.label}` }),
      button('Discard', () => discard(letter, look), { look: 'danger', label: `Discard: ${letter.label}` })) },
  ];
  return section('Letters', {}, table({ caption: 'Dead letters, oldest first', columns, rows: state.letters.items, key: (letter) => letter.id, empty: 'None.' }));
}

/** What it was is fetched when somebody wants to see it. */
function original(state, letter, draw) {
  const shown = state.shown.get(letter.id);
  const toggle = async (event) => {
    if (!event.target.open || shown) return;
    try {
      const whole = await api.get(api.path('v1', 'dead-letters', letter.id));
      state.shown.set(letter.id, json(whole.original, 'The original'));
    } catch (error) {
      state.shown.set(letter.id, h('div', {}, explained(error)));
    }
    draw();
  };
  return h('details', { on: { toggle } }, h('summary', {}, 'What it was'), shown ? shown.cloneNode(true) : h('p', { class: 'faint' }, 'Loading …'));
}

function one(letter, look) {
  ask({
    title: 'Send it again?',
    text: `${letter.label}: ${letter.message}. Where it fails again it is a letter again.`,
    action: 'Send again',
    async run() {
      const answer = await api.post(api.path('v1', 'dead-letters', letter.id, 'redrive'));
      look();
      return answer.applied ? `${letter.label} was taken.` : `Nothing changed: ${answer.why ?? 'it was applied before'}.`;
    },
  });
}

function discard(letter, look) {
  ask({
    title: 'Discard it?',
    text: `${letter.label}: it is gone for good, and what it would have done is never done.`,
    action: 'Discard',
    danger: true,
    async run() {
      await api.remove(api.path('v1', 'dead-letters', letter.id));
      look();
      return `${letter.label} was discarded.`;
    },
  });
}

function pager(state, step) {
  if (state.cursors.length < 2 && !state.letters.next) return null;
  return h('nav', { class: 'pager', 'aria-label': 'Pages' },
    button('Previous page', () => step(false), { disabled: state.cursors.length < 2 }),
    h('span', {}, `Page ${state.cursors.length}`),
    button('Next page', () => step(true), { disabled: !state.letters.next }));
}
