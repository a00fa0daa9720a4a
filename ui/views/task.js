// One task: what is asked, everything that happened to it, and what can be done.

import { h } from '../dom.js';
import * as api from '../api.js';
import * as format from '../format.js';
import * as router from '../router.js';
import * as settings from '../settings.js';
import { ask } from '../dialog.js';
import { button, facts, json, mark, section, time } from '../components.js';

const EVERY = 5000;

export function open(page) {
  const [, id] = page.parts;
  page.title('Task');
  const look = page.follow(async (signal) => {
    const task = await api.get(api.path('v1', 'tasks', id), {}, signal);
    page.title(task.title, mark(task.status, task.status === 'completed' ? 'completed' : 'running'), h('div', { class: 'buttons' }, orders(task, look)));
    page.draw(asked(task), data(task), past(task));
  }, EVERY);
}

function asked(task) {
  return section('What is asked', {}, facts([
    ['Instance', h('a', { href: router.instance(task.saga, task.correlation) }, `${task.saga} ${task.correlation}`)],
    ['For', task.roles.join(', ') || 'everybody'],
    ['Assigned to', task.assignee],
    ['Claimed by', task.claimed_by],
    ['Due', task.due ? h('span', { class: Date.parse(task.due) < format.now() ? 'bad-text' : null }, time(task.due, 'at'), ', ', time(task.due)) : null],
    ['Opened', h('span', {}, time(task.opened_at, 'at'), ', ', time(task.opened_at))],
    ['Answer', task.outcome],
    ['Can be answered with', task.outcomes.join(', ') || 'done'],
  ]));
}

function data({ data }) {
  const simple = data && typeof data === 'object' && !Array.isArray(data) && Object.values(data).every((value) => typeof value !== 'object' || value === null);
  if (data === null || (simple && !Object.keys(data).length)) return null;
  return section('What there is to know', {}, simple ? facts(Object.entries(data).map(([name, value]) => [name, String(value)])) : json(data, 'Data of the task'));
}

function past({ events }) {
  return section('What happened', {}, h('ol', { class: 'timeline' }, events.map((event, number) => h('li', { 'data-key': `e${number}` },
    h('div', { class: 'when' }, time(event.at, 'at')),
    h('div', {}, h('strong', {}, format.words(event.what)), event.by ? ` by ${event.by}` : ' by the saga', event.assignee ? ` to ${event.assignee}` : null, event.roles?.length ? ` for ${event.roles.join(', ')}` : null, event.outcome ? [': ', h('strong', {}, event.outcome)] : null,
      event.reason ? h('div', { class: 'note' }, event.reason) : null)))));
}

/** The buttons of a task, the likeliest first. */
export function orders(task, look) {
  if (!['open', 'claimed'].includes(task.status)) return [];
  const give = (verb, wanted) => () => order(task, verb, wanted, look);
  const complete = button('Complete', give('complete', answering(task)), { look: 'main', label: `Complete: ${task.title}` });
  const claim = button('Claim', give('claim', { title: 'Take this task?', text: task.title, action: 'Claim', said: 'claimed' }), { label: `Claim: ${task.title}` });
  const release = button('Release', give('release', { title: 'Give it back?', text: `${task.title}. Others may take it then.`, action: 'Release', said: 'released' }), { label: `Release: ${task.title}` });
  const assign = button('Reassign', give('assign', {
    title: 'Give it to somebody', text: task.title, action: 'Reassign', said: 'reassigned',
    fields: [{ name: 'assignee', label: 'To whom', value: task.assignee ?? '', hint: 'Empty: to whoever takes it.' }, { name: 'for', label: 'Roles', value: task.roles.join(', '), hint: 'Separated by commas; who has none of them cannot take it.' }],
    body: (values) => ({ assignee: values.assignee || undefined, roles: list(values.for) }),
  }), { label: `Reassign: ${task.title}` });
  return task.status === 'open' ? [claim, complete, assign] : [complete, release, assign];
}

function answering(task) {
  return {
    title: 'Answer this task', text: task.title, action: 'Complete', said: 'completed',
    fields: [
      ...(task.outcomes.length ? [{ name: 'outcome', label: 'Answer', kind: 'select', options: task.outcomes, value: task.outcomes[0] }] : []),
      { name: 'data', label: 'Data', kind: 'json', hint: 'JSON that the saga is shown; may be left out.' },
    ],
    body: (values) => ({ outcome: values.outcome, data: values.data }),
  };
}

const list = (text) => text.split(',').map((part) => part.trim()).filter(Boolean);

function order(task, verb, { said, fields = [], body = () => ({}), ...wanted }, look) {
  const mine = [
    { name: 'by', label: 'Your name', value: settings.person.get(), required: true },
    ...(verb === 'assign' ? [] : [{ name: 'roles', label: 'Your roles', value: settings.roles.get() || task.roles.join(', '), hint: 'Separated by commas.' }]),
    { name: 'reason', label: 'Why', hint: 'Stands in the record; may be left out.' },
  ];
  ask({
    ...wanted,
    fields: [...fields, ...mine],
    async run(values) {
      settings.person.set(values.by);
      const roles = verb === 'assign' ? {} : { roles: list(values.roles) };
      await api.post(api.path('v1', 'tasks', task.id, verb), { by: values.by, reason: values.reason || undefined, ...roles, ...body(values) });
      look();
      return `${task.title}: ${said} by ${values.by}.`;
    },
  });
}
