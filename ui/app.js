// Page layout: navigation, tenant, user, theme, live updates, and one view at a time.

import { fragment, h, patch } from './dom.js';
import { announce, button, field, icon } from './components.js';
import { dismissDialog, errorContent, openDialog } from './dialog.js';
import * as api from './api.js';
import { Problem } from './api.js';
import * as caller from './caller.js';
import * as polling from './poll.js';
import * as router from './router.js';
import * as settings from './settings.js';

/** Routes and their files in views/. A trailing slash denotes a route with more segments. */
const VIEWS = {
  '': 'overview',
  instances: 'instances',
  'instances/': 'instance',
  tasks: 'tasks',
  'tasks/': 'task',
  'dead-letters': 'dead_letters',
  timers: 'timers',
  schedules: 'schedules',
  'schedules/': 'schedule',
  flows: 'flows',
  'flows/': 'flow',
  messages: 'messages',
  'messages/': 'message',
  batches: 'batches',
  'batches/': 'batch',
  shadows: 'shadows',
  'shadows/': 'shadow',
  contexts: 'contexts',
  'contexts/': 'context',
  definitions: 'definitions',
  deploy: 'deploy',
  'definitions/': 'definition',
  node: 'node',
};
/** Other names of routes: those of the commands and the files. */
const ALIASES = { dlq: 'dead-letters', dead_letters: 'dead-letters', deadletters: 'dead-letters' };
/** Routes, titles and required rights of the views. */
const NAVIGATION = [
  ['', 'Overview', 'read'],
  ['instances', 'Instances', 'read'],
  ['tasks', 'Tasks', 'read tasks'],
  ['dead-letters', 'Dead letters', 'read'],
  ['timers', 'Timers', 'read'],
  ['schedules', 'Schedules', 'read'],
  ['flows', 'Flows', 'read'],
  ['messages', 'Messages', 'read messages'],
  ['batches', 'Batches', 'read'],
  ['definitions', 'Definitions', 'read'],
  ['shadows', 'Shadows', 'read'],
  ['contexts', 'Contexts', 'read'],
  ['node', 'Node', 'read'],
];
const THEMES = { '': ['auto', 'system'], light: ['sun', 'light'], dark: ['moon', 'dark'] };

const main = document.getElementById('main');
let loops = [];
let currentView = 0;

function renderBar() {
  const [first] = router.current().segments;
  const tenant = settings.tenant.get() || 'default tenant';
  const [themeIcon, themeName] = THEMES[settings.theme.get()] ?? THEMES[''];
  const liveText = polling.isPaused() ? 'Live updates off' : 'Live updates on';
  const links = permittedViews().map(([segment, title]) => h('a', {
    href: router.to(segment ? [segment] : []),
    'aria-current': (first ?? '') === segment ? 'page' : null,
  }, title));
  patch(document.getElementById('bar'), fragment(
    h('a', { class: 'brand', href: '#/', 'aria-label': 'Orlog, overview' }, h('img', { src: '/ui/icon.svg', alt: '', width: '26', height: '26' }), h('span', {}, 'Orlog')),
    h('nav', { 'aria-label': 'Main' }, links),
    h('div', { class: 'tools' },
      caller.can('read') && h('form', { role: 'search', class: 'search', on: { submit: search } },
        icon('search'),
        h('input', { type: 'search', name: 'id', 'aria-label': 'Search instances by correlation ID', placeholder: 'Search by correlation ID', autocomplete: 'off' })),
      button([h('span', { class: 'visually-hidden' }, 'Tenant: '), h('span', { class: 'tenant' }, tenant)], switchTenant),
      button([icon('user'), h('span', { class: 'visually-hidden' }, 'User: '), h('span', { class: 'wide-only' }, caller.user() || 'anonymous')], editIdentity),
      caller.hasSession() && button('Log out', logOut),
      button([icon(themeIcon), h('span', { class: 'visually-hidden' }, `Theme: ${themeName}`)], switchTheme),
      h('button', { type: 'button', class: 'live', 'aria-label': liveText, 'aria-pressed': String(!polling.isPaused()), on: { click: toggleLive } },
        h('span', { class: 'dot', 'aria-hidden': 'true' }), h('span', { class: 'wide-only' }, liveText))),
  ));
  // A narrow page scrolls the navigation.
  document.querySelector('#bar [aria-current]')?.scrollIntoView({ block: 'nearest', inline: 'nearest' });
}

