// Which graph a prompt was queued from: nodes of graphs in other tabs have the same ids, and only one graph is open.

import { findNode } from "./node_lookup.mjs";

/** `rootGraph()` gives the open graph, `fetchOrigin(prompt)` the id of the graph that a prompt was queued from, or "". */
export class PromptOrigins {
  constructor({ rootGraph, fetchOrigin }) {
    Object.assign(this, { rootGraph, fetchOrigin });
    this.asked = new Map();
  }

  openId() {
    return this.rootGraph()?.id ?? "";
  }

  /** Promise of the id of the graph that a prompt was queued from; "" where that is not known. */
  of(prompt) {
    if (!prompt) return Promise.resolve("");
    if (!this.asked.has(prompt)) {
      const answer = this.fetchOrigin(prompt).catch(() => {
        this.asked.delete(prompt); // asked again next time
        return "";
      });
      this.asked.set(prompt, answer);
    }
    return this.asked.get(prompt);
  }

  /** Promise of the node that a prompt means by an execution id; null unless the open graph is the one that was queued. */
  async nodeOf(executionId, prompt) {
    const origin = await this.of(prompt);
    return origin && origin === this.openId() ? findNode(this.rootGraph(), executionId) : null;
  }
}
