// Which node shows which run: remembered in the node's properties, so that it is saved with the workflow.

import { RUN_PROPERTY, TRAIN_NODE, findNode, nodeType, trainNodes } from "./node_lookup.mjs";

/** `rootGraph()` gives the open graph, `fetchActive()` what trains now, `onBound(node)` hears of changes. */
export class RunBindings {
  constructor({ rootGraph, fetchActive, onBound }) {
    Object.assign(this, { rootGraph, fetchActive, onBound });
    this.known = new Map();
    this.origins = new Map();
  }

  /** Ties a run to the node that trains it, if the graph that was queued is the one that is open. */
  async bind(executionId, run, prompt) {
    const origin = (await this.originOf(prompt)) || this.openId();
    this.known.set(`${origin} ${executionId}`, run);
    if (origin !== this.openId()) return;
    const node = findNode(this.rootGraph(), executionId);
    if (!node || nodeType(node) !== TRAIN_NODE || node.properties[RUN_PROPERTY] === run) return;
    node.properties[RUN_PROPERTY] = run;
    this.onBound(node);
  }

  /** For a graph just opened: nodes whose run began while it was closed, or whose property an undo took back. */
  rebind() {
    for (const { node, id } of trainNodes(this.rootGraph())) {
      const run = this.known.get(`${this.openId()} ${id}`);
      if (run) node.properties[RUN_PROPERTY] = run;
    }
  }

  openId() {
    return this.rootGraph()?.id ?? "";
  }

  /** Id of the graph that a running prompt was queued from; "" when the server does not tell. */
  originOf(prompt) {
    if (!prompt) return "";
    if (!this.origins.has(prompt)) this.origins.set(prompt, this.findOrigin(prompt).catch(() => ""));
    return this.origins.get(prompt);
  }

  async findOrigin(prompt) {
    const active = await this.fetchActive();
    return (active.prompt === prompt && active.workflow) || "";
  }
}

/** The run that a node remembers, or undefined. */
export function runOf(node) {
  return node.properties?.[RUN_PROPERTY];
}
