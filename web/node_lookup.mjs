// Finding Train nodes in a graph and its subgraphs.

export const TRAIN_NODE = "VideoTrainerTrain";
export const PREVIEW_NODE = "VideoTrainerDatasetPreview";
export const RUN_PROPERTY = "video_trainer_run";

/** The node that an execution id such as "12:7" names, or null when the open graph does not have it. */
export function findNode(rootGraph, executionId) {
  let graph = rootGraph;
  let node = null;
  for (const id of String(executionId).split(":")) {
    node = graph?.getNodeById(Number.isNaN(Number(id)) ? id : Number(id)) ?? null;
    if (!node) return null;
    graph = node.subgraph;
  }
  return node;
}

/** Every Train node with its execution id. */
export function trainNodes(graph, prefix = "") {
  const found = [];
  for (const node of graph?.nodes ?? []) {
    const id = `${prefix}${node.id}`;
    if (nodeType(node) === TRAIN_NODE) found.push({ node, id });
    if (node.subgraph) found.push(...trainNodes(node.subgraph, `${id}:`));
  }
  return found;
}

export function nodeType(node) {
  return node.comfyClass ?? node.type;
}
