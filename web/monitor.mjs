// The monitor of one Train node: status, chart, samples, notices and requests.

import { el, icon } from "./elements.mjs";
import { NONE, fileName, formatCount, formatDuration, formatLoss, formatMemory, formatRate, formatSpeed } from "./format.mjs";
import { LossChart } from "./loss_chart.mjs";
import { phaseText } from "./run_state.mjs";
import { SampleStrip } from "./sample_strip.mjs";
import { chartColors, themeOf } from "./theme.mjs";

const STATS = [
  ["loss", "Loss", "Mean of the latest steps"],
  ["speed", "Speed", "Mean duration of the latest steps"],
  ["left", "Time left", "Expected time until the last step"],
  ["memory", "Memory", "Highest memory use so far"],
  ["rate", "Learning rate", "Learning rate of the last step"],
];
const REQUESTS = [
  { name: "stop", text: "Stop and keep", busy: "Stopping…", title: "Ends the training after this step, saves it and goes on with the workflow" },
  { name: "save", text: "Save now", busy: "Saving…", title: "Saves a checkpoint and its LoRA file after this step" },
  { name: "sample", text: "Sample now", busy: "Sampling…", title: "Draws the sample videos after this step" },
];
const EMPTY = {
  waiting: "Press Run to train; the loss and sample videos appear here.",
  running: "The loss appears here with the first step.",
  missing: "The folder of this run was moved or deleted. Press Run to train anew.",
};
const NEWS_MS = 200;

/** Builds the element once; `host` gives videoUrl(run, video) and request(run, name) -> promise of true when taken. */
export class Monitor {
  constructor(host) {
    this.host = host;
    this.run = null;
    this.active = false;
    this.pending = {};
    this.drawn = 0;
    this.build();
    this.chart.requestDraw = () => this.refresh();
    this.sizes = new ResizeObserver(() => this.refresh());
    this.sizes.observe(this.canvas);
  }

  build() {
    this.canvas = el("canvas", "vt-chart");
    this.canvas.setAttribute("role", "img");
    this.chart = new LossChart(this.canvas, (step) => this.strip.chooseStep(step));
    this.strip = new SampleStrip(this.host.videoUrl, () => this.refresh());
    this.element = el("div", "vt-monitor", {}, this.buildHead(), this.buildStats(), this.buildBody(), this.buildFoot());
    this.element.dataset.status = "waiting";
  }

  buildHead() {
    this.phase = el("span", "vt-phase");
    this.phase.setAttribute("role", "status");
    this.count = el("span", "vt-count");
    this.fill = el("div", "vt-bar-fill");
    this.bar = el("div", "vt-bar", {}, this.fill);
    this.bar.setAttribute("role", "progressbar");
    this.bar.setAttribute("aria-label", "Training");
    return el("header", "vt-head", {}, el("span", "vt-dot"), this.phase, this.count, this.bar);
  }

  buildStats() {
    this.values = {};
    const cells = STATS.map(([name, label, title]) => {
      this.values[name] = el("dd", "", { textContent: NONE });
      return el("div", `vt-stat vt-stat-${name}`, { title }, el("dt", "", { textContent: label }), this.values[name]);
    });
    return el("dl", "vt-stats", {}, ...cells);
  }

  buildBody() {
    this.notices = el("ul", "vt-notices");
    this.notices.setAttribute("aria-label", "Notices");
    this.notices.dataset.captureWheel = "true";
    this.notices.tabIndex = 0;
    this.empty = el("p", "vt-empty");
    return el("div", "vt-body", {}, el("div", "vt-plot", {}, this.canvas, this.empty), this.strip.element, this.notices);
  }

  buildFoot() {
    this.buttons = REQUESTS.map((request) => {
      const label = el("span", "", { textContent: request.text });
      const button = el("button", `vt-button vt-${request.name}`, { type: "button", title: request.title }, icon(request.name), label);
      button.addEventListener("click", () => this.ask(request.name));
      return { ...request, button, label };
    });
    this.saved = el("span", "vt-saved");
    return el("footer", "vt-foot", {}, ...this.buttons.map((one) => one.button), this.saved);
  }

  /** Shows this run; null shows the empty state. `active` is whether the server trains it now. */
  show(run, active) {
    if (run !== this.run) {
      this.pending = {};
      this.refusal = "";
    }
    this.announced = "";
    this.run = run;
    this.active = active;
    this.changed = true;
    this.refresh(NEWS_MS);
  }

  /** Shows a line of progress until the run has events of its own. */
  announce(text) {
    this.announced = text;
    this.changed = true;
    this.refresh(NEWS_MS);
  }

  /** Draws on the next frame, or for news of the run `interval` ms after the last drawing, so that training keeps the machine. */
  refresh(interval = 0) {
    if (this.frame || (this.timer && interval)) return;
    clearTimeout(this.timer);
    const wait = interval && this.drawn + interval - performance.now();
    this.timer = wait > 0 ? setTimeout(() => this.refresh(), wait) : 0;
    if (this.timer) return;
    this.frame = requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.frame = 0;
    this.drawn = performance.now();
    if (this.changed) this.renderRun();
    this.changed = false;
    this.element.dataset.theme = themeOf(this.element);
    this.chart.draw(this.run, this.strip.shownStep, chartColors(this.element));
  }

