// Deploys definitions: files or text, the diagnostics or the plan of the node, and the difference to the active definitions.

import { fragment, h, patch } from '../dom.js';
import * as api from '../api.js';
import { Problem } from '../api.js';
import * as caller from '../caller.js';
import * as settings from '../settings.js';
import * as router from '../router.js';
import { button, field, section, table } from '../components.js';
import { diff } from '../diff.js';
import { errorContent, openDialog } from '../dialog.js';

/** Suffixes of the files that a node accepts. */
const SUFFIXES = ['.saga.yaml', '.schedule.yaml', '.saga.wasm'];
const CHANGES = ['added', 'changed', 'retired', 'unchanged'];
const SIGNS = { '+': 'added', '-': 'removed' };

export function open(page) {
  page.title('Deploy');
  if (!caller.can('admin')) {
    page.render(h('p', { class: 'empty' }, 'A deployment requires the right “admin”. Ask an administrator of this node.'));
    return;
  }
  /** Files by name: `{ name, text }` or `{ name, base64 }`. */
  const files = new Map();
  const result = h('div', { 'data-key': 'result' });
  const list = h('div', { 'data-key': 'files' });
  const owner = ownerField(() => void check());
  const keep = h('input', { type: 'checkbox', checked: true, on: { change: () => void check() } });
  const downgrade = h('input', { type: 'checkbox', on: { change: () => void check() } });
  const name = h('input', { type: 'text', name: 'name', autocomplete: 'off', placeholder: 'order.saga.yaml' });
  const text = h('textarea', { name: 'text', rows: '12', spellcheck: 'false', class: 'code' });
  let checks = 0;

  page.render(
    section('Files', {},
      owner.element,
      dropZone(addFiles),
      h('form', { class: 'paste', on: { submit: addText } },
        field('File name', name, `Ends with ${SUFFIXES.slice(0, 2).join(' or ')}.`),
        field('Text', text),
        h('div', { class: 'actions' }, h('button', { type: 'submit' }, 'Add text'))),
      h('label', { class: 'check' }, keep, h('span', {}, 'Keep the other active definitions')),
      h('label', { class: 'check' }, downgrade, h('span', {}, 'Accept a lower version than the active one')),
      list),
    result,
  );
  renderFiles();

  async function addFiles(chosen) {
    for (const file of chosen) files.set(file.name, await read(file));
    renderFiles();
    await check();
  }

  async function addText(event) {
    event.preventDefault();
    const id = name.value.trim() || suggestedName(text.value);
    files.set(id, { name: id, text: text.value });
    renderFiles();
    await check();
  }

  function renderFiles() {
    const columns = [
      { title: 'File', head: true, render: (file) => file.name },
      { title: 'Lines', number: true, render: (file) => (file.text === undefined ? '–' : file.text.split('\n').length) },
      { title: '', class: 'row-actions', render: (file) => h('div', { class: 'buttons' }, file.text !== undefined && button('Edit', () => edit(file), { label: `Edit ${file.name}` }), button('Remove', () => remove(file), { label: `Remove ${file.name}` })) },
    ];
    patch(list, fragment(table({ caption: 'Files to deploy', columns, rows: [...files.values()], key: (file) => file.name, empty: 'No files yet.' })));
  }

  function edit(file, line) {
    name.value = file.name;
    text.value = file.text;
    text.focus();
    if (!line) return;
    const start = file.text.split('\n').slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0);
    const length = file.text.slice(start).indexOf('\n');
    text.setSelectionRange(start, length < 0 ? file.text.length : start + length);
  }

  function remove(file) {
    files.delete(file.name);
    renderFiles();
    void check();
  }

  const send = (dryRun) => api.post(owner.path(), { user: caller.user() || undefined, files: [...files.values()] }, {
    query: { dry_run: dryRun, keep_others: keep.checked, allow_downgrade: downgrade.checked },
  });

  /** Requests the plan. The response to an earlier request has no effect. */
  async function check() {
    const number = (checks += 1);
    if (!files.size) {
      patch(result, fragment());
      return;
    }
    try {
      const plan = await send(true);
      const sources = await activeSources(plan);
      if (number === checks) patch(result, fragment(planView(plan, sources)));
    } catch (error) {
      if (number === checks) patch(result, fragment(section('Diagnostics', {}, diagnostics(error))));
    }
  }

  function diagnostics(error) {
    if (!(error instanceof Problem) || !error.errors.length) return h('div', { class: 'error-box', role: 'alert' }, errorContent(error));
    const items = error.errors.map(({ pointer, detail }) => {
      const [, id, line] = /^(.*?):(\d+):\d+ /.exec(pointer) ?? [];
      const file = files.get(id);
      const at = Number(line);
      const quoted = at > 0 ? file?.text?.split('\n')[at - 1] : undefined;
      return h('li', {},
        h('p', {}, detail),
        quoted === undefined ? null : h('pre', { class: 'quote' }, `${line} | ${quoted}`),
        quoted === undefined ? null : button('Go to line', () => edit(file, at), { label: `Go to line ${line} of ${id}` }));
    });
    return [h('p', { role: 'alert' }, h('strong', {}, `${error.title}. `), error.message), h('ol', { class: 'diagnostics' }, items)];
  }

  function planView(plan, sources) {
    const rows = CHANGES.flatMap((change) => plan[change].map((item) => ({ change, ...item })));
    rows.push(...(plan.schedules ?? []).map((item) => ({ ...item, saga: `schedule ${item.name}` })));
    const version = (item) => (item.from_version ? `${item.from_version} → ${item.version}` : (item.version ?? ''));
    const columns = [
      { title: 'Change', head: true, render: (item) => item.change },
      { title: 'Definition', render: (item) => item.saga },
      { title: 'Version', render: version },
      { title: 'File', render: (item) => item.file },
    ];
    const changes = rows.some((item) => item.change !== 'unchanged');
    const deploy = button('Deploy', () => confirm(plan), { variant: 'primary', disabled: !changes });
    const differences = plan.changed.map((item) => difference(item, sources.get(item.saga), files.get(item.file)?.text));
    return [
      section('Plan', { aside: changes ? null : 'no changes' },
        table({ caption: 'Plan', columns, rows, key: (item) => `${item.change} ${item.saga} ${item.tenant ?? ''}` }),
        plan.warnings.length ? h('ul', { class: 'warnings' }, plan.warnings.map((warning) => h('li', {}, warning))) : null,
        h('div', { class: 'actions' }, deploy)),
      ...differences,
    ];
  }

  function confirm(plan) {
    const sagas = (change) => plan[change].map((item) => item.saga).join(', ');
    const parts = [['added', 'Starts'], ['changed', 'Replaces'], ['retired', 'Retires']].filter(([change]) => plan[change].length).map(([change, verb]) => `${verb} ${sagas(change)}.`);
    openDialog({
      title: 'Deploy definitions',
      text: [...parts, 'Running instances keep their definition.'].join(' '),
      action: 'Deploy',
      danger: plan.retired.length > 0,
      async run() {
        const done = await send(false);
        files.clear();
        router.go(router.to(['definitions']));
        const failures = done.warnings.filter((warning) => !plan.warnings.includes(warning));
        return [`Deployment ${done.number}${done.context ? ` of the context ${done.context}` : ''} is active.`, ...failures].join(' ');
      },
    });
  }
}

