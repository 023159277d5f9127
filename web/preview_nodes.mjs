// Every Dataset Preview node and what it shows; the preview's id is kept in the node, so that a reloaded page finds it again.

import { DatasetPreview } from "./dataset_preview.mjs";
import { addDisplay } from "./node_display.mjs";
import { PREVIEW_NODE, nodeType } from "./node_lookup.mjs";
import { NodeResults } from "./node_results.mjs";

const PROPERTY = "video_trainer_preview";
const SIZES = { minHeight: 400, firstWidth: 720, firstHeight: 640 };

/** `host` gives fetchPreview(id), saveCaption(clip, text), pictureUrl(file), onBound(), hideCoreText(node), forwardWheel(event). */
export class PreviewNodes {
  constructor(origins, host) {
    this.host = host;
    this.shown = new Map();
    this.known = new Map();
    this.results = new NodeResults(origins, {
      property: PROPERTY,
      gives: (node) => nodeType(node) === PREVIEW_NODE,
      kept: (shown) => shown.id,
      show: (node, shown) => this.shown.get(node)?.show(shown),
      onBound: host.onBound,
    });
  }

  /** Puts a preview on the node. */
  add(node) {
    this.host.hideCoreText(node);
    const preview = new DatasetPreview(this.host);
    this.shown.set(node, preview);
    const onRemoved = () => this.shown.delete(node);
    addDisplay(node, "preview", preview.element, { ...SIZES, onWheel: this.host.forwardWheel, onRemoved });
    requestAnimationFrame(() => this.shown.has(node) && this.find(node));
  }

  /** A node finished, or its result came from ComfyUI's cache. */
  receive(executionId, shown, prompt) {
    this.known.set(shown.id, shown);
    return this.results.receive(executionId, shown, prompt);
  }

  /** A line of ComfyUI's progress. */
  announce(node, text) {
    this.shown.get(node)?.announce(text);
  }

  /** Nothing runs any more, however it ended. */
  settle() {
    for (const preview of this.shown.values()) preview.announce("");
  }

  /** For a graph just opened. */
  restore() {
    this.results.restore();
    for (const node of this.shown.keys()) this.find(node);
  }

  /** Shows what the node showed last, as the server remembers it. */
  async find(node) {
    const id = node.properties?.[PROPERTY];
    const preview = this.shown.get(node);
    if (!id || preview.id === id) return preview.refresh();
    const found = this.known.get(id) ?? (await this.host.fetchPreview(id).catch(() => null));
    if (found) this.known.set(id, found);
    if (node.properties[PROPERTY] === id) preview.show(found);
  }

  /** Follows the palette. */
  refresh() {
    for (const preview of this.shown.values()) preview.refresh();
  }
}
