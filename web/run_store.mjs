// All runs the browser knows, kept complete: a gap in the live events is filled from the server's log.

import { applyEvent, createRun } from "./run_state.mjs";

const RETRY_MS = 2000;

/** Keeps runs by id. `fetchEvents(id, after)` gives {events, folder}, or null for a run without a folder. */
export class RunStore {
  constructor(fetchEvents, onChange) {
    this.fetchEvents = fetchEvents;
    this.onChange = onChange;
    this.entries = new Map();
  }

  /** The run of this id, asked from the server when it is new here. */
  get(id) {
    if (!this.entries.has(id)) {
      this.entries.set(id, { run: createRun(id), held: [], fetching: null, again: false });
      this.catchUp(id);
    }
    return this.entries.get(id).run;
  }

  /** Takes a live event; one that comes after a gap waits until the log has filled it. */
  receive(event) {
    this.get(event.run);
    const entry = this.entries.get(event.run);
    if (!entry.fetching && event.index <= entry.run.lastIndex + 1) {
      if (applyEvent(entry.run, event)) this.onChange(event.run);
      return;
    }
    entry.held.push(event);
    this.catchUp(event.run);
  }

  /** Asks for everything after the last event known; a call during a request leads to one more. */
  catchUp(id) {
    const entry = this.entries.get(id);
    if (!entry) return Promise.resolve();
    entry.again = true;
    entry.fetching ??= this.fetchAll(id, entry).finally(() => {
      entry.fetching = null;
    });
    return entry.fetching;
  }

  /** After a lost connection every run may have moved on. */
  catchUpAll() {
    return Promise.all([...this.entries.keys()].map((id) => this.catchUp(id)));
  }

  async fetchAll(id, entry) {
    while (entry.again) {
      entry.again = false;
      const held = entry.held.splice(0);
      let answer;
      try {
        answer = await this.fetchEvents(id, entry.run.lastIndex);
      } catch {
        entry.held.unshift(...held);
        setTimeout(() => this.catchUp(id), RETRY_MS);
        return;
      }
      entry.run.missing = answer === null;
      if (answer) entry.run.folder = answer.folder;
      // The log is written before an event is sent, so what it does not hold by now it never will.
      applyInOrder(entry.run, [...(answer?.events ?? []), ...held]);
      if (entry.held.length) entry.again = true;
      this.onChange(id);
    }
  }
}

function applyInOrder(run, events) {
  events.sort((a, b) => a.index - b.index);
  for (const event of events) applyEvent(run, event);
}
