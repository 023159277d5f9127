// Entry of the browser half: puts a monitor on every Train node and feeds it the events of its run.

import { app } from "../../scripts/app.js";
import { api } from "../../scripts/api.js";
import { addFold } from "./advanced_fold.mjs";
import { Monitor } from "./monitor.mjs";
import { addDisplay, PROGRESS_LINE } from "./node_display.mjs";
import { PREVIEW_NODE, TRAIN_NODE, nodeType } from "./node_lookup.mjs";
import { NodeResults } from "./node_results.mjs";
import { PreviewNodes } from "./preview_nodes.mjs";
import { PromptOrigins } from "./prompt_origins.mjs";
import { progressText } from "./run_state.mjs";
import { RunStore } from "./run_store.mjs";
import { TextReports } from "./text_report.mjs";

const OURS = "VideoTrainer";
const RUN_PROPERTY = "video_trainer_run"; // of the node, so that it is saved with the workflow
const MONITOR_SIZES = { minHeight: 420, firstWidth: 480, firstHeight: 560 };

const monitors = new Map();
let active = { run: null, node: null };
let running = ""; // the prompt that ComfyUI executes

const store = new RunStore(fetchEvents, showRun);
const origins = new PromptOrigins({ rootGraph: () => app.rootGraph ?? app.graph, fetchOrigin });
const runs = new NodeResults(origins, {
  property: RUN_PROPERTY,
  gives: (node) => nodeType(node) === TRAIN_NODE,
  show: (node) => monitors.has(node) && show(node, monitors.get(node)),
  onBound: keepState,
});
const previews = new PreviewNodes(origins, {
  fetchPreview: async (id) => {
    const response = await api.fetchApi(`/video_trainer/previews/${encodeURIComponent(id)}`);
    return response.ok ? response.json() : null;
  },
  saveCaption,
  pictureUrl: (filename) => api.apiURL(`/view?${new URLSearchParams({ type: "temp", subfolder: "", filename })}`),
  onBound: keepState,
  hideCoreText,
  forwardWheel,
});
const reports = new TextReports(origins, OURS, { onBound: keepState, forwardWheel });

