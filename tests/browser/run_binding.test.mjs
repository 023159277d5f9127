import assert from "node:assert/strict";
import test from "node:test";
import { findNode, trainNodes } from "../../web/node_lookup.mjs";
import { RunBindings, runOf } from "../../web/run_binding.mjs";

function graph(id, nodes) {
  return { id, nodes, getNodeById: (wanted) => nodes.find((node) => node.id === wanted) };
}
const train = (id) => ({ id, type: "VideoTrainerTrain", properties: {} });
const inside = () => {
  const node = train(7);
  return { node, root: graph("g", [{ id: 12, type: "sub", properties: {}, subgraph: graph("s", [node]) }, { id: 3, type: "KSampler", properties: {} }]) };
};

function bindings(root, active = {}) {
  const bound = [];
  const made = new RunBindings({ rootGraph: () => root, fetchActive: async () => active, onBound: (node) => bound.push(node.id) });
  return { made, bound };
}

test("a node inside a subgraph is found by its execution id", () => {
  const { node, root } = inside();
  assert.equal(findNode(root, "12:7"), node);
  assert.equal(findNode(root, "12:8"), null);
  assert.equal(findNode(root, "3:7"), null);
  assert.deepEqual(trainNodes(root), [{ node, id: "12:7" }]);
});

test("a run is remembered by the node that trains it, once", async () => {
  const { node, root } = inside();
  const { made, bound } = bindings(root, { prompt: "p", workflow: "g" });
  await made.bind("12:7", "run-1", "p");
  await made.bind("12:7", "run-1", "p");
  assert.equal(runOf(node), "run-1");
  assert.deepEqual(bound, [7]);
});

test("another workflow's node of the same id is left alone, and its own gets the run when it is opened", async () => {
  const { made } = bindings(graph("open", [train(5)]), { prompt: "p", workflow: "other" });
  await made.bind("5", "run-1", "p");
  assert.equal(runOf(made.rootGraph().nodes[0]), undefined);
  const opened = graph("other", [train(5)]);
  made.rootGraph = () => opened;
  made.rebind();
  assert.equal(runOf(opened.nodes[0]), "run-1");
});

test("a node that is no Train node is never bound", async () => {
  const { root } = inside();
  const { made, bound } = bindings(root);
  await made.bind("3", "run-1", "");
  assert.deepEqual(bound, []);
});
