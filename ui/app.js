// The page around the views: where to go, whose data, how it looks; and one view at a time.

import { h, patch, all } from './dom.js';
import { button, field, icon, say } from './components.js';
import { explained, ask } from './dialog.js';
import { Problem } from './api.js';
import * as live from './poll.js';
import * as router from './router.js';
import * as settings from './settings.js';

/** The listing of views/ is the list of what there is to see. */
const VIEWS = {
  '': 'overview',
  instances: 'instances',
  'instances/': 'instance',
  tasks: 'tasks',
  'tasks/': 'task',
  letters: 'letters',
  timers: 'timers',
  definitions: 'definitions',
  'definitions/': 'definition',
  node: 'node',
};
const PLACES = [
  ['', 'Overview'],
  ['instances', 'Instances'],
  ['tasks', 'Tasks'],
  ['letters', 'Dead letters'],
  ['timers', 'Timers'],
  ['definitions', 'Definitions'],
  ['node', 'Node'],
];
const THEMES = { '': ['auto', 'as the system'], light: ['sun', 'light'], dark: ['moon', 'dark'] };

const main = document.getElementById('main');
let loops = [];
let shown = 0;

function drawBar() {
  const [first] = router.here().parts;
  const tenant = settings.tenant.get();
  const [drawing, look] = THEMES[settings.theme.get()] ?? THEMES[''];
  const links = PLACES.map(([part, title]) => h('a', {
    href: router.to(part ? [part] : []),
    'aria-current': (first ?? '') === part ? 'page' : null,
  }, title));
  patch(document.getElementById('bar'), all(
    h('a', { class: 'brand', href: '#/', 'aria-label': 'Orlog, overview' }, h('img', { src: '/ui/icon.svg', alt: '', width: '26', height: '26' }), h('span', {}, 'Orlog')),
    h('nav', { 'aria-label': 'Main' }, links),
    h('div', { class: 'tools' },
      h('form', { role: 'search', class: 'search', on: { submit: search } },
        icon('search'),
        h('input', { type: 'search', name: 'id', 'aria-label': 'Find instances by correlation id', placeholder: 'Find by id', autocomplete: 'off' })),
      button([h('span', { class: 'unseen' }, 'Tenant: '), h('span', { class: 'tenant' }, tenant || 'default tenant')], chooseTenant),
      button([icon('person'), h('span', { class: 'unseen' }, 'You: '), h('span', { class: 'wide' }, settings.person.get() || 'you')], introduce),
      button([icon(drawing), h('span', { class: 'unseen' }, `Colours: ${look}`)], turnTheme),
      h('button', { type: 'button', class: 'live', 'aria-pressed': String(live.isPaused()), on: { click: turnLive } },
        h('span', { class: 'dot', 'aria-hidden': 'true' }), live.isPaused() ? 'Paused' : 'Live')),
  ));
}

function search(event) {
  event.preventDefault();
  const id = new FormData(event.target).get('id').trim();
  if (id) router.go(router.to(['instances'], { prefix: id }));
}

function turnLive() {
  live.pause(!live.isPaused());
  drawBar();
  say(live.isPaused() ? 'The page stands still.' : 'The page follows what happens.');
}

function turnTheme() {
  const order = Object.keys(THEMES);
  settings.theme.set(order[(order.indexOf(settings.theme.get()) + 1) % order.length]);
  say(`Colours: ${THEMES[settings.theme.get()][1]}.`);
}

function chooseTenant() {
  ask({
    title: 'Whose data?',
    text: 'Everything shown and done is for one tenant. Empty: the default tenant.',
    fields: [{ name: 'tenant', label: 'Tenant', value: settings.tenant.get(), options: settings.tenants() }],
    action: 'Look',
    async run({ tenant }) {
      settings.choose(tenant);
      return `Tenant: ${tenant || 'the default tenant'}.`;
    },
  });
}

