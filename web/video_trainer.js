// Entry of the browser half: puts a monitor on every Train node and feeds it the events of its run.

import { app } from "../../scripts/app.js";
import { api } from "../../scripts/api.js";
import { Monitor } from "./monitor.mjs";
import { RUN_PROPERTY, TRAIN_NODE, findNode, nodeType, trainNodes } from "./node_lookup.mjs";
import { RunStore } from "./run_store.mjs";

const WIDGET = "monitor";
const MIN_HEIGHT = 400;
const FIRST_SIZE = { width: 480, monitor: 500 };

const monitors = new Map();
const bindings = new Map();
let active = { run: null, node: null };

const store = new RunStore(fetchEvents, (id) => showRun(id));

async function fetchEvents(id, after) {
  const response = await api.fetchApi(`/video_trainer/runs/${encodeURIComponent(id)}/events?after=${after}`);
  if (response.status === 404) return null;
  if (!response.ok) throw new Error(`events of ${id}: ${response.status}`);
  return response.json();
}

async function askRun(run, request) {
  const response = await api.fetchApi(`/video_trainer/runs/${encodeURIComponent(run.id)}/request`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ request }),
  });
  return response.ok;
}

/** Address of a sample video; the time keeps a redrawn one apart from the cached old one. */
function videoUrl(run, video) {
  if (!run.folder) return "";
  const parts = `${run.folder}/${video.file}`.split("/");
  const filename = parts.pop();
  return api.apiURL(`/view?${new URLSearchParams({ type: "output", subfolder: parts.join("/"), filename, t: video.time })}`);
}

function showRun(id) {
  for (const [node, monitor] of monitors) if (node.properties?.[RUN_PROPERTY] === id) show(node, monitor);
}

function show(node, monitor) {
  const id = node.properties?.[RUN_PROPERTY];
  monitor.show(id ? store.get(id) : null, Boolean(id) && active.run === id);
}

function showAll() {
  for (const [node, monitor] of monitors) show(node, monitor);
}

const graphId = () => (app.rootGraph ?? app.graph)?.id ?? "";

/** Ties a run to the node that trains it; `workflow` names the graph that was queued, where the server says so. */
function bind(executionId, run, workflow) {
  bindings.set(`${workflow ?? graphId()} ${executionId}`, run);
  if (workflow && workflow !== graphId()) return;
  const node = findNode(app.rootGraph ?? app.graph, executionId);
  if (!node || nodeType(node) !== TRAIN_NODE || node.properties[RUN_PROPERTY] === run) return;
  node.properties[RUN_PROPERTY] = run;
  // Without this a reloaded page would restore the graph as it was before the run.
  app.extensionManager?.workflow?.activeWorkflow?.changeTracker?.captureCanvasState?.();
  if (monitors.has(node)) show(node, monitors.get(node));
}

/** After a graph was opened: nodes whose run began while it was not on view, or that an undo took back. */
function bindOpened() {
  for (const { node, id } of trainNodes(app.rootGraph ?? app.graph)) {
    const known = bindings.get(`${graphId()} ${id}`);
    if (known) node.properties[RUN_PROPERTY] = known;
  }
  showAll();
}

async function askActive() {
  const response = await api.fetchApi("/video_trainer/active").catch(() => null);
  if (!response?.ok) return;
  active = await response.json();
  if (active.run && active.node) bind(active.node, active.run, active.workflow);
  showAll();
}

function onEvent({ detail }) {
  const { node, event, workflow } = detail;
  active = ["finished", "stopped", "failed"].includes(event.type) ? { run: null, node: null } : { run: event.run, node };
  bind(node, event.run, workflow);
  store.receive(event);
}

function onReconnected() {
  store.catchUpAll();
  askActive();
}

function addMonitor(node) {
  const monitor = new Monitor({ videoUrl, request: askRun });
  monitor.element.addEventListener("wheel", forwardWheel);
  const widget = node.addDOMWidget(WIDGET, "video_trainer_monitor", monitor.element, {
    serialize: false,
    hideOnZoom: false,
    getMinHeight: () => MIN_HEIGHT,
    getValue: () => "",
    setValue: () => {},
  });
  widget.serialize = false;
  monitors.set(node, monitor);
  const removed = node.onRemoved;
  node.onRemoved = function (...args) {
    monitor.dispose();
    monitors.delete(node);
    return removed?.apply(this, args);
  };
  const [width, height] = node.computeSize();
  node.setSize([Math.max(width, FIRST_SIZE.width), height + FIRST_SIZE.monitor - MIN_HEIGHT]);
  requestAnimationFrame(() => show(node, monitor));
}

/** The canvas zooms under the monitor as under any node; the list of notices scrolls itself. */
function forwardWheel(event) {
  if (window.LiteGraph?.vueNodesMode || event.target.closest(".vt-notices")) return;
  event.preventDefault();
  app.canvas.processMouseWheel(event);
}

/** Charts are redrawn sharp after the canvas was zoomed. */
function followZoom() {
  let timer = 0;
  const redraw = () => {
    clearTimeout(timer);
    timer = setTimeout(() => monitors.forEach((monitor) => monitor.refresh()), 150);
  };
  window.addEventListener("wheel", redraw, { passive: true, capture: true });
  new MutationObserver(redraw).observe(document.documentElement, { attributes: true, attributeFilter: ["style", "class"] });
}

app.registerExtension({
  name: "VideoTrainer.Monitor",
  async setup() {
    const style = document.createElement("link");
    style.rel = "stylesheet";
    style.href = new URL("./monitor.css", import.meta.url).href;
    document.head.append(style);
    api.addEventListener("video_trainer.event", onEvent);
    api.addEventListener("reconnected", onReconnected);
    for (const name of ["execution_success", "execution_error", "execution_interrupted"]) api.addEventListener(name, askActive);
    followZoom();
    await askActive();
  },
  nodeCreated(node) {
    if (nodeType(node) === TRAIN_NODE) addMonitor(node);
  },
  afterConfigureGraph() {
    bindOpened();
  },
});