async function saveCaption(clip, text) {
  const response = await api.fetchApi(`/video_trainer/captions/${encodeURIComponent(clip)}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ text }),
  });
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

/** Without this a reloaded page would restore the graph as it was before the run. */
function keepState() {
  app.extensionManager?.workflow?.activeWorkflow?.changeTracker?.captureCanvasState?.();
}

async function fetchActive() {
  const response = await api.fetchApi("/video_trainer/active");
  return response.ok ? response.json() : {};
}

async function fetchOrigin(prompt) {
  const response = await api.fetchApi(`/video_trainer/prompts/${encodeURIComponent(prompt)}`);
  if (!response.ok) throw new Error(`origin of ${prompt}: ${response.status}`);
  return (await response.json()).workflow ?? "";
}

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

function runOf(node) {
  return node.properties?.[RUN_PROPERTY];
}

function show(node, monitor) {
  const id = runOf(node);
  monitor.show(id ? store.get(id) : null, Boolean(id) && active.run === id);
}

function showRun(id) {
  for (const [node, monitor] of monitors) if (runOf(node) === id) show(node, monitor);
}

function showAll() {
  for (const [node, monitor] of monitors) show(node, monitor);
}

async function askActive() {
  active = await fetchActive().catch(() => active);
  if (active.run && active.node) {
    running ||= active.prompt;
    await runs.receive(active.node, active.run, active.prompt);
  }
  showAll();
}

function onEvent({ detail: { node, prompt, event } }) {
  const over = ["finished", "stopped", "failed"].includes(event.type);
  active = over ? { run: null, node: null } : { run: event.run, node };
  runs.receive(node, event.run, prompt);
  store.receive(event);
}

function onExecuting({ detail }) {
  running = detail.prompt_id;
}

function onExecutionEnd() {
  running = "";
  previews.settle();
  askActive();
}

/** While clips are prepared a new run has no id yet, only ComfyUI's line of progress, which does not name its prompt; a preview has
 * nothing else. */
async function onProgressText({ detail: { nodeId, text } }) {
  const prompt = running;
  const node = await origins.nodeOf(nodeId, prompt);
  if (!node || prompt !== running) return;
  previews.announce(node, progressText(text));
  if (!active.run) monitors.get(node)?.announce(progressText(text));
}

/** A finished Train node names its run, also when its result came from ComfyUI's cache; others give a preview or a text to show. */
function onExecuted({ detail }) {
  const preview = detail.output?.video_trainer_preview?.[0];
  if (preview) previews.receive(detail.node, preview, detail.prompt_id);
  const texts = detail.output?.text;
  if (texts?.length) reports.receive(detail.node, texts, detail.prompt_id);
  const run = detail.output?.video_trainer_run?.[0];
  if (run) runs.receive(detail.node, run, detail.prompt_id);
}

function onReconnected() {
  store.catchUpAll();
  askActive();
}

/** Where ComfyUI puts its line of progress: present but never seen, as the monitor shows the same. */
function hideCoreText(node) {
  const widget = node.addWidget("text", PROGRESS_LINE, "", () => {}, { hidden: true, serialize: false });
  widget.serialize = false;
  widget.hidden = true;
}

function addMonitor(node) {
  hideCoreText(node);
  const monitor = new Monitor({ videoUrl, request: askRun });
  monitors.set(node, monitor);
  const onRemoved = () => {
    monitor.dispose();
    monitors.delete(node);
  };
  addDisplay(node, "monitor", monitor.element, { ...MONITOR_SIZES, onWheel: forwardWheel, onRemoved });
  requestAnimationFrame(() => monitors.has(node) && show(node, monitor));
}

/** The canvas zooms under the monitor as under any node; the list of notices scrolls itself. */
function forwardWheel(event) {
  if (window.LiteGraph?.vueNodesMode || event.target.closest(".vt-notices, .vt-scroll, .vt-report, textarea")) return;
  event.preventDefault();
  app.canvas.processMouseWheel(event);
}

/** Charts are drawn again when the canvas was zoomed (to stay sharp) or the palette changed. */
function followAppearance() {
  let timer = 0;
  const redraw = () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      monitors.forEach((monitor) => monitor.refresh());
      previews.refresh();
      reports.refresh();
    }, 150);
  };
  window.addEventListener("wheel", redraw, { passive: true, capture: true });
  new MutationObserver(redraw).observe(document.documentElement, { attributes: true, attributeFilter: ["style", "class"] });
}

app.registerExtension({
  name: "VideoTrainer.Monitor",
  async setup() {
    for (const name of ["monitor.css", "dataset_preview.css", "text_report.css"]) {
      const href = new URL(`./${name}`, import.meta.url).href;
      document.head.append(Object.assign(document.createElement("link"), { rel: "stylesheet", href }));
    }
    api.addEventListener("video_trainer.event", onEvent);
    api.addEventListener("progress_text", onProgressText);
    api.addEventListener("executed", onExecuted);
    api.addEventListener("reconnected", onReconnected);
    for (const name of ["execution_start", "progress_state"]) api.addEventListener(name, onExecuting);
    for (const name of ["execution_success", "execution_error", "execution_interrupted"]) api.addEventListener(name, onExecutionEnd);
    followAppearance();
    await askActive();
  },
  nodeCreated(node) {
    if (!String(nodeType(node)).startsWith(OURS)) return;
    addFold(node, () => Boolean(app.extensionManager?.setting?.get("Comfy.Node.AlwaysShowAdvancedWidgets")));
    if (nodeType(node) === TRAIN_NODE) addMonitor(node);
    if (nodeType(node) === PREVIEW_NODE) previews.add(node);
  },
  afterConfigureGraph() {
    runs.restore();
    showAll();
    previews.restore();
    reports.restore();
  },
});
