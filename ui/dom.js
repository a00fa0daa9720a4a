// Makes elements and brings what stands on the page to what should stand there, in place: the focus, the scrolling and what
// somebody is typing are kept. Data only ever becomes text or an attribute, never markup.

const SVG = 'http://www.w3.org/2000/svg';
const handlers = new WeakMap();

/** An element: `h('a', { href }, 'text')`; `svg:path` is one of SVG. Listeners stand under `on`. */
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
  // What is chosen can only be set once there is something to choose from.
  if (name === 'select' && attributes?.value !== undefined) element.value = attributes.value;
  return element;
}

/** Several nodes in the place of one. */
export function all(...children) {
  const fragment = document.createDocumentFragment();
  append(fragment, children);
  return fragment;
}

function append(parent, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    parent.append(child instanceof Node ? child : String(child));
  }
}

function listen(element, listeners) {
  const known = handlers.get(element) ?? {};
  for (const kind of Object.keys(listeners)) {
    if (!(kind in known)) element.addEventListener(kind, (event) => handlers.get(element)[kind]?.(event));
  }
  handlers.set(element, { ...Object.fromEntries(Object.keys(known).map((kind) => [kind, undefined])), ...listeners });
}

/** Brings the children of `host` to those of `wanted`. */
export function patch(host, wanted) {
  const held = new Map();
  for (const child of host.children) if (child.dataset.key) held.set(child.dataset.key, child);
  const children = [...wanted.childNodes];
  const keys = new Set(children.map((next) => next.dataset?.key));
  // What is gone goes first: moving what stays would take the focus from it.
  for (const [key, child] of held) if (!keys.has(key)) child.remove();
  let here = host.firstChild;
  for (const next of children) {
    const key = next.dataset?.key;
    const before = key ? held.get(key) : undefined;
    if (before && alike(before, next)) {
      if (before === here) here = here.nextSibling;
      else host.insertBefore(before, here);
      settle(before, next);
    } else if (here && !key && !here.dataset?.key && alike(here, next)) {
      const old = here;
      here = here.nextSibling;
      settle(old, next);
    } else {
      host.insertBefore(next, here);
    }
  }
  while (here) {
    const gone = here;
    here = here.nextSibling;
    gone.remove();
  }
}

function alike(a, b) {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName && a.type === b.type;
}

function settle(old, next) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== next.data) old.data = next.data;
    return;
  }
  const isKept = old.dataset.keep !== undefined && old.dataset.keep === next.dataset.keep && old.hasChildNodes();
  for (const { name } of [...old.attributes]) {
    // Who opened something keeps it open.
    if (!next.hasAttribute(name) && !(name === 'open' && old.nodeName === 'DETAILS')) old.removeAttribute(name);
  }
  for (const { name, value } of next.attributes) {
    // The policy of the page forbids styles as text, not as properties.
    if (name === 'style') old.style.cssText = next.style.cssText;
    else if (old.getAttribute(name) !== value && !(name === 'open' && old.nodeName === 'DETAILS')) old.setAttribute(name, value);
  }
  const listeners = handlers.get(next);
  if (listeners || handlers.has(old)) listen(old, listeners ?? {});
  if (!isKept) patch(old, next);
}
