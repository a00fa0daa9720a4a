// The inbox: what people are asked. Taking and answering stand beside each task.

import { h } from '../dom.js';
import * as api from '../api.js';
import * as format from '../format.js';
import * as router from '../router.js';
import * as settings from '../settings.js';
import { button, field, mark, section, table, time } from '../components.js';
import { orders } from './task.js';

const EVERY = 5000;
const ROWS = 50;
const KINDS = [['', 'waiting'], ['completed', 'completed'], ['closed', 'closed'], ['open,claimed,completed,closed', 'all']];

export function open(page) {
  page.title('Tasks');
  const wanted = Object.fromEntries(page.query);
  const state = { cursors: [''], found: null };
  const look = page.follow(async (signal) => {
    const { whose, status } = wanted;
    const query = { status, role: whose === 'role' ? settings.roleList()[0] : wanted.role, assignee: whose === 'mine' ? settings.person.get() : undefined };
    const items = [];
    let cursor = state.cursors.at(-1);
    do {
      const found = await api.get('/v1/tasks', { ...query, limit: ROWS - items.length, cursor }, signal);
      items.push(...found.items);
      cursor = found.next;
    } while (cursor && items.length < ROWS);
    Object.assign(state, { found: items, next: cursor });
    draw();
  }, EVERY);
  const change = (name, value) => {
    if (value) wanted[name] = value;
    else delete wanted[name];
    router.go(router.to(['tasks'], wanted), true);
    state.cursors = [''];
    look();
  };
  const step = (forward) => {
    if (forward) state.cursors.push(state.next);
    else state.cursors.pop();
    look();
  };
  const draw = () => page.draw(filters(wanted, change), list(state.found, look), pager(state, step));
}

function filters(wanted, change) {
  const select = (name, pairs) => h('select', { value: wanted[name] ?? '', on: { change: (event) => change(name, event.target.value) } }, pairs.map(([value, title]) => h('option', { value }, title)));
  const [role] = settings.roleList();
  const whose = [['', 'everybody’s'], ...(settings.person.get() ? [['mine', `${settings.person.get()}’s`]] : []), ...(role ? [['role', `for ${role}`]] : [])];
  return h('form', { class: 'filters', 'aria-label': 'Which tasks', 'data-key': 'filters', on: { submit: (event) => event.preventDefault() } },
    field('Whose', select('whose', whose), settings.person.get() ? null : 'Say who you are at the top, and yours can be chosen.'),
    field('Which', select('status', KINDS)));
}

function list(found, look) {
  const columns = [
    { title: 'Task', head: true, show: (task) => [h('a', { href: router.to(['tasks', task.id]) }, task.title), h('div', { class: 'faint' }, task.roles.length ? `for ${task.roles.join(', ')}` : 'for everybody')] },
    { title: 'Instance', show: (task) => h('a', { href: router.instance(task.saga, task.correlation) }, `${task.saga} ${task.correlation}`) },
    { title: 'Status', show: (task) => mark(task.status, { open: 'plain', claimed: 'running', completed: 'completed', closed: 'cancelled' }[task.status]) },
    { title: 'Whose', show: (task) => task.claimed_by ?? task.assignee ?? h('span', { class: 'faint' }, 'nobody’s') },
    { title: 'Due', show: (task) => h('span', { class: task.due && Date.parse(task.due) < format.now() && ['open', 'claimed'].includes(task.status) ? 'bad-text' : null }, time(task.due)) },
    { title: 'Opened', show: (task) => time(task.opened_at) },
    { title: 'Do', class: 'do', show: (task) => h('div', { class: 'buttons' }, orders(task, look).slice(0, 2)) },
  ];
  return section('Inbox', {}, table({ caption: 'Tasks', columns, rows: found ?? [], key: (task) => task.id, empty: 'No task waits.' }));
}

function pager(state, step) {
  if (state.cursors.length < 2 && !state.next) return null;
  return h('nav', { class: 'pager', 'aria-label': 'Pages' },
    button('Previous page', () => step(false), { disabled: state.cursors.length < 2 }),
    h('span', {}, `Page ${state.cursors.length}`),
    button('Next page', () => step(true), { disabled: !state.next }));
}
