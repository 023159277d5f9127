// The strip of sample videos: one tile a prompt, and a slider to go back to earlier steps in place.

import { formatCount } from "./format.mjs";
import { el, icon } from "./elements.mjs";

const TINY = 160;
const still = () => window.matchMedia?.("(prefers-reduced-motion: reduce)").matches;

/** Shows a run's samples; `videoUrl(run, video)` gives an address, `onShow()` is called when another step is chosen. */
export class SampleStrip {
  constructor(videoUrl, onShow) {
    this.videoUrl = videoUrl;
    this.onShow = onShow;
    this.chosen = null;
    this.groups = [];
    this.tiles = [];
    this.build();
    this.watcher = new IntersectionObserver((seen) => {
      this.visible = seen[seen.length - 1].isIntersecting;
      this.playAll();
    });
    this.watcher.observe(this.row);
    this.sizes = new ResizeObserver(() => this.hint());
    this.sizes.observe(this.row);
  }

  build() {
    this.label = el("span", "vt-strip-step");
    this.slider = el("input", "vt-slider", { type: "range", min: 0, max: 0, step: 1, value: 0 });
    this.slider.setAttribute("aria-label", "Step of the sample videos");
    this.slider.addEventListener("input", () => this.choose(Number(this.slider.value)));
    this.back = el("button", "vt-icon", { type: "button", title: "Earlier samples" }, icon("left"));
    this.forth = el("button", "vt-icon", { type: "button", title: "Later samples" }, icon("right"));
    this.back.addEventListener("click", () => this.choose(this.position() - 1));
    this.forth.addEventListener("click", () => this.choose(this.position() + 1));
    this.chooser = el("div", "vt-chooser", {}, this.back, this.slider, this.forth, this.label);
    this.row = el("div", "vt-tiles");
    this.row.addEventListener("scroll", () => this.hint());
    this.empty = el("div", "vt-strip-empty", { textContent: "Sample videos appear here" });
    this.element = el("section", "vt-strip", {}, el("div", "vt-strip-head", {}, el("h3", "", { textContent: "Samples" }), this.chooser), this.row, this.empty);
    this.element.setAttribute("aria-label", "Sample videos");
  }

  /** Step whose videos are on view, or null. */
  get shownStep() {
    return this.groups[this.position()]?.step ?? null;
  }

  /** Position of the step on view: the chosen one, else the newest. */
  position() {
    const at = this.chosen === null ? -1 : this.groups.findIndex((group) => group.step === this.chosen);
    return at < 0 ? this.groups.length - 1 : at;
  }

  /** Shows the samples at this position; the last one follows new samples as they come. */
  choose(position) {
    const at = Math.max(0, Math.min(this.groups.length - 1, position));
    this.chosen = at === this.groups.length - 1 ? null : (this.groups[at]?.step ?? null);
    this.render();
    this.onShow();
  }

  /** Shows the samples drawn nearest to this step of training. */
  chooseStep(step) {
    if (!this.groups.length) return;
    const distance = (group) => Math.abs(group.step - step);
    this.choose(this.groups.reduce((best, group, i) => (distance(group) < distance(this.groups[best]) ? i : best), 0));
  }

  /** Takes over the run's samples. */
  update(run) {
    if (run !== this.run) this.chosen = null;
    this.run = run;
    this.groups = run ? completeGroups(run) : [];
    this.render();
  }

  render() {
    const at = this.position();
    const group = this.groups[at];
    const last = this.groups.length - 1;
    this.element.classList.toggle("vt-none", !group);
    this.chooser.style.visibility = group ? "visible" : "hidden";
    this.slider.max = Math.max(0, last);
    this.slider.value = at;
    this.slider.disabled = last < 1;
    this.slider.style.setProperty("--vt-share", last > 0 ? at / last : 1);
    this.slider.setAttribute("aria-valuetext", group ? `step ${group.step}` : "");
    this.back.disabled = at <= 0;
    this.forth.disabled = at >= last;
    this.label.textContent = group ? (group.step === 0 ? "before training" : `step ${formatCount(group.step)}`) : "";
    this.fill(group);
  }

  fill(group) {
    const videos = group ? group.videos : [];
    this.row.style.setProperty("--vt-tile-count", videos.length || 1);
    while (this.tiles.length > videos.length) this.tiles.pop().element.remove();
    videos.forEach((video, i) => {
      if (!this.tiles[i]) {
        this.tiles[i] = new Tile();
        this.row.append(this.tiles[i].element);
        this.sizes.observe(this.tiles[i].element);
      }
      if (video) this.tiles[i].show(this.videoUrl(this.run, video), video.prompt);
    });
    this.playAll();
  }

  /** Fades the right edge while there are more videos beyond it. */
  hint() {
    this.row.classList.toggle("vt-more", this.row.scrollWidth - this.row.clientWidth - this.row.scrollLeft > 4);
  }

  /** Plays what is on screen; elements moved by the renderer come back paused. */
  playAll() {
    for (const tile of this.tiles) tile.play(this.visible !== false);
  }

  dispose() {
    this.watcher.disconnect();
    this.sizes.disconnect();
    for (const tile of this.tiles) tile.element.remove();
  }
}

/** The run's samples by step; a step still being drawn waits until all its videos are there. */
function completeGroups(run) {
  const groups = run.samples;
  const [before, newest] = groups.slice(-2);
  const drawing = run.status === "running" && run.phase?.name === "sample";
  return drawing && newest && newest.videos.length < before.videos.length ? groups.slice(0, -1) : groups;
}

/** One prompt's video; the next one is loaded behind it, so that nothing flashes. */
class Tile {
  constructor() {
    this.frame = el("div", "vt-video");
    this.caption = el("figcaption", "");
    this.element = el("figure", "vt-tile", {}, this.frame, this.caption);
    this.url = "";
  }

  show(url, prompt) {
    this.caption.textContent = prompt || "(no prompt)";
    this.element.title = prompt;
    if (!url || url === this.url) return;
    this.url = url;
    const next = el("video", "", { muted: true, loop: true, playsInline: true, autoplay: !still(), controls: still(), preload: "auto" });
    next.setAttribute("muted", "");
    next.setAttribute("aria-label", prompt);
    next.addEventListener("loadeddata", () => this.swap(next, url), { once: true });
    next.addEventListener("error", () => this.fail(url), { once: true });
    next.src = url;
    this.loading = next;
  }

  swap(next, url) {
    if (url !== this.url) return;
    const before = this.video;
    next.classList.toggle("vt-pixels", next.videoWidth <= TINY && next.videoHeight <= TINY);
    this.element.style.setProperty("--vt-aspect", next.videoWidth / next.videoHeight || 1);
    if (before && before.currentTime < next.duration) next.currentTime = before.currentTime;
    this.frame.replaceChildren(next);
    this.video = next;
    this.loading = null;
    this.play(true);
  }

  fail(url) {
    if (url !== this.url) return;
    this.video = null;
    this.frame.replaceChildren(el("span", "vt-lost", { textContent: "This video cannot be shown" }));
  }

  play(on) {
    if (!this.video || still()) return;
    if (on) this.video.play().catch(() => {});
    else this.video.pause();
  }
}
