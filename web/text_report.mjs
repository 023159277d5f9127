// What a node says when it is done, shown on the node and kept in it: lines of "name  value" as a table, others as paragraphs.

import { el } from "./elements.mjs";
import { addDisplay, removeProgressLine } from "./node_display.mjs";
import { allNodes, nodeType } from "./node_lookup.mjs";
import { NodeResults } from "./node_results.mjs";
import { themeOf } from "./theme.mjs";

const PROPERTY = "video_trainer_report"; // of the node, so that it is saved with the workflow
const KEPT = 8000; // letters
const CUT = "… Press Run to see the rest.";
const WIDTH = 520;
const LINE = 21;
const LETTERS = 62; // of a value that fit beside its name at that width
const FRAME = 46;
const ROW = /^(\S.{0,23}?)\s{2,}(\S.*)$/;

/** The lines of a report: {name, value} of a row, {text} of others, the first of which is its title. */
export function reportLines(text) {
  return text.split("\n").filter((line) => line.trim()).map((line) => {
    const row = line.match(ROW);
    return row ? { name: row[1], value: row[2] } : { text: line };
  });
}

/** Pixels that a report takes at first; longer ones are scrolled. */
export function reportHeight(lines) {
  const rows = lines.reduce((sum, line) => sum + Math.ceil(Math.max((line.value ?? line.text).length, 1) / LETTERS), 0);
  return Math.min(FRAME + LINE * rows, 420);
}

/** A report as a node keeps it: whole lines of at most `most` letters, and a word on those that are left out. */
export function keptReport(text, most = KEPT) {
  if (text.length <= most) return text;
  const kept = text.slice(0, most + 1);
  return `${kept.slice(0, Math.max(kept.lastIndexOf("\n"), 0))}\n${CUT}`.trimStart();
}

/** Of nodes whose type begins with `ours`; `host` gives onBound() and forwardWheel(event). */
export class TextReports {
  constructor(origins, ours, host) {
    this.origins = origins;
    this.host = host;
    this.shown = new Map();
    this.results = new NodeResults(origins, {
      property: PROPERTY,
      gives: (node) => String(nodeType(node)).startsWith(ours),
      kept: (text) => keptReport(text),
      show: (node, text) => this.show(node, text),
      onBound: host.onBound,
    });
  }

  /** A node finished, or its result came from ComfyUI's cache. */
  receive(executionId, texts, prompt) {
    return this.results.receive(executionId, texts.join("\n"), prompt);
  }

  /** For a graph just opened: its nodes show what they said last, at the size that they were saved with. */
  restore() {
    for (const { node } of allNodes(this.origins.rootGraph())) {
      const text = node.properties?.[PROPERTY];
      if (typeof text === "string" && text && !this.shown.has(node)) {
        const size = [...node.size];
        this.show(node, text);
        node.setSize(size);
      }
    }
    this.results.restore();
  }

  show(node, text) {
    const lines = reportLines(text);
    removeProgressLine(node);
    const element = this.shown.get(node) ?? this.add(node, reportHeight(lines));
    element.replaceChildren(...lines.map(lineElement));
    requestAnimationFrame(() => (element.dataset.theme = themeOf(element)));
  }

  /** Follows the palette. */
  refresh() {
    for (const element of this.shown.values()) element.dataset.theme = themeOf(element);
  }

  add(node, height) {
    const element = el("div", "vt-report", { tabIndex: 0 });
    element.setAttribute("role", "status");
    element.dataset.captureWheel = "true";
    this.shown.set(node, element);
    const sizes = { minHeight: Math.min(height, 120), firstWidth: WIDTH, firstHeight: height };
    addDisplay(node, "report", element, { ...sizes, onWheel: this.host.forwardWheel, onRemoved: () => this.shown.delete(node) });
    return element;
  }
}

function lineElement(line) {
  if (line.name === undefined) return el("p", "vt-report-text", { textContent: line.text });
  return el("div", "vt-report-row", {}, el("span", "vt-report-name", { textContent: line.name }), el("span", "", { textContent: line.value }));
}
