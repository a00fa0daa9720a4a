// What a person has chosen: the tenant, who they are, how it looks. Kept in this browser; the token only until the tab is closed.

const listeners = new Set();
const local = store('localStorage');
const session = store('sessionStorage');

/** Storage may be forbidden; then choices last as long as the page. */
function store(name) {
  try {
    window[name].getItem('orlog');
    return window[name];
  } catch {
    const kept = new Map();
    return {
      getItem: (key) => kept.get(key) ?? null,
      setItem: (key, value) => kept.set(key, value),
      removeItem: (key) => kept.delete(key),
    };
  }
}

function value(storage, key) {
  const name = `orlog.${key}`;
  return {
    get: () => storage.getItem(name) ?? '',
    set(text) {
      if (text) storage.setItem(name, text);
      else storage.removeItem(name);
      for (const listener of listeners) listener(key);
    },
  };
}

export const tenant = value(local, 'tenant');
export const person = value(local, 'person');
export const roles = value(local, 'roles');
export const theme = value(local, 'theme');
export const token = value(session, 'token');
const recent = value(local, 'tenants');

/** The tenants that were looked at, the last first. */
export function tenants() {
  return recent.get().split('\n').filter(Boolean);
}

export function choose(name) {
  if (name) recent.set([name, ...tenants().filter((known) => known !== name)].slice(0, 20).join('\n'));
  tenant.set(name);
}

export function roleList() {
  return roles.get().split(',').map((role) => role.trim()).filter(Boolean);
}

/** Calls back with the name of whatever changes. */
export function changed(listener) {
  listeners.add(listener);
}
