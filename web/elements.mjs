// Making elements in one expression.

/** An element of this class and these properties, with children. */
export function el(tag, className = "", properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  if (className) element.className = className;
  element.append(...children);
  return element;
}

const PATHS = {
  left: "M10 3 5 8l5 5",
  right: "m6 3 5 5-5 5",
  stop: "M4 4h8v8H4z",
  save: "M8 2v8m0 0L4.8 6.8M8 10l3.2-3.2M3 13.2h10",
  edit: "m3 13 .6-2.8 7-7a1.4 1.4 0 0 1 2 0l.2.2a1.4 1.4 0 0 1 0 2l-7 7L3 13z",
  sample: "M2.5 3.5h11v9h-11zM6.8 6v4l3.4-2z",
};

/** A 16 px line icon in the text's colour. */
export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", PATHS[name]);
  svg.append(path);
  return svg;
}
