// Embeds a graph that the node rendered as SVG. Copies only known elements and attributes and omits its style sheet, so that the
// graph uses the theme of the page.

import { h } from './dom.js';

const ELEMENTS = new Set(['svg', 'g', 'path', 'rect', 'text', 'title']);
const ATTRIBUTES = new Set(['width', 'height', 'viewBox', 'transform', 'd', 'x', 'y', 'rx', 'text-anchor']);

/** Returns the graph as an element. `label` is its accessible name. */
export function renderGraph(text, label) {
  const plain = text.replace(/<style>[\s\S]*?<\/style>/g, '');
  const root = new DOMParser().parseFromString(plain, 'image/svg+xml').documentElement;
  if (root.nodeName !== 'svg') return h('p', { class: 'empty' }, 'The graph is not valid SVG.');
  const graph = sanitize(root);
  graph.setAttribute('class', 'graph');
  graph.setAttribute('role', 'img');
  graph.setAttribute('aria-label', label);
  // A small graph is not enlarged.
  graph.style.maxWidth = `${root.getAttribute('width')}px`;
  graph.removeAttribute('width');
  graph.removeAttribute('height');
  return graph;
}

/** Copies the allowed elements and attributes. Class names get the prefix `g-`. */
function sanitize(node) {
  const copy = h(`svg:${node.nodeName}`, {});
  for (const { name, value } of node.attributes) {
    if (ATTRIBUTES.has(name)) copy.setAttribute(name, value);
    if (name === 'class') copy.setAttribute('class', value.split(' ').map((part) => `g-${part}`).join(' '));
  }
  for (const child of node.childNodes) {
    if (child.nodeType === Node.TEXT_NODE) copy.append(child.data);
    else if (ELEMENTS.has(child.nodeName)) copy.append(sanitize(child));
  }
  return copy;
}