const permittedViews = () => NAVIGATION.filter(([, , right]) => caller.can(right));

function search(event) {
  event.preventDefault();
  const id = new FormData(event.target).get('id').trim();
  if (id) router.go(router.to(['instances'], { prefix: id }));
}

async function logOut() {
  await api.post('/auth/logout');
  await start();
}

function toggleLive() {
  polling.setPaused(!polling.isPaused());
  renderBar();
  announce(polling.isPaused() ? 'Live updates paused.' : 'Live updates on.');
}

function switchTheme() {
  const names = Object.keys(THEMES);
  settings.theme.set(names[(names.indexOf(settings.theme.get()) + 1) % names.length]);
  announce(`Theme: ${THEMES[settings.theme.get()][1]}.`);
}

function switchTenant() {
  openDialog({
    title: 'Switch tenant',
    text: 'All data and actions belong to one tenant. Leave empty for the default tenant.',
    fields: [{ name: 'tenant', label: 'Tenant', value: settings.tenant.get(), options: settings.tenants() }],
    action: 'Switch',
    async run({ tenant }) {
      settings.selectTenant(tenant);
      return `Tenant: ${tenant || 'default tenant'}.`;
    },
  });
}

function editIdentity() {
  openDialog({
    title: 'Your identity',
    text: 'Your user name is recorded with each action. Your roles select the tasks you can claim. Behind a gateway, the gateway verifies them.',
    fields: [
      { name: 'user', label: 'User name', value: settings.user.get() },
      { name: 'roles', label: 'Roles', value: settings.roles.get(), hint: 'Comma-separated.' },
      { name: 'token', label: 'Access token', value: settings.token.get(), hint: 'Required only if the node authenticates callers. Deleted when this tab closes.' },
    ],
    action: 'Save',
    async run({ user, roles, token }) {
      settings.user.set(user);
      settings.roles.set(roles);
      settings.token.set(token);
      return 'Saved in this browser.';
    },
  });
}

/** Creates the page of a view: route, title, content, errors and polling. A replaced view has no effect on the page. */
function createPage(number) {
  const heading = h('h1', { tabindex: '-1' });
  const headExtra = h('div', { class: 'head-extra' });
  const errorBox = h('div', { class: 'error-box', role: 'alert' });
  const partialBox = h('div', { role: 'status' });
  const body = h('div', { class: 'body' }, h('p', { class: 'empty', 'data-key': 'loading' }, 'Loading…'));
  api.forgetMissingPods();
  main.replaceChildren(h('div', { class: 'head' }, heading, headExtra), errorBox, partialBox, body);
  const isCurrent = () => number === currentView;
  const fail = (error) => {
    if (!isCurrent()) return;
    if (error instanceof Problem && error.code === 'OR0042') patch(errorBox, fragment(noAccess(error.message)));
    else if (error instanceof Problem && error.isAccessError) patch(errorBox, fragment(accessDenied(error)));
    else if (!(error instanceof Problem)) patch(errorBox, fragment(errorContent(error)));
    else patch(errorBox, fragment(errorContent(error), error.status === 0 ? h('p', {}, 'The page retries automatically.') : null));
    if (body.firstElementChild?.dataset.key === 'loading') body.replaceChildren();
    console.info(error);
  };
  return {
    ...router.current(),
    title(text, ...extra) {
      if (!isCurrent()) return;
      document.title = `${text} · Orlog`;
      patch(heading, fragment(text));
      patch(headExtra, fragment(extra));
    },
    render(...content) {
      if (!isCurrent()) return;
      errorBox.replaceChildren();
      patch(partialBox, fragment(incomplete(api.missingPods())));
      patch(body, fragment(content));
    },
    fail,
    /** Calls `load` immediately and then every `interval` milliseconds. Returns a function that calls it at once. */
    poll(load, interval) {
      const loop = polling.poll(load, interval, fail);
      if (isCurrent()) loops.push(loop);
      else loop.stop();
      return () => loop.now();
    },
  };
}

