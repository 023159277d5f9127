import assert from "node:assert/strict";
import test from "node:test";
import { lossRange, nearest, niceTicks, stepRange, thin, tickDecimals } from "../../web/chart_scale.mjs";

test("ticks are round and inside the range", () => {
  assert.deepEqual(niceTicks(0, 1, 5), [0, 0.2, 0.4, 0.6, 0.8, 1]);
  assert.deepEqual(niceTicks(0.083, 0.31, 3), [0.1, 0.2, 0.3]);
  assert.deepEqual(niceTicks(0, 3, 10, true), [0, 1, 2, 3]);
  assert.deepEqual(niceTicks(5, 5, 4), [5]);
});

test("labels have the decimals that tell ticks apart", () => {
  assert.equal(tickDecimals([0, 100, 200]), 0);
  assert.equal(tickDecimals([0.1, 0.125, 0.15]), 3);
});

test("a thinned line keeps its ends and every extreme, in order", () => {
  const values = Array.from({ length: 100000 }, (_, i) => Math.sin(i / 500));
  values[54321] = 40;
  values[77777] = -40;
  const kept = thin(values, 300);
  assert.ok(kept.length <= 602);
  assert.equal(kept[0], 0);
  assert.equal(kept.at(-1), 99999);
  assert.ok(kept.includes(54321) && kept.includes(77777));
  assert.ok(kept.every((position, i) => i === 0 || position > kept[i - 1]));
});

test("a short line is drawn whole", () => {
  assert.deepEqual(thin([5, 4, 3], 100), [0, 1, 2]);
});

test("the range holds the mean and leaves out a rare peak", () => {
  const losses = Array.from({ length: 1000 }, () => 0.1);
  losses[10] = 50;
  const [low, high] = lossRange(losses, losses.map(() => 0.12));
  assert.ok(low >= 0 && low < 0.1);
  assert.ok(high > 0.12 && high < 1);
  assert.deepEqual(lossRange([], []), [0, 1]);
  const flat = lossRange([0.5, 0.5], [0.5, 0.5]);
  assert.ok(flat[0] < 0.5 && flat[1] > 0.5);
});

test("nearest finds the closest position", () => {
  assert.equal(nearest([], 3), -1);
  assert.equal(nearest([1, 5, 9], -4), 0);
  assert.equal(nearest([1, 5, 9], 3.5), 1);
  assert.equal(nearest([1, 5, 9], 100), 2);
});

test("the axis of a short run ends at its last step, and leaves room only while it trains", () => {
  assert.deepEqual(stepRange([1, 2, 3, 4, 5], 0, 5, false), [0, 5]);
  assert.deepEqual(stepRange([1, 2], 0, 5, true), [0, 5]);
  assert.deepEqual(stepRange([1, 2], 0, 1000, true), [0, 10]);
  assert.deepEqual(stepRange([1, 2], 0, 1000, false), [0, 2]);
  assert.deepEqual(stepRange([1], undefined, 1, false), [0, 1]);
  assert.deepEqual(stepRange([7], 7, 7, false), [7, 8]);
  assert.deepEqual(stepRange([501, 502], 500, 0, true), [500, 510]);
});
