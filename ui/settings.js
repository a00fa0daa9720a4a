// User settings: tenant, user name, roles, theme. Stored in this browser; the token is deleted when the tab closes.

const listeners = new Set();
const local = storage('localStorage');
const session = storage('sessionStorage');

/** Returns a browser storage. If the browser denies access, the settings last until the page closes. */
function storage(name) {
  try {
    window[name].getItem('orlog');
    return window[name];
  } catch {
    const entries = new Map();
    return {
      getItem: (key) => entries.get(key) ?? null,
      setItem: (key, value) => entries.set(key, value),
      removeItem: (key) => entries.delete(key),
    };
  }
}

function setting(store, key) {
  const name = `orlog.${key}`;
  return {
    get: () => store.getItem(name) ?? '',
    set(text) {
      if (text) store.setItem(name, text);
      else store.removeItem(name);
      for (const listener of listeners) listener(key);
    },
  };
}

export const tenant = setting(local, 'tenant');
export const user = setting(local, 'user');
export const roles = setting(local, 'roles');
export const theme = setting(local, 'theme');
export const token = setting(session, 'token');
const recent = setting(local, 'tenants');
takeToken();
addEventListener('hashchange', takeToken);

/** Moves the token from the link that `orlog dev` prints (`#token=…`) out of the address, before it is displayed or shared. */
function takeToken() {
  const [, found] = location.hash.match(/^#token=([0-9a-f]+)$/) ?? [];
  if (!found) return;
  token.set(found);
  history.replaceState(null, '', location.pathname + location.search);
}

/** Returns the recently selected tenants, most recent first. */
export function tenants() {
  return recent.get().split('\n').filter(Boolean);
}

export function selectTenant(name) {
  if (name) recent.set([name, ...tenants().filter((other) => other !== name)].slice(0, 20).join('\n'));
  tenant.set(name);
}

export function roleList() {
  return roles.get().split(',').map((role) => role.trim()).filter(Boolean);
}

/** Registers a listener that is called with the key of each changed setting. */
export function onChange(listener) {
  listeners.add(listener);
}
