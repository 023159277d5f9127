import assert from "node:assert/strict";
import test from "node:test";
import { RunStore } from "../../web/run_store.mjs";

const step = (index) => ({ type: "step", run: "a", index, step: index + 1, total: 50, loss: 1, lr: 1, seconds: 1, peak_gib: 0 });

/** A server whose log holds `length` events and that remembers what was asked. */
function server(length, lost = []) {
  const asked = [];
  const log = { length };
  const fetchEvents = async (id, after) => {
    asked.push(after);
    const indices = Array.from({ length: log.length }, (_, i) => i).filter((i) => i > after && !lost.includes(i));
    return { events: indices.map(step), folder: `video_trainer/${id}` };
  };
  return { asked, log, fetchEvents };
}

test("a run seen for the first time is read from the log", async () => {
  const { fetchEvents } = server(5);
  const store = new RunStore(fetchEvents, () => {});
  const run = store.get("a");
  await store.catchUp("a");
  assert.deepEqual(run.steps, [1, 2, 3, 4, 5]);
  assert.equal(run.folder, "video_trainer/a");
});

test("events in order need no further question", async () => {
  const { asked, log, fetchEvents } = server(1);
  const store = new RunStore(fetchEvents, () => {});
  store.get("a");
  await store.catchUp("a");
  const before = asked.length;
  for (log.length = 2; log.length <= 20; log.length += 1) store.receive(step(log.length - 1));
  assert.equal(asked.length, before);
  assert.equal(store.get("a").lastIndex, 19);
});

test("a gap is filled from the log, and nothing is lost or doubled", async () => {
  const { log, fetchEvents } = server(3);
  const store = new RunStore(fetchEvents, () => {});
  const run = store.get("a");
  await store.catchUp("a");
  log.length = 10;
  store.receive(step(8));
  store.receive(step(9));
  await store.catchUp("a");
  assert.deepEqual(run.steps, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
});

test("a line that the log has lost for good does not hold up what follows", async () => {
  const { log, fetchEvents } = server(3, [3]);
  const store = new RunStore(fetchEvents, () => {});
  const run = store.get("a");
  await store.catchUp("a");
  log.length = 5;
  store.receive(step(4));
  await store.catchUp("a");
  assert.deepEqual(run.steps, [1, 2, 3, 5]);
});

test("events that come while the log is being read are kept", async () => {
  const { log, fetchEvents } = server(2);
  let open;
  const gate = new Promise((resolve) => (open = resolve));
  const store = new RunStore(async (id, after) => {
    const answer = await fetchEvents(id, after);
    await gate;
    return answer;
  }, () => {});
  const run = store.get("a");
  log.length = 4;
  store.receive(step(2));
  store.receive(step(3));
  open();
  await store.catchUp("a");
  assert.deepEqual(run.steps, [1, 2, 3, 4]);
});

test("a run whose folder is gone is marked", async () => {
  const store = new RunStore(async () => null, () => {});
  const run = store.get("a");
  await store.catchUp("a");
  assert.equal(run.missing, true);
});
