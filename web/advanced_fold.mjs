// Folds advanced settings away in the classic renderer, which ignores the flag that Nodes 2.0 obeys.

const BUTTON = "advanced settings";

/** Adds the fold's button to a node with several advanced widgets; `showAll()` tells of the user's setting to show them always. */
export function addFold(node, showAll) {
  if (advanced(node).length < 2) return;
  const button = node.addWidget("button", BUTTON, "", () => toggle(node, showAll), { canvasOnly: true, serialize: false });
  button.serialize = false;
  const configured = node.onConfigure;
  node.onConfigure = function (...args) {
    const result = configured?.apply(this, args);
    apply(node, showAll);
    return result;
  };
  apply(node, showAll);
  node.setSize([node.size[0], node.computeSize()[1]]);
}

function advanced(node) {
  return (node.widgets ?? []).filter((widget) => widget.options?.advanced);
}

/** Hides or shows; a linked setting stays, so that its link has an end. `hidden` on the widget itself is classic only. */
function apply(node, showAll) {
  const fold = !node.showAdvanced && !showAll();
  for (const widget of advanced(node)) {
    const linked = node.inputs?.some((input) => input.widget?.name === widget.name && input.link != null);
    widget.hidden = fold && !linked;
  }
  const button = node.widgets.find((widget) => widget.name === BUTTON);
  button.label = fold ? "Show advanced settings" : "Hide advanced settings";
  button.hidden = showAll();
}

function toggle(node, showAll) {
  const before = node.computeSize()[1];
  node.showAdvanced = !node.showAdvanced;
  apply(node, showAll);
  node.setSize([node.size[0], node.size[1] + node.computeSize()[1] - before]);
  node.graph?.setDirtyCanvas(true, true);
}