/** Sentence that names the pods whose data a view lacks. */
function incomplete(pods) {
  if (!pods.length) return null;
  return h('p', { class: 'error-text' }, `Incomplete: the instances of this tenant are on several pods, and those of other pods are missing: ${pods.join(', ')}. Open this page on each pod.`);
}

/** Form for an access token, displayed if the node denies access. */
function accessDenied(error) {
  const input = h('input', { type: 'password', name: 'token', autocomplete: 'off' });
  const submit = (event) => {
    event.preventDefault();
    settings.token.set(input.value.trim());
  };
  const title = error.status === 401 ? 'Authentication required' : 'Access denied';
  return h('form', { class: 'access', on: { submit } },
    h('h2', {}, title),
    h('p', {}, error.message),
    error.login ? h('p', {}, h('a', { href: error.login }, 'Log in')) : null,
    field('Access token', input, 'Ask the operator of this node. Deleted when this tab closes.'),
    h('div', { class: 'actions' }, h('button', { type: 'submit', class: 'primary' }, 'Use token')));
}

/** Sentence for a caller whose roles do not permit a view, with a link to a view that they permit. */
function noAccess(reason) {
  const roles = caller.roles().join(', ') || 'none';
  const [other] = permittedViews();
  return h('div', { class: 'access' },
    h('h2', {}, 'Your roles do not permit this view'),
    h('p', {}, `${reason} Your roles: ${roles}. Ask an administrator of this node for another role.`),
    other
      ? h('p', {}, h('a', { href: router.to(other[0] ? [other[0]] : []) }, `Go to ${other[1]}`))
      : h('p', {}, 'Your roles permit programs to use the API. This page has no view for them.'));
}

/** Returns the route. Replaces another name of it in the address. */
function resolveAlias() {
  const { segments: [first, ...rest], query } = router.current();
  if (Object.hasOwn(ALIASES, first ?? '')) router.go(router.to([ALIASES[first], ...rest], Object.fromEntries(query)), true);
  return router.current();
}

async function show() {
  const number = (currentView += 1);
  for (const loop of loops) loop.stop();
  loops = [];
  const { segments } = resolveAlias();
  renderBar();
  const view = NAVIGATION.find(([segment]) => segment === (segments[0] ?? ''));
  if (view && !caller.can(view[2])) {
    const [first] = permittedViews();
    if (!segments.length && first) {
      router.go(router.to([first[0]]), true);
      await show();
      return;
    }
    const page = createPage(number);
    page.title(view[1]);
    page.render(noAccess(`The view requires the right “${view[2]}”.`));
    return;
  }
  const name = VIEWS[segments.length > 1 ? `${segments[0]}/` : (segments[0] ?? '')];
  const page = createPage(number);
  if (!name) {
    page.title('Page not found');
    page.render(h('p', {}, h('a', { href: '#/' }, 'Go to overview')));
    return;
  }
  try {
    const { open } = await import(`/ui/views/${name}.js`);
    if (number === currentView) await open(page);
  } catch (error) {
    page.fail(error);
  }
}

/** Ends an open dialog, opens the view of the new route and moves the focus to its heading. */
async function navigate() {
  dismissDialog();
  await show();
  main.querySelector('h1')?.focus({ preventScroll: true });
  window.scrollTo(0, 0);
}

function applyTheme() {
  const theme = settings.theme.get();
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

settings.onChange((key) => {
  if (key === 'theme') applyTheme();
  renderBar();
  // The lists of a context grant roles for its tenant.
  if (key === 'token' || key === 'tenant') start();
});
document.getElementById('skip').addEventListener('click', (event) => {
  event.preventDefault();
  main.focus();
});
window.addEventListener('hashchange', navigate);

/** Reads who the caller is, and shows the view of the route. */
async function start() {
  await caller.load();
  await show();
}

applyTheme();
start();
