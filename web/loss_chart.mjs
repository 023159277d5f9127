// The loss chart: a canvas that draws a run, shows values under the pointer and sample steps on its axis.

import { lossRange, nearest, niceTicks, stepRange, thin, tickDecimals } from "./chart_scale.mjs";
import { formatCount, formatLoss, formatRate } from "./format.mjs";

const FONT = "11px system-ui, -apple-system, 'Segoe UI', sans-serif";
const MARGIN = { top: 10, right: 12, bottom: 22 };

/** Draws on `canvas`; `onPick(step)` is called when a step is clicked. */
export class LossChart {
  constructor(canvas, onPick) {
    this.canvas = canvas;
    this.pointer = null;
    this.requestDraw = () => {};
    canvas.addEventListener("pointermove", (event) => this.point(event.offsetX));
    canvas.addEventListener("pointerleave", () => this.point(null));
    canvas.addEventListener("click", (event) => {
      if (this.area) onPick(this.stepAt(event.offsetX));
    });
  }

  point(x) {
    this.pointer = x;
    this.requestDraw();
  }

  /** Step under a horizontal position in CSS pixels. */
  stepAt(x) {
    const { left, width, first, last } = this.area;
    return first + ((x - left) / width) * (last - first);
  }

  /** Draws the run; `shown` is the step of the sample videos on view, `colors` come from the theme. */
  draw(run, shown, colors) {
    const width = this.canvas.clientWidth;
    const height = this.canvas.clientHeight;
    if (!width || !height) return;
    const context = this.fit(width, height);
    context.clearRect(0, 0, width, height);
    this.area = null;
    if (!run?.steps.length) return;
    const view = this.layOut(context, run, width, height);
    this.area = view;
    drawGrid(context, view, colors);
    context.save();
    context.beginPath();
    context.rect(view.left, 0, view.width + MARGIN.right, view.bottom + 1);
    context.clip();
    drawShown(context, view, shown, colors);
    drawArea(context, view, run, colors);
    drawLine(context, view, run.steps, run.losses, colors.raw, 1);
    drawLine(context, view, run.steps, run.smooth, colors.accent, 2.25);
    drawHead(context, view, run, colors);
    context.restore();
    drawSampleMarks(context, view, run, shown, colors);
    if (this.pointer !== null) this.drawReadout(context, view, run, colors, width);
  }

  /** Sizes the bitmap to the pixels it covers on screen, the canvas zoom included. */
  fit(width, height) {
    const zoom = this.canvas.getBoundingClientRect().width / width || 1;
    const density = Math.min(4, Math.max(1, (window.devicePixelRatio || 1) * zoom));
    const pixels = [Math.round(width * density), Math.round(height * density)];
    if (this.canvas.width !== pixels[0] || this.canvas.height !== pixels[1]) [this.canvas.width, this.canvas.height] = pixels;
    const context = this.canvas.getContext("2d");
    context.setTransform(pixels[0] / width, 0, 0, pixels[1] / height, 0, 0);
    context.font = FONT;
    context.lineJoin = "round";
    return context;
  }

  layOut(context, run, width, height) {
    const bottom = height - MARGIN.bottom;
    const [low, high] = lossRange(run.losses, run.smooth);
    const yTicks = niceTicks(low, high, Math.max(2, Math.floor((bottom - MARGIN.top) / 34)));
    const decimals = tickDecimals(yTicks);
    const yLabels = yTicks.map((tick) => tick.toFixed(decimals));
    const left = Math.ceil(Math.max(...yLabels.map((label) => context.measureText(label).width), 20)) + 12;
    const [first, last] = stepRange(run.steps, run.samples[0]?.step, run.total, run.status === "running");
    const view = { left, width: width - left - MARGIN.right, top: MARGIN.top, bottom, low, high, first, last, yTicks, yLabels };
    view.xTicks = niceTicks(first, last, Math.max(2, Math.floor(view.width / 80)), true);
    view.x = (step) => left + ((step - first) / (last - first)) * view.width;
    view.y = (loss) => bottom - ((loss - low) / (high - low)) * (bottom - MARGIN.top);
    return view;
  }