function introduce() {
  ask({
    title: 'Who are you?',
    text: 'Your name stands beside what you do, and your roles decide which tasks you may take. Behind a gateway it checks them.',
    fields: [
      { name: 'person', label: 'Your name', value: settings.person.get() },
      { name: 'roles', label: 'Your roles', value: settings.roles.get(), hint: 'Separated by commas.' },
      { name: 'token', label: 'Access token', value: settings.token.get(), hint: 'Only where the node asks for one. Forgotten when this tab is closed.' },
    ],
    action: 'Keep',
    async run({ person, roles, token }) {
      settings.person.set(person);
      settings.roles.set(roles);
      settings.token.set(token);
      return 'Kept in this browser.';
    },
  });
}

/** What a view is given. */
function page(number) {
  const heading = h('h1', { tabindex: '-1' });
  const beside = h('div', { class: 'beside' });
  const trouble = h('div', { class: 'trouble', role: 'alert' });
  const body = h('div', { class: 'body' }, h('p', { class: 'empty', 'data-key': 'loading' }, 'Loading …'));
  main.replaceChildren(h('div', { class: 'head' }, heading, beside), trouble, body);
  const isHere = () => number === shown;
  const fail = (error) => {
    if (!isHere()) return;
    if (error instanceof Problem && error.isAccess) patch(trouble, all(refused(error)));
    else if (!(error instanceof Problem)) patch(trouble, all(explained(error)));
    else patch(trouble, all(explained(error), error.status === 0 ? h('p', {}, 'The page tries again by itself.') : null));
    if (body.firstElementChild?.dataset.key === 'loading') body.replaceChildren();
    console.info(error);
  };
  return {
    ...router.here(),
    title(text, ...more) {
      if (!isHere()) return;
      document.title = `${text} · Orlog`;
      patch(heading, all(text));
      patch(beside, all(more));
    },
    draw(...content) {
      if (!isHere()) return;
      trouble.replaceChildren();
      patch(body, all(content));
    },
    fail,
    /** Follows: calls `look` now and again and again; returns what makes it look at once. */
    follow(look, every) {
      const loop = live.watch(look, every, fail);
      if (isHere()) loops.push(loop);
      else loop.stop();
      return () => loop.now();
    },
  };
}

/** Who may not is told so kindly, and what helps. */
function refused(error) {
  const input = h('input', { type: 'password', name: 'token', autocomplete: 'off' });
  const submit = (event) => {
    event.preventDefault();
    settings.token.set(input.value.trim());
  };
  const title = error.status === 401 ? 'This node wants to know who you are.' : 'You may not see this.';
  return h('form', { class: 'access', on: { submit } },
    h('h2', {}, title),
    h('p', {}, error.message),
    field('Access token', input, 'From whoever runs this node. It is kept until this tab is closed.'),
    h('div', { class: 'actions' }, h('button', { type: 'submit', class: 'main' }, 'Use this token')));
}

async function show() {
  const number = (shown += 1);
  for (const loop of loops) loop.stop();
  loops = [];
  drawBar();
  const { parts } = router.here();
  const name = VIEWS[parts.length > 1 ? `${parts[0]}/` : (parts[0] ?? '')];
  const view = page(number);
  if (!name) {
    view.title('There is nothing here');
    view.draw(h('p', {}, h('a', { href: '#/' }, 'To the overview')));
    return;
  }
  try {
    const { open } = await import(`/ui/views/${name}.js`);
    if (number === shown) await open(view);
  } catch (error) {
    view.fail(error);
  }
}

/** After a step to another place the reader begins at its heading. */
async function move() {
  await show();
  main.querySelector('h1')?.focus({ preventScroll: true });
  window.scrollTo(0, 0);
}

function applyTheme() {
  const theme = settings.theme.get();
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

settings.changed((key) => {
  if (key === 'theme') applyTheme();
  drawBar();
  if (key === 'tenant' || key === 'token') show();
});
document.getElementById('skip').addEventListener('click', (event) => {
  event.preventDefault();
  main.focus();
});
window.addEventListener('hashchange', move);
applyTheme();
show();
