// One task: its data, its events and its actions.

import { h } from '../dom.js';
import * as api from '../api.js';
import * as format from '../format.js';
import { isScalar } from '../json.js';
import * as router from '../router.js';
import * as settings from '../settings.js';
import * as caller from '../caller.js';
import { openDialog } from '../dialog.js';
import { button, definitionList, json, section, statusMark, time } from '../components.js';

const INTERVAL_MS = 5000;

export function open(page) {
  const [, id] = page.segments;
  page.title('Task');
  const refresh = page.poll(async (signal) => {
    const task = await api.get(api.path('v1', 'tasks', id), {}, signal);
    page.title(task.title, statusMark(task.status, task.status === 'completed' ? 'completed' : 'running'), h('div', { class: 'buttons' }, taskButtons(task, refresh)));
    page.render(exclusion(task), details(task), data(task), history(task));
  }, INTERVAL_MS);
}

function details(task) {
  return section('Task', {}, definitionList([
    ['Instance', instanceLink(task)],
    ['Excluded users', task.exclusions?.length ? h('ul', { class: 'plain-list' }, task.exclusions.map((exclusion) => h('li', {}, excluded(exclusion)))) : null],
    ['Roles', task.roles.join(', ') || 'everyone'],
    ['Assignee', task.assignee],
    ['Claimed by', task.claimed_by],
    ['Due', task.due ? h('span', { class: Date.parse(task.due) < format.now() ? 'error-text' : null }, time(task.due, 'absolute'), ', ', time(task.due)) : null],
    ['Opened', h('span', {}, time(task.opened_at, 'absolute'), ', ', time(task.opened_at))],
    ['Outcome', task.outcome],
    ['Outcomes', task.outcomes.join(', ') || 'completion only'],
  ]));
}

/** Reasons of the rules of `not_by`. */
const EXCLUSIONS = { starter: 'started this instance', previous: 'completed the previous task' };

const excluded = ({ rule, user }) => (user ? `${user} ${EXCLUSIONS[rule]}` : `all users: the instance does not record who ${EXCLUSIONS[rule]}`);

/** Sentence for a user whom the task excludes. */
function exclusion({ exclusions = [], status }) {
  const found = exclusions.find(({ user }) => user === null || user === caller.user());
  if (!found || !['open', 'claimed'].includes(status)) return null;
  const reason = found.user ? `you ${EXCLUSIONS[found.rule]}` : `the instance does not record who ${EXCLUSIONS[found.rule]}`;
  return h('p', { class: 'notice', 'data-key': 'exclusion' }, `You cannot claim or complete this task: ${reason}. Another user must decide.`);
}

function data({ data }) {
  const isFlat = data && typeof data === 'object' && !Array.isArray(data) && Object.values(data).every(isScalar);
  if (data === null || (isFlat && !Object.keys(data).length)) return null;
  return section('Data', {}, isFlat ? definitionList(Object.entries(data).map(([name, value]) => [name, String(value)])) : json(data, 'Task data'));
}

function history({ events }) {
  return section('History', {}, h('ol', { class: 'timeline' }, events.map((event, index) => h('li', { 'data-key': `e${index}` },
    h('div', { class: 'time' }, time(event.at, 'absolute')),
    h('div', {}, h('strong', {}, format.words(event.kind)), event.user ? ` by ${event.user}` : ' by the saga', event.assignee ? ` to ${event.assignee}` : null, event.roles?.length ? ` for ${event.roles.join(', ')}` : null, event.outcome ? [': ', h('strong', {}, event.outcome)] : null,
      event.reason ? h('div', { class: 'note' }, event.reason) : null)))));
}

/** Link to the instance of a task, if the caller may read it. */
export function instanceLink({ saga, correlation }) {
  const text = `${saga} ${correlation}`;
  return caller.can('read') ? h('a', { href: router.instance(saga, correlation) }, text) : text;
}

/** Returns the permitted buttons of a task, the most common action first. */
export function taskButtons(task, refresh) {
  if (!['open', 'claimed'].includes(task.status)) return [];
  const action = (verb, dialog) => () => control(task, verb, dialog, refresh);
  const complete = button('Complete', action('complete', completeDialog(task)), { variant: 'primary', label: `Complete: ${task.title}` });
  const claim = button('Claim', action('claim', { title: 'Claim this task?', text: `${task.title}. Other users cannot complete it until you release it.`, action: 'Claim', result: 'claimed' }), { label: `Claim: ${task.title}` });
  const release = button('Release', action('release', { title: 'Release this task?', text: `${task.title}. Others can then claim it.`, action: 'Release', result: 'released' }), { label: `Release: ${task.title}` });
  const assign = button('Reassign', action('assign', {
    title: 'Reassign', text: `${task.title}. The new assignee and roles replace the current ones.`, action: 'Reassign', result: 'reassigned',
    fields: [{ name: 'assignee', label: 'Assignee', value: task.assignee ?? '', hint: 'Empty: unassigned.' }, { name: 'taskRoles', label: 'Roles', value: task.roles.join(', '), hint: 'Comma-separated. Only users with one of these roles can claim the task.' }],
    body: (values) => ({ assignee: values.assignee || undefined, roles: parseList(values.taskRoles) }),
  }), { label: `Reassign: ${task.title}` });
  const actions = task.status === 'open' ? [claim, complete] : [complete, release];
  return [...(caller.can('tasks') && !exclusion(task) ? actions : []), ...(caller.can('assign') ? [assign] : [])];
}

function completeDialog(task) {
  return {
    title: 'Complete this task', text: `${task.title}. The saga continues with this result.`, action: 'Complete', result: 'completed',
    fields: [
      ...(task.outcomes.length ? [{ name: 'outcome', label: 'Outcome', kind: 'select', options: task.outcomes, value: task.outcomes[0] }] : []),
      { name: 'data', label: 'Data', kind: 'json', hint: 'JSON passed to the saga, optional.' },
    ],
    body: (values) => ({ outcome: values.outcome, data: values.data }),
  };
}

const parseList = (text) => text.split(',').map((part) => part.trim()).filter(Boolean);

/** Opens the dialog of a task action. */
function control(task, verb, { result, fields = [], body = () => ({}), ...dialog }, refresh) {
  const identity = [
    { name: 'user', label: 'User name', value: caller.user(), required: true },
    // The node knows the roles of an authenticated user.
    ...(verb === 'assign' ? [] : [{ name: 'roles', label: 'Roles', value: caller.isAuthenticated() ? '' : settings.roles.get() || task.roles.join(', '), hint: 'Comma-separated.' }]),
    { name: 'reason', label: 'Reason', hint: 'Recorded in the task, optional.' },
  ];
  openDialog({
    ...dialog,
    fields: [...fields, ...identity],
    async run(values) {
      if (!caller.isAuthenticated()) settings.user.set(values.user);
      const roles = verb === 'assign' ? {} : { roles: parseList(values.roles) };
      await api.post(api.path('v1', 'tasks', task.id, verb), { user: values.user, reason: values.reason || undefined, ...roles, ...body(values) });
      refresh();
      return `${task.title}: ${result} by ${values.user}.`;
    },
  });
}
