import assert from "node:assert/strict";
import test from "node:test";
import { NONE, fileName, formatCount, formatDuration, formatLoss, formatMemory, formatRate, formatSpeed } from "../../web/format.mjs";

test("unknown values are a dash", () => {
  for (const format of [formatLoss, formatRate, formatSpeed, formatDuration, formatMemory, formatCount]) {
    assert.equal(format(undefined), NONE);
    assert.equal(format(NaN), NONE);
  }
  assert.equal(formatMemory(0), NONE);
});

test("numbers are short", () => {
  assert.equal(formatLoss(0.12345), "0.1235");
  assert.equal(formatLoss(0.00012), "1.2e-4");
  assert.equal(formatLoss(1234.56), "1234.6");
  assert.equal(formatRate(2e-4), "2e-4");
  assert.equal(formatRate(1.5e-5), "1.5e-5");
  assert.equal(formatRate(0.1), "0.1");
  assert.equal(formatSpeed(0.5), "0.50 s/step");
  assert.equal(formatSpeed(14.04), "14.0 s/step");
  assert.equal(formatMemory(12.34), "12.3 GiB");
  assert.equal(formatCount(12345), "12,345");
});

test("times change unit", () => {
  assert.equal(formatDuration(0), "0 s");
  assert.equal(formatDuration(59.4), "59 s");
  assert.equal(formatDuration(59.6), "1 min 00 s");
  assert.equal(formatDuration(125), "2 min 05 s");
  assert.equal(formatDuration(3 * 3600 + 20 * 60), "3 h 20 min");
  assert.equal(formatDuration(2 * 86400 + 4 * 3600), "2 d 4 h");
});

test("a file's name is found behind either slash", () => {
  assert.equal(fileName("C:\\a\\b.mp4"), "b.mp4");
  assert.equal(fileName("/a/b.mp4"), "b.mp4");
  assert.equal(fileName(undefined), "");
});
