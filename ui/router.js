// Routes in the URL hash. They work behind any gateway path and can be shared.

/** Returns the segments and the query of the current route, for example of `#/instances/order/o-1?x=y`. */
export function current() {
  const [path, search] = location.hash.replace(/^#/, '').split(/\?(.*)/s);
  const segments = path.split('/').filter(Boolean).map(decode);
  return { segments, query: new URLSearchParams(search ?? '') };
}

function decode(segment) {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}

/** Returns the URL of a route. */
export function to(segments, query) {
  const entries = Object.entries(query ?? {}).filter(([, value]) => value);
  const search = new URLSearchParams(entries).toString();
  return `#/${segments.map(encodeURIComponent).join('/')}${search ? `?${search}` : ''}`;
}

export const instance = (saga, correlation) => to(['instances', saga, correlation]);

/** Navigates to a URL. `replace` adds no entry to the browser history; for filters. */
export function go(url, replace) {
  if (replace) history.replaceState(null, '', url);
  else location.hash = url;
}
