// Creates elements and updates the page in place, so that focus, scroll position and input survive a refresh. Data is inserted
// only as text or as an attribute value, never as markup.

const SVG = 'http://www.w3.org/2000/svg';
const handlers = new WeakMap();

/** Creates an element: `h('a', { href }, 'text')`. `svg:path` creates an SVG element. `on` contains event listeners. */
export function h(name, attributes, ...children) {
  const element = name.startsWith('svg:')
    ? document.createElementNS(SVG, name.slice(4))
    : document.createElement(name);
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key === 'on') listen(element, value);
    else if (key === 'value' && 'value' in element) element.value = value;
    else if (key === 'checked') element.checked = true;
    else element.setAttribute(key, value === true ? '' : String(value));
  }
  append(element, children);
  // A select accepts a value only after its options exist.
  if (name === 'select' && attributes?.value !== undefined) element.value = attributes.value;
  return element;
}

/** Returns a fragment with several nodes. */
export function fragment(...children) {
  const nodes = document.createDocumentFragment();
  append(nodes, children);
  return nodes;
}

function append(parent, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    parent.append(child instanceof Node ? child : String(child));
  }
}

function listen(element, listeners) {
  const registered = handlers.get(element) ?? {};
  for (const type of Object.keys(listeners)) {
    if (!(type in registered)) element.addEventListener(type, (event) => handlers.get(element)[type]?.(event));
  }
  handlers.set(element, { ...Object.fromEntries(Object.keys(registered).map((type) => [type, undefined])), ...listeners });
}

/** Updates the children of `host` to match the children of `target`. */
export function patch(host, target) {
  const keyed = new Map();
  for (const child of host.children) if (child.dataset.key) keyed.set(child.dataset.key, child);
  const children = [...target.childNodes];
  const keys = new Set(children.map((next) => next.dataset?.key));
  // Obsolete nodes are removed first, because moving a node would remove the focus from it.
  for (const [key, child] of keyed) if (!keys.has(key)) child.remove();
  let position = host.firstChild;
  for (const next of children) {
    const key = next.dataset?.key;
    const existing = key ? keyed.get(key) : undefined;
    if (existing && isSameType(existing, next)) {
      if (existing === position) position = position.nextSibling;
      else host.insertBefore(existing, position);
      update(existing, next);
    } else if (position && !key && !position.dataset?.key && isSameType(position, next)) {
      const old = position;
      position = position.nextSibling;
      update(old, next);
    } else {
      host.insertBefore(next, position);
    }
  }
  while (position) {
    const obsolete = position;
    position = position.nextSibling;
    obsolete.remove();
  }
}

function isSameType(a, b) {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName && a.type === b.type;
}

/** Updates a node in place. Elements with the same `data-cache-key` retain their children. */
function update(old, next) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== next.data) old.data = next.data;
    return;
  }
  const isCached = old.dataset.cacheKey !== undefined && old.dataset.cacheKey === next.dataset.cacheKey && old.hasChildNodes();
  for (const { name } of [...old.attributes]) {
    // The user controls whether a disclosure is open.
    if (!next.hasAttribute(name) && !(name === 'open' && old.nodeName === 'DETAILS')) old.removeAttribute(name);
  }
  for (const { name, value } of next.attributes) {
    // The content security policy forbids style attributes, not style properties.
    if (name === 'style') old.style.cssText = next.style.cssText;
    else if (old.getAttribute(name) !== value && !(name === 'open' && old.nodeName === 'DETAILS')) old.setAttribute(name, value);
  }
  const listeners = handlers.get(next);
  if (listeners || handlers.has(old)) listen(old, listeners ?? {});
  if (!isCached) patch(old, next);
}