  renderRun() {
    const { run } = this;
    const status = run?.missing ? "missing" : (run?.status ?? "waiting");
    // A log that ends in the middle, with nobody training: the server was stopped or killed.
    this.element.dataset.status = this.announced ? "running" : status === "running" && !this.active ? "paused" : status;
    this.element.classList.toggle("vt-no-loss", !run?.steps.length);
    this.empty.textContent = EMPTY[this.element.dataset.status] ?? EMPTY.waiting;
    this.renderHead(run);
    this.renderStats(run);
    this.renderNotices(run);
    this.renderButtons(run);
    this.strip.update(run);
    this.canvas.setAttribute("aria-label", chartLabel(run));
  }

  renderHead(run) {
    const paused = this.element.dataset.status === "paused";
    const text = this.announced ? this.announced : !run ? "Ready" : paused ? "Not running; Run again goes on from the last save" : phaseText(run);
    if (this.phase.textContent !== text) this.phase.textContent = text;
    const part = run?.progress;
    const share = run?.total ? (run.last?.step ?? 0) / run.total : 0;
    const preparing = part && run.phase?.name !== "train" && !run.steps.length;
    this.count.textContent = part ? partText(part) : run?.total ? `${formatCount(run.last?.step ?? 0)} / ${formatCount(run.total)}` : "";
    const shown = preparing && part.total ? part.done / part.total : share;
    this.fill.style.transform = `scaleX(${Math.max(0, Math.min(1, shown))})`;
    this.bar.setAttribute("aria-valuenow", Math.round(shown * 100));
  }

  renderStats(run) {
    const last = run?.last;
    const running = run?.status === "running" && this.active;
    const mean = run?.smooth.length ? run.smooth[run.smooth.length - 1] : NaN;
    this.values.loss.textContent = formatLoss(mean);
    this.values.speed.textContent = formatSpeed(last?.seconds);
    const left = run?.phase?.name === "train" || !run?.steps.length ? (run?.progress?.secondsLeft ?? last?.seconds_left) : last?.seconds_left;
    this.values.left.textContent = running ? formatDuration(left) : NONE;
    this.values.memory.textContent = formatMemory(last?.peak_gib);
    this.values.rate.textContent = formatRate(last?.lr);
  }

  renderNotices(run) {
    const list = (run?.notices ?? []).filter((notice) => notice.level !== "info").reverse();
    list.sort((a, b) => !a.where - !b.where); // what is said of one file comes before what is said of all
    if (run?.failure) list.unshift({ level: "error", text: run.failure, where: "", count: 1 });
    if (this.refusal) list.unshift({ level: "info", text: this.refusal, where: "", count: 1 });
    const key = JSON.stringify(list);
    if (key === this.noticeKey) return;
    this.noticeKey = key;
    this.notices.replaceChildren(...list.map(noticeItem));
    this.notices.hidden = !list.length;
  }

  renderButtons(run) {
    const training = Boolean(run && this.active && run.status === "running");
    for (const { name, text, busy, button, label } of this.buttons) {
      const waits = this.pending[name] !== undefined && training && !this.answered(name);
      if (!waits) delete this.pending[name];
      button.disabled = !training || waits;
      label.textContent = waits ? busy : text;
    }
    const saved = run?.checkpoints[run.checkpoints.length - 1];
    this.saved.textContent = saved ? `Saved: step ${formatCount(saved.step)}` : "";
    this.saved.title = saved?.lora ?? "";
  }

  /** Whether the log shows what was asked for since the button was pressed. */
  answered(name) {
    return this.size(name) !== this.pending[name];
  }

  size(name) {
    if (name === "save") return this.run.checkpoints.length;
    return name === "sample" ? this.run.samples.length : 0;
  }

  async ask(name) {
    this.refusal = "";
    this.pending[name] = this.size(name);
    this.changed = true;
    this.refresh();
    const taken = await this.host.request(this.run, name).catch(() => false);
    if (taken) return;
    delete this.pending[name];
    this.refusal = "The server did not take the request: this run is not training now.";
    this.changed = true;
    this.refresh();
  }

  dispose() {
    cancelAnimationFrame(this.frame);
    clearTimeout(this.timer);
    this.sizes.disconnect();
    this.strip.dispose();
  }
}

function partText(part) {
  return `${formatCount(part.done)} / ${formatCount(part.total)} ${part.unit}`;
}

function chartLabel(run) {
  if (!run?.steps.length) return "Loss chart, empty";
  return `Loss chart: ${formatLoss(run.smooth[run.smooth.length - 1])} at step ${run.steps[run.steps.length - 1]}, from ${formatLoss(run.smooth[0])}`;
}

function noticeItem({ level, text, where, count }) {
  const item = el("li", `vt-notice vt-${level}`);
  if (where) item.append(el("b", "", { textContent: fileName(where), title: where }), " ");
  item.append(text);
  if (count > 1) item.append(" ", el("span", "vt-times", { textContent: `×${count}` }));
  return item;
}
