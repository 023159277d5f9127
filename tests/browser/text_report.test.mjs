import assert from "node:assert/strict";
import test from "node:test";

import { keptReport, reportHeight, reportLines } from "../../web/text_report.mjs";

test("rows, paragraphs and empty lines", () => {
  const text = "Plan\ncard            RTX 4090, 24.0 GB to use\n\nbecause: nothing is compiled";
  assert.deepEqual(reportLines(text), [
    { text: "Plan" },
    { name: "card", value: "RTX 4090, 24.0 GB to use" },
    { text: "because: nothing is compiled" },
  ]);
});

test("names of several words, and values with gaps", () => {
  assert.deepEqual(reportLines("frozen weights  nf4, 50%  of the blocks"), [{ name: "frozen weights", value: "nf4, 50%  of the blocks" }]);
});

test("long texts are taller, up to an end", () => {
  const short = reportHeight(reportLines("Plan"));
  assert.ok(reportHeight(reportLines("x".repeat(200))) > short);
  assert.ok(reportHeight(reportLines("line\n".repeat(500))) <= 420);
});

test("a node keeps a report whole, or of a long one whole lines", () => {
  assert.equal(keptReport("Plan\ncard  RTX 4090", 19), "Plan\ncard  RTX 4090");
  assert.equal(keptReport("one\ntwo\nthree", 7), "one\ntwo\n… Press Run to see the rest.");
  assert.equal(keptReport("one\ntwo\nthree", 6), "one\n… Press Run to see the rest.");
  assert.equal(keptReport("x".repeat(20), 7), "… Press Run to see the rest.");
  assert.ok(keptReport("line\n".repeat(5000)).length < 8100);
});