  drawReadout(context, view, run, colors, width) {
    const at = nearest(run.steps, this.stepAt(this.pointer));
    const x = view.x(run.steps[at]);
    context.strokeStyle = colors.muted;
    context.lineWidth = 1;
    line(context, x, view.top, x, view.bottom);
    dot(context, x, Math.max(view.top, view.y(run.losses[at])), 2.5, colors.text);
    dot(context, x, view.y(run.smooth[at]), 3.5, colors.accent);
    const rows = [
      ["step", formatCount(run.steps[at])],
      ["loss", formatLoss(run.losses[at])],
      ["mean", formatLoss(run.smooth[at])],
      ["rate", formatRate(run.rates[at])],
    ];
    const box = { width: 108, height: rows.length * 15 + 10 };
    box.x = x + 12 + box.width > width ? x - 12 - box.width : x + 12;
    box.y = view.top + 2;
    context.fillStyle = colors.surface;
    context.strokeStyle = colors.border;
    context.beginPath();
    context.roundRect(box.x, box.y, box.width, box.height, 6);
    context.fill();
    context.stroke();
    context.textBaseline = "middle";
    rows.forEach(([name, value], row) => {
      const y = box.y + 13 + row * 15;
      context.textAlign = "left";
      context.fillStyle = colors.muted;
      context.fillText(name, box.x + 9, y);
      context.textAlign = "right";
      context.fillStyle = colors.text;
      context.fillText(value, box.x + box.width - 9, y);
    });
  }
}

function drawGrid(context, view, colors) {
  context.lineWidth = 1;
  context.textBaseline = "middle";
  context.textAlign = "right";
  view.yTicks.forEach((tick, i) => {
    const y = Math.round(view.y(tick)) + 0.5;
    context.strokeStyle = colors.grid;
    line(context, view.left, y, view.left + view.width, y);
    context.fillStyle = colors.muted;
    context.fillText(view.yLabels[i], view.left - 8, y);
  });
  context.textBaseline = "alphabetic";
  for (const tick of view.xTicks) {
    const label = formatCount(tick);
    const half = context.measureText(label).width / 2;
    context.textAlign = "center";
    context.fillText(label, Math.min(view.x(tick), view.left + view.width + MARGIN.right - half), view.bottom + 17);
  }
}

function drawShown(context, view, shown, colors) {
  if (shown === null || shown < view.first || shown > view.last) return;
  const x = Math.round(view.x(shown)) + 0.5;
  context.strokeStyle = colors.mark;
  context.setLineDash([3, 3]);
  line(context, x, view.top, x, view.bottom);
  context.setLineDash([]);
}

function drawSampleMarks(context, view, run, shown, colors) {
  for (const group of run.samples) {
    if (group.step > view.last) continue;
    const now = group.step === shown;
    dot(context, view.x(group.step), view.bottom, now ? 4 : 2.5, now ? colors.mark : colors.muted);
  }
}

function trace(context, view, steps, values, skipBroken) {
  let open = false;
  for (const i of thin(values, Math.max(50, Math.floor(view.width)))) {
    if (!Number.isFinite(values[i])) {
      open = skipBroken && open;
      continue;
    }
    if (open) context.lineTo(view.x(steps[i]), view.y(values[i]));
    else context.moveTo(view.x(steps[i]), view.y(values[i]));
    open = true;
  }
}

function drawLine(context, view, steps, values, color, width) {
  context.strokeStyle = color;
  context.lineWidth = width;
  context.beginPath();
  trace(context, view, steps, values, false);
  context.stroke();
}

function drawArea(context, view, run, colors) {
  const fill = context.createLinearGradient(0, view.top, 0, view.bottom);
  fill.addColorStop(0, colors.fill);
  fill.addColorStop(1, colors.fillEnd);
  context.fillStyle = fill;
  context.beginPath();
  trace(context, view, run.steps, run.smooth, true);
  context.lineTo(view.x(run.steps[run.steps.length - 1]), view.bottom);
  context.lineTo(view.x(run.steps[0]), view.bottom);
  context.fill();
}

function drawHead(context, view, run, colors) {
  const at = run.smooth.length - 1;
  const x = view.x(run.steps[at]);
  const y = view.y(run.smooth[at]);
  if (!Number.isFinite(y)) return;
  if (run.status === "running") dot(context, x, y, 7, colors.fill);
  dot(context, x, y, 3.5, colors.accent);
}

function line(context, x0, y0, x1, y1) {
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
  context.stroke();
}

function dot(context, x, y, radius, color) {
  context.fillStyle = color;
  context.beginPath();
  context.arc(x, y, radius, 0, Math.PI * 2);
  context.fill();
}
