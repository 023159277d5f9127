// What nodes gave when they ran: each result comes to the node of the graph that was queued, at once or when that graph is opened.

import { allNodes } from "./node_lookup.mjs";

/** Results of one kind. A node keeps `kept(result)` as its `property`, so that it is saved with the workflow; `gives(node)` says
 * whether a node has such results, `show(node, result)` shows one, `onBound(node)` hears of each that comes to the open graph. */
export class NodeResults {
  constructor(origins, { property, gives, kept = (result) => result, show = () => {}, onBound }) {
    Object.assign(this, { origins, property, gives, kept, show, onBound });
    this.known = new Map();
    this.given = new WeakMap();
    this.turn = Promise.resolve();
  }

  /** A node finished, or its result came from ComfyUI's cache; results are given in the order that they come in. */
  receive(executionId, result, prompt) {
    this.turn = this.turn.then(() => this.deliver(executionId, result, prompt)).catch((error) => console.error(error));
    return this.turn;
  }

  async deliver(executionId, result, prompt) {
    const origin = await this.origins.of(prompt);
    if (!origin) return;
    this.known.set(`${origin} ${executionId}`, result);
    const node = await this.origins.nodeOf(executionId, prompt);
    if (this.give(node, result)) this.onBound(node);
  }

  /** For a graph just opened: its results that came while it was closed, or that an undo took back. */
  restore() {
    const open = this.origins.openId();
    for (const { node, id } of allNodes(this.origins.rootGraph())) {
      const result = this.known.get(`${open} ${id}`);
      if (result !== undefined) this.give(node, result);
    }
  }

  /** Whether the node has such results and did not have this one. */
  give(node, result) {
    if (!node || !this.gives(node)) return false;
    const kept = this.kept(result);
    if (this.given.get(node) === result && node.properties[this.property] === kept) return false;
    node.properties[this.property] = kept;
    this.given.set(node, result);
    this.show(node, result);
    return true;
  }
}
