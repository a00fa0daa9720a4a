// Places are in the hash: they work on any path behind any gateway, and can be sent to a colleague.

/** `#/instances/order/o-1?x=y` as parts and query. */
export function here() {
  const [path, search] = location.hash.replace(/^#/, '').split(/\?(.*)/s);
  const parts = path.split('/').filter(Boolean).map(decode);
  return { parts, query: new URLSearchParams(search ?? '') };
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The address of a place. */
export function to(parts, query) {
  const entries = Object.entries(query ?? {}).filter(([, value]) => value);
  const search = new URLSearchParams(entries).toString();
  return `#/${parts.map(encodeURIComponent).join('/')}${search ? `?${search}` : ''}`;
}

export const instance = (saga, correlation) => to(['instances', saga, correlation]);

/** Goes there; `quietly` without a step in the history, for filters. */
export function go(address, quietly) {
  if (quietly) history.replaceState(null, '', address);
  else location.hash = address;
}
