// Finding nodes in a graph and its subgraphs.

export const TRAIN_NODE = "VideoTrainerTrain";
export const PREVIEW_NODE = "VideoTrainerDatasetPreview";

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

/** Every node with its execution id. */
export function allNodes(graph, prefix = "") {
  return (graph?.nodes ?? []).flatMap((node) => {
    const id = `${prefix}${node.id}`;
    return [{ node, id }, ...allNodes(node.subgraph, `${id}:`)];
  });
}

export function nodeType(node) {
  return node.comfyClass ?? node.type;
}
