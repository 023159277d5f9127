import assert from "node:assert/strict";
import test from "node:test";
import { applyEvent, createRun, phaseText, progressText } from "../../web/run_state.mjs";

const step = (index, number, loss, total = 100) => ({
  type: "step", run: "a", time: 0, index, step: number, total, loss, lr: 1e-4, grad_norm: 1, seconds: 0.5, peak_gib: 2, seconds_left: 10,
});
const fold = (...events) => {
  const run = createRun("a");
  for (const event of events) applyEvent(run, event);
  return run;
};

test("steps are kept in order and an event is counted once", () => {
  const run = fold(step(0, 1, 1), step(1, 2, 3), step(1, 2, 3));
  assert.deepEqual(run.steps, [1, 2]);
  assert.deepEqual(run.losses, [1, 3]);
  assert.equal(run.total, 100);
  assert.equal(run.status, "running");
});

test("the mean starts at the first loss and stays inside what it averages", () => {
  const losses = Array.from({ length: 200 }, (_, i) => (i % 2 ? 1 : 3));
  const run = fold(...losses.map((loss, i) => step(i, i + 1, loss)));
  assert.equal(run.smooth[0], 3);
  assert.ok(run.smooth.every((value) => value >= 1 && value <= 3));
  assert.ok(Math.abs(run.smooth.at(-1) - 2) < 0.25);
});

test("a loss that is no number breaks neither the mean nor the order", () => {
  const run = fold(step(0, 1, 2), step(1, 2, null), step(2, 3, 2));
  assert.deepEqual(run.steps, [1, 2, 3]);
  assert.ok(Number.isNaN(run.losses[1]));
  assert.deepEqual(run.smooth, [2, 2, 2]);
});

test("resumed drops later steps, samples and checkpoints, as read_events does", () => {
  const run = fold(
    { type: "sample", index: 0, step: 0, slot: 0, prompt: "p", file: "samples/step-000000/00.mp4" },
    step(1, 1, 1), step(2, 2, 2), { type: "checkpoint", index: 3, step: 2, folder: "c", lora: "l" },
    step(4, 3, 9), step(5, 4, 9),
    { type: "sample", index: 6, step: 4, slot: 0, prompt: "p", file: "samples/step-000004/00.mp4" },
    { type: "checkpoint", index: 7, step: 4, folder: "c", lora: "l" },
    { type: "resumed", index: 8, step: 2 },
  );
  assert.deepEqual(run.steps, [1, 2]);
  assert.deepEqual(run.samples.map((group) => group.step), [0]);
  assert.deepEqual(run.checkpoints.map((checkpoint) => checkpoint.step), [2]);
  assert.equal(run.last.step, 2);
  const straight = fold(step(0, 1, 1), step(1, 2, 2), step(2, 3, 5));
  applyEvent(run, step(9, 3, 5));
  assert.deepEqual(run.smooth, straight.smooth);
});

test("samples are grouped by step and placed by prompt", () => {
  const run = fold(
    { type: "sample", index: 0, step: 50, slot: 1, prompt: "second", file: "samples/step-000050/01.mp4" },
    { type: "sample", index: 1, step: 0, slot: 0, prompt: "first", file: "samples/step-000000/00.mp4" },
    { type: "sample", index: 2, step: 50, slot: 0, prompt: "first", file: "samples/step-000050/00.mp4" },
  );
  assert.deepEqual(run.samples.map((group) => group.step), [0, 50]);
  assert.deepEqual(run.samples[1].videos.map((video) => video.prompt), ["first", "second"]);
});

test("the end of a run and its going on are told apart", () => {
  const run = fold(step(0, 1, 1), { type: "failed", index: 1, text: "No room on the disk." });
  assert.equal(run.status, "failed");
  assert.equal(run.failure, "No room on the disk.");
  applyEvent(run, { type: "resumed", index: 2, step: 1 });
  assert.equal(run.status, "running");
  assert.equal(run.failure, "");
  applyEvent(run, { type: "finished", index: 3, step: 100, lora: "/out/loras/x/x-step-000100.safetensors" });
  assert.equal(phaseText(run), "Finished: x-step-000100.safetensors");
});

test("a notice said twice is listed once and counted", () => {
  const notice = { type: "notice", level: "warning", text: "short clip", where: "a.mp4" };
  const run = fold({ ...notice, index: 0 }, { ...notice, index: 1 }, { ...notice, index: 2, where: "b.mp4" });
  assert.deepEqual(run.notices.map(({ where, count }) => [where, count]), [["a.mp4", 2], ["b.mp4", 1]]);
  applyEvent(run, { type: "stopped", index: 3, step: 1 });
  applyEvent(run, { ...notice, index: 4 });
  assert.deepEqual(run.notices.map(({ where, count }) => [where, count]), [["a.mp4", 1], ["b.mp4", 1]]);
});

test("what goes on is said in plain words", () => {
  const phase = (name, detail = "") => phaseText(fold({ type: "phase", index: 0, name, detail }));
  assert.equal(phase("prepare", "Encoding clips"), "Encoding clips");
  assert.equal(phase("sample", "step 20"), "Drawing samples: step 20");
  assert.equal(phase("train"), "Training");
  assert.equal(progressText("prepare · 3/12 clips encoded · 0:21 left"), "Preparing · 3/12 clips encoded · 0:21 left");
});
