import assert from "node:assert/strict";
import test from "node:test";
import { allNodes, findNode } from "../../web/node_lookup.mjs";
import { NodeResults } from "../../web/node_results.mjs";
import { PreviewNodes } from "../../web/preview_nodes.mjs";
import { PromptOrigins } from "../../web/prompt_origins.mjs";
import { TextReports } from "../../web/text_report.mjs";

function graph(id, nodes) {
  return { id, nodes, getNodeById: (wanted) => nodes.find((node) => node.id === wanted) };
}
const made = (id, kind) => ({ id, type: `VideoTrainer${kind}`, properties: {}, size: [100, 100] });
const inside = () => {
  const node = made(7, "Train");
  const other = { id: 3, type: "KSampler", properties: {} };
  return { node, other, root: graph("g", [{ id: 12, type: "sub", properties: {}, subgraph: graph("s", [node]) }, other]) };
};

/** Tabs with one open graph, `open` in turn; prompts are named after the graph that they were queued from. */
function tabs(open, fetchOrigin = async (prompt) => prompt) {
  const shown = { open, asked: 0 };
  shown.origins = new PromptOrigins({
    rootGraph: () => shown.open,
    fetchOrigin: (prompt) => {
      shown.asked += 1;
      return fetchOrigin(prompt);
    },
  });
  return shown;
}

function runs(origins) {
  const bound = [];
  const gives = (node) => node.type === "VideoTrainerTrain";
  return { bound, results: new NodeResults(origins, { property: "run", gives, onBound: (node) => bound.push(node.id) }) };
}

test("a node inside a subgraph is found by its execution id", () => {
  const { node, root } = inside();
  assert.equal(findNode(root, "12:7"), node);
  assert.equal(findNode(root, "12:8"), null);
  assert.equal(findNode(root, "3:7"), null);
  assert.deepEqual(allNodes(root).map(({ id }) => id), ["12", "12:7", "3"]);
});

test("a result is kept by the node that gave it, once", async () => {
  const { node, root } = inside();
  const { origins } = tabs(root);
  const { results, bound } = runs(origins);
  await results.receive("12:7", "run-1", "g");
  await results.receive("12:7", "run-1", "g");
  assert.equal(node.properties.run, "run-1");
  assert.deepEqual(bound, [7]);
});

test("another workflow's node of the same id is left alone, and its own gets the result when it is opened", async () => {
  const shown = tabs(graph("open", [made(5, "Train")]));
  const { results, bound } = runs(shown.origins);
  await results.receive("5", "run-1", "other");
  assert.deepEqual(shown.open.nodes[0].properties, {});
  shown.open = graph("other", [made(5, "Train")]);
  results.restore();
  assert.equal(shown.open.nodes[0].properties.run, "run-1");
  assert.deepEqual(bound, []); // the front end is still loading the graph then
});

test("what was queued from no canvas belongs to no node", async () => {
  const shown = tabs(graph("open", [made(5, "Train")]), async () => "");
  const { results } = runs(shown.origins);
  await results.receive("5", "run-1", "p");
  await results.receive("5", "run-1", undefined);
  results.restore();
  assert.deepEqual(shown.open.nodes[0].properties, {});
});

test("a server that did not answer is asked again, else once for each prompt", async () => {
  let down = true;
  const shown = tabs(graph("open", [made(5, "Train")]), async (prompt) => {
    if (down) throw new Error("no connection");
    return prompt;
  });
  assert.equal(await shown.origins.of("open"), "");
  down = false;
  assert.equal(await shown.origins.of("open"), "open");
  assert.equal(await shown.origins.nodeOf("5", "open"), shown.open.nodes[0]);
  assert.equal(shown.asked, 2);
});

test("results are given in the order that they came in", async () => {
  const answers = {};
  const shown = tabs(graph("g", [made(5, "Train")]), (prompt) => new Promise((resolve) => (answers[prompt] = () => resolve("g"))));
  const { results } = runs(shown.origins);
  const both = [results.receive("5", "early", "a"), results.receive("5", "late", "b")];
  while (!answers.a) await new Promise(setImmediate);
  answers.a();
  while (!answers.b) await new Promise(setImmediate);
  answers.b();
  await Promise.all(both);
  assert.equal(shown.open.nodes[0].properties.run, "late");
});

test("nodes of other kinds are never given a result", async () => {
  const { root, other } = inside();
  const { results, bound } = runs(tabs(root).origins);
  await results.receive("3", "run-1", "g");
  assert.deepEqual([bound, other.properties], [[], {}]);
});

test("a text comes to the workflow that was queued, whole and once that is opened", async () => {
  const shown = tabs(graph("open", [made(5, "Plan")]));
  const reports = new TextReports(shown.origins, "VideoTrainer", { onBound: () => {} });
  const seen = [];
  reports.show = (node, text) => seen.push([shown.open.id, node.id, text.length]);
  const long = "line\n".repeat(5000);
  await reports.receive("5", [long], "other");
  reports.restore();
  assert.deepEqual([seen, shown.open.nodes[0].properties], [[], {}]);
  shown.open = graph("other", [made(5, "Plan")]);
  reports.restore();
  assert.deepEqual(seen, [["other", 5, long.length]]);
  assert.ok(shown.open.nodes[0].properties.video_trainer_report.length < 8100);
  await reports.receive("5", ["again"], "other");
  assert.deepEqual(seen[1], ["other", 5, 5]);
});

test("a dataset's preview comes to the workflow that was queued", async () => {
  const shown = tabs(graph("open", [made(5, "DatasetPreview")]));
  const previews = new PreviewNodes(shown.origins, { onBound: () => {} });
  const seen = [];
  const display = (id) => ({ id: "", show: (preview) => seen.push([id, preview.id]), refresh: () => {} });
  previews.shown.set(shown.open.nodes[0], display("open"));
  await previews.receive("5", { id: "p1" }, "other");
  previews.restore();
  assert.deepEqual([seen, shown.open.nodes[0].properties], [[], {}]);
  shown.open = graph("other", [made(5, "DatasetPreview")]);
  previews.shown.clear();
  previews.shown.set(shown.open.nodes[0], display("other"));
  previews.restore();
  assert.deepEqual(seen[0], ["other", "p1"]);
  assert.equal(shown.open.nodes[0].properties.video_trainer_preview, "p1");
});
