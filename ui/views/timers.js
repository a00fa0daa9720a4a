// What falls due next, and what should have fired already.

import { h } from '../dom.js';
import * as api from '../api.js';
import * as format from '../format.js';
import * as router from '../router.js';
import { button, section, table, time } from '../parts.js';

const EVERY = 5000;
/** Shown at first, and then so many more each time. */
const ROWS = 100;
/** A timer this late, in milliseconds, is worth a look. */
const LATE = 5000;

export function open(page) {
  page.title('Timers');
  let limit = ROWS;
  const look = page.follow(async (signal) => {
    const { items } = await api.get('/v1/timers', { limit }, signal);
    const late = items.filter((timer) => format.now() - Date.parse(timer.due) > LATE).length;
    page.draw(
      h('p', { 'data-key': 'late', class: late ? 'bad-text' : 'faint' }, late ? `${format.plural(late, 'timer is', 'timers are')} late: a shard may be restarting, or the disk slow.` : 'All timers fire in time.'),
      list(items),
      items.length >= limit && limit < 1000 ? button('Show more', () => { limit = Math.min(limit + 3 * ROWS, 1000); look(); }) : null,
    );
  }, EVERY);
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
