// An element of ours as a widget of a node: what the monitor, the dataset preview and the text reports have in common.

export const PROGRESS_LINE = "$$node-text-preview"; // ComfyUI's widget for what a running node says

/** Takes ComfyUI's line of progress off a node that is done. */
export function removeProgressLine(node) {
  const line = node.widgets?.find((widget) => widget.name === PROGRESS_LINE);
  if (line) node.removeWidget(line);
}

/** Adds `element` under a node's settings. `minHeight` px it has at least, `firstWidth` and `firstHeight` at first, unless the node is
 * larger; `onWheel(event)` hears of its wheel, `onRemoved()` of the node's end. Nothing of it is saved with the workflow. */
export function addDisplay(node, name, element, { minHeight, firstWidth, firstHeight, onWheel, onRemoved }) {
  element.addEventListener("wheel", onWheel);
  const widget = node.addDOMWidget(name, `video_trainer_${name}`, element, {
    serialize: false,
    hideOnZoom: false,
    getMinHeight: () => minHeight,
    getValue: () => "",
    setValue: () => {},
  });
  widget.serialize = false;
  const removed = node.onRemoved;
  node.onRemoved = function (...args) {
    onRemoved();
    return removed?.apply(this, args);
  };
  const [width, height] = node.computeSize();
  node.setSize([Math.max(node.size[0], width, firstWidth), Math.max(node.size[1], height - minHeight + firstHeight)]);
  node.graph?.setDirtyCanvas(true, true); // widgets are laid out as the canvas is drawn
}