/** Choice between the shared definitions and those of the context of the selected tenant. The default tenant has no context. */
function ownerField(changed) {
  const tenant = settings.tenant.get();
  const select = h('select', { name: 'owner', on: { change: changed } },
    caller.seesNode() || !tenant ? h('option', { value: '' }, 'Shared by all tenants') : null,
    tenant ? h('option', { value: tenant }, `Context ${tenant}`) : null);
  return {
    element: field('Owner', select),
    path: () => (select.value ? api.path('v1', 'contexts', select.value, 'definitions') : '/admin/deploy'),
  };
}

/** Area that receives dropped files, with a button that selects files. */
function dropZone(add) {
  const input = h('input', { type: 'file', multiple: true, accept: SUFFIXES.map((suffix) => suffix.slice(suffix.lastIndexOf('.'))).join(','), on: { change: (event) => void add(event.target.files) } });
  const over = (active) => (event) => {
    event.preventDefault();
    event.currentTarget.classList.toggle('over', active);
  };
  const drop = (event) => {
    over(false)(event);
    void add(event.dataTransfer.files);
  };
  return h('div', { class: 'drop', on: { dragover: over(true), dragleave: over(false), drop } }, h('label', {}, h('span', {}, 'Drop definition files here, or choose files'), input));
}

/** Returns a file as the API accepts it. */
async function read(file) {
  if (!file.name.endsWith('.wasm')) return { name: file.name, text: await file.text() };
  const bytes = new Uint8Array(await file.arrayBuffer());
  let binary = '';
  for (let at = 0; at < bytes.length; at += 8192) binary += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return { name: file.name, base64: btoa(binary) };
}

/** Returns the file name of a pasted definition. */
function suggestedName(text) {
  const saga = /^saga:[ \t]*["']?([^"'\s#]+)/m.exec(text)?.[1];
  return saga ? `${saga}.saga.yaml` : 'pasted.saga.yaml';
}

/** Returns the source of the active version of each definition that changes. */
async function activeSources(plan) {
  const load = async ({ saga, from_hash: hash }) => {
    const { versions } = await api.get(api.path('v1', 'definitions', saga));
    return [saga, versions.find((version) => version.hash === hash && version.source)?.source];
  };
  return new Map(await Promise.all(plan.changed.map(load)));
}

function difference({ saga, file }, before, after) {
  const title = `Difference of ${saga}`;
  if (before === undefined || after === undefined) return section(title, {}, h('p', { class: 'empty' }, `${file}: a WebAssembly module has no text.`));
  const row = ({ kind, number, text }) => h('div', { class: `line ${SIGNS[kind] ?? ''}` },
    h('span', { class: 'line-number', 'aria-hidden': 'true' }, number ?? ''),
    SIGNS[kind] ? h('span', { class: 'visually-hidden' }, `${SIGNS[kind]}: `) : null,
    h('span', {}, `${kind} ${text}`));
  return section(title, { id: `difference-${saga}` }, h('div', { class: 'diff', tabindex: '0', role: 'region', 'aria-label': title }, diff(before, after).map(row)));
}
