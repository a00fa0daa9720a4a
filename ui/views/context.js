// One context: its members, its last changes and its actions.

import { h } from '../dom.js';
import * as api from '../api.js';
import * as caller from '../caller.js';
import * as router from '../router.js';
import { openDialog } from '../dialog.js';
import { button, definitionList, section, table, time } from '../components.js';
import { LISTS, listFields, listValues, members } from './contexts.js';

const INTERVAL_MS = 5000;

export function open(page) {
  const [, tenant] = page.segments;
  const url = api.path('v1', 'contexts', tenant);
  page.title(tenant);
  const refresh = page.poll(async (signal) => {
    const context = await api.get(url, {}, signal);
    page.title(tenant, caller.can('admin') ? h('div', { class: 'buttons' }, buttons(context, { url, refresh: () => refresh() })) : null);
    page.render(settings(context), changes(context));
  }, INTERVAL_MS);
}

const settings = (context) => section('Members', {}, definitionList([
  ...LISTS.map(([name, title]) => [title, members(context[name])]),
  ['Unsigned events', context.require_signed_events ? 'Rejected' : 'Accepted'],
  ['Created', time(context.created_at)],
  ['Revision', String(context.revision)],
]));

function changes({ changes: rows }) {
  const columns = [
    { title: 'Time', head: true, render: ({ at }) => time(at) },
    { title: 'User', render: ({ by }) => by ?? h('span', { class: 'muted' }, '–') },
    { title: 'Added', render: ({ added }) => members(added) },
    { title: 'Removed', render: ({ removed }) => members(removed) },
  ];
  return section('Changes', {}, table({ caption: 'Last changes, newest first', columns, rows, key: ({ at }) => at }));
}

function buttons(context, { url, refresh }) {
  const { tenant, revision } = context;
  const edit = () => openDialog({
    title: `Change the context ${tenant}`,
    text: 'The change applies to the next request of each caller.',
    action: 'Change',
    fields: [
      ...listFields(context),
      { name: 'signed', label: 'Reject events and signals that no member signed', kind: 'check', value: context.require_signed_events },
    ],
    async run({ signed, ...values }) {
      const body = { ...listValues(values), require_signed_events: signed };
      await api.put(url, body, { headers: { 'if-match': `"${revision}"` } });
      refresh();
      return `The context ${tenant} was changed.`;
    },
  });
  const remove = () => openDialog({
    title: `Delete the context ${tenant}?`,
    text: 'The tenant must have no instances. Afterwards, the roles of tokens decide about access to it.',
    action: 'Delete context',
    danger: true,
    async run() {
      await api.remove(url);
      router.go(router.to(['contexts']));
      return `The context ${tenant} was deleted.`;
    },
  });
  return [button('Edit', edit, { variant: 'primary' }), button('Delete', remove, { variant: 'danger' })];
}
