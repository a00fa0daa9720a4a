// Brings a picture that the node drew into the page: known elements and attributes only, without its own style, so that it
// follows the look of the page.

import { h } from './dom.js';

const ELEMENTS = new Set(['svg', 'g', 'path', 'rect', 'text', 'title']);
const ATTRIBUTES = new Set(['width', 'height', 'viewBox', 'transform', 'd', 'x', 'y', 'rx', 'text-anchor']);

/** The picture as an element; `label` is what it is for those who do not see it. */
export function drawn(text, label) {
  const plain = text.replace(/<style>[\s\S]*?<\/style>/g, '');
  const root = new DOMParser().parseFromString(plain, 'image/svg+xml').documentElement;
  if (root.nodeName !== 'svg') return h('p', { class: 'empty' }, 'The picture cannot be read.');
  const picture = copied(root);
  picture.setAttribute('class', 'graph');
  picture.setAttribute('role', 'img');
  picture.setAttribute('aria-label', label);
  // Small pictures are not blown up.
  picture.style.maxWidth = `${root.getAttribute('width')}px`;
  picture.removeAttribute('width');
  picture.removeAttribute('height');
  return picture;
}

function copied(node) {
  const copy = h(`svg:${node.nodeName}`, {});
  for (const { name, value } of node.attributes) {
    if (ATTRIBUTES.has(name)) copy.setAttribute(name, value);
    if (name === 'class') copy.setAttribute('class', value.split(' ').map((word) => `g-${word}`).join(' '));
  }
  for (const child of node.childNodes) {
    if (child.nodeType === Node.TEXT_NODE) copy.append(child.data);
    else if (ELEMENTS.has(child.nodeName)) copy.append(copied(child));
  }
  return copy;
}
