// Contexts that the caller may read, with their members, and the creation of one.

import { h } from '../dom.js';
import * as api from '../api.js';
import * as caller from '../caller.js';
import * as router from '../router.js';
import { openDialog } from '../dialog.js';
import { button, section, table } from '../components.js';
import { openList } from '../list.js';

const INTERVAL_MS = 5000;
const PAGE_SIZE = 50;
/** Lists of a context, with what each one grants. */
export const LISTS = [
  ['admins', 'Admins', 'All rights in the context. Comma-separated: user:ada, group:ops, actor:robot.'],
  ['readers', 'Readers', 'Read instances, tasks and definitions.'],
  ['executors', 'Executors', 'Take jobs, and report their status, lines and results.'],
];

export function open(page) {
  page.title('Contexts', caller.can('admin') ? h('div', { class: 'buttons' }, button('Create a context', create, { variant: 'primary' })) : null);
  openList(page, { path: '/v1/contexts', interval: INTERVAL_MS, size: PAGE_SIZE, render: list });
}

function list(items) {
  const columns = [
    { title: 'Tenant', head: true, render: ({ tenant }) => h('a', { href: router.to(['contexts', tenant]) }, tenant) },
    ...LISTS.map(([list, title]) => ({ title, render: (context) => members(context[list]) })),
  ];
  return section('All contexts', {}, table({
    caption: 'Contexts by tenant', columns, rows: items, key: ({ tenant }) => tenant,
    empty: ['No contexts. Create one here, or run ', h('code', {}, 'orlog context create'), '.'],
  }));
}

/** Members of a list in one line. */
export const members = (list) => (list.length ? list.join(', ') : h('span', { class: 'muted' }, '–'));

/** Fields of the lists in a dialog. */
export const listFields = (context) => LISTS.map(([name, label, hint]) => ({ name, label, hint, value: context?.[name].join(', ') ?? '' }));

/** Returns the lists of the fields. */
export function listValues(values) {
  const split = (text) => text.split(',').map((member) => member.trim()).filter(Boolean);
  return Object.fromEntries(LISTS.map(([name]) => [name, split(values[name])]));
}

function create() {
  openDialog({
    title: 'Create a context',
    text: 'From then on, only the members of its lists and administrators of the node have access to the tenant.',
    action: 'Create',
    fields: [{ name: 'tenant', label: 'Tenant', required: true }, ...listFields()],
    async run({ tenant, ...values }) {
      await api.put(api.path('v1', 'contexts', tenant), listValues(values));
      router.go(router.to(['contexts', tenant]));
      return `The context ${tenant} was created.`;
    },
  });
}
