// What falls due next, and what should have fired already.

import { h } from '../dom.js';
import * as api from '../api.js';
import * as format from '../format.js';
import * as router from '../router.js';
import { pager, section, table, time, turn } from '../components.js';

const EVERY = 5000;
const ROWS = 100;
/** A timer this late, in milliseconds, is worth a look. */
const LATE = 5000;

export function open(page) {
  page.title('Timers');
  const state = { cursors: [''], next: null };
  const look = page.follow(async (signal) => {
    const items = await load(state, signal);
    const late = items.filter((timer) => format.now() - Date.parse(timer.due) > LATE).length;
    page.draw(
      state.cursors.length > 1 ? null : h('p', { 'data-key': 'late', class: late ? 'bad-text' : 'faint' }, late ? `${format.plural(late, 'timer is', 'timers are')} late: a shard may be restarting, or the disk slow.` : 'All timers fire in time.'),
      list(items),
      pager(state, step),
    );
  }, EVERY);

  function step(forward) {
    turn(state, forward);
    look();
  }
}

/** Fills a page: a request looks at a bounded number of timers, and those of other tenants lie between. */
async function load(state, signal) {
  const items = [];
  let cursor = state.cursors.at(-1);
  do {
    const found = await api.get('/v1/timers', { limit: ROWS - items.length, cursor }, signal);
    items.push(...found.items);
    cursor = found.next;
  } while (cursor && items.length < ROWS);
  state.next = cursor;
  return items;
}

function list(items) {
  const columns = [
    { title: 'Due', head: true, show: (timer) => h('span', { class: format.now() - Date.parse(timer.due) > LATE ? 'bad-text' : null }, time(timer.due)) },
    { title: 'At', show: (timer) => time(timer.due, 'at') },
    { title: 'Timer', show: (timer) => timer.name },
    { title: 'Instance', show: (timer) => h('a', { href: router.instance(timer.saga, timer.correlation) }, timer.correlation) },
    { title: 'Definition', show: (timer) => timer.saga },
  ];
  return section('Next to fire', {}, table({ caption: 'Timers, the next first', columns, rows: items, key: (timer) => `${timer.saga}/${timer.correlation}/${timer.name}/${timer.token}`, empty: 'No timer is armed.' }));
}
