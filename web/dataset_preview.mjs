// A dataset as the model will see it: counts, clips per bucket, what is left out and why, and the contact sheet.

import { CaptionField } from "./caption_field.mjs";
import { el } from "./elements.mjs";
import { formatCount } from "./format.mjs";
import { themeOf } from "./theme.mjs";

const COUNTS = [
  ["kept", "Kept", "Clips that are trained on"],
  ["skipped", "Left out", "Clips that are not trained on; the reasons are below"],
  ["shortened", "Shortened", "Kept clips of which frames are left out to fit their bucket"],
  ["retimed", "Retimed", "Kept clips whose frames are dropped or doubled to reach the frame rate"],
];
const EMPTY = "Press Run to see what the model will see: frames, captions, buckets, and clips that are left out.";
const LOST = "This preview is not of this session. Press Run to make it anew.";
const TINY = 160;

/** Builds the element once; `host` gives pictureUrl(file) and saveCaption(clip, text) -> promise of the clip as it is then. */
export class DatasetPreview {
  constructor(host) {
    this.host = host;
    this.id = "";
    this.build();
  }

  build() {
    this.values = {};
    const cells = COUNTS.map(([name, label, title]) => {
      this.values[name] = el("dd", "");
      return el("div", `vt-stat vt-stat-${name}`, { title }, el("dt", "", { textContent: label }), this.values[name]);
    });
    this.empty = el("p", "vt-preview-empty", { textContent: EMPTY });
    this.buckets = el("ul", "vt-buckets");
    this.epoch = el("span", "vt-range");
    this.leftOut = new Reasons("vt-left-out");
    this.notices = new Reasons("vt-told");
    this.range = el("span", "vt-range");
    this.cards = el("div", "vt-cards");
    this.body = el(
      "div", "vt-scroll", { tabIndex: 0 },
      section("Clips per bucket", this.epoch, this.buckets), this.leftOut.element, this.notices.element, section("What the model sees", this.range, this.cards),
    );
    this.body.setAttribute("aria-label", "Dataset preview");
    this.body.dataset.captureWheel = "true";
    this.busy = el("p", "vt-busy", { hidden: true });
    this.busy.setAttribute("role", "status");
    this.element = el("div", "vt-preview", {}, el("dl", "vt-counts", {}, ...cells), this.body, this.empty, this.busy);
    this.element.dataset.status = "waiting";
  }

  /** Shows a preview; null says that the server no longer has it. */
  show(shown) {
    this.id = shown?.id ?? "";
    this.element.dataset.status = shown ? "shown" : "waiting";
    this.empty.textContent = shown === null ? LOST : EMPTY;
    this.announce("");
    if (shown) this.render(shown);
    this.refresh();
  }

  /** Shows a line of progress; an empty one takes it away. */
  announce(text) {
    this.busy.textContent = text;
    this.busy.hidden = !text;
  }

  /** Follows the palette. */
  refresh() {
    requestAnimationFrame(() => (this.element.dataset.theme = themeOf(this.element)));
  }

  render(shown) {
    for (const [name] of COUNTS) this.values[name].textContent = formatCount(shown[name]);
    this.element.classList.toggle("vt-some-left-out", shown.skipped > 0);
    const most = Math.max(1, ...shown.buckets.map(([, count]) => count));
    this.buckets.replaceChildren(...shown.buckets.map(([name, count]) => bucketRow(name, count, count / most)));
    this.buckets.parentElement.hidden = !shown.buckets.length;
    this.epoch.textContent = this.epoch.title = shown.epoch;
    this.leftOut.show(
      `${plural(shown.skipped, "clip")} left out`,
      shown.dropped.map(({ name, why, cure }) => [el("b", "", { textContent: name }), ` ${why}. `, el("span", "vt-cure", { textContent: cure })]),
    );
    if (!shown.kept) this.leftOut.element.open = true;
    this.notices.show(plural(shown.notices.length, "notice"), shown.notices.map((text) => [text]));
    const count = shown.clips.length;
    this.range.textContent = count ? `${rangeText(shown.first, count)} of ${plural(shown.kept, "clip")} · ${shown.texts}` : "";
    this.range.title = this.range.textContent;
    this.cards.replaceChildren(...shown.clips.map((clip) => card(clip, this.host)));
    this.cards.parentElement.hidden = !count;
  }
}

/** A list that is folded away under its heading. */
class Reasons {
  constructor(className) {
    this.head = el("summary", "");
    this.list = el("ul", "");
    this.element = el("details", `vt-reasons ${className}`, { hidden: true }, this.head, this.list);
  }

  show(title, lines) {
    this.head.textContent = title;
    this.list.replaceChildren(...lines.map((parts) => el("li", "", {}, ...parts)));
    this.element.hidden = !lines.length;
  }
}

function section(title, aside, content) {
  const head = el("div", "vt-section-head", {}, el("h3", "", { textContent: title }), aside);
  return el("section", "", {}, head, content);
}

function bucketRow(name, count, share) {
  const bar = el("span", "vt-bucket-bar");
  bar.style.setProperty("--vt-share", share);
  return el(
    "li", "vt-bucket", { title: `${plural(count, "clip")} at ${sizeText(name)} (frames × height × width)` },
    el("span", "vt-bucket-name", { textContent: sizeText(name) }), el("span", "vt-bucket-track", {}, bar), el("span", "vt-bucket-count", { textContent: formatCount(count) }),
  );
}

/** A clip: its frames, what it is trained as, and its caption. */
function card(clip, host) {
  const strip = el("div", "vt-frames", { role: "img" });
  strip.setAttribute("aria-label", `${clip.frames} frames of ${clip.name}`);
  const url = `url("${host.pictureUrl(clip.strip)}")`;
  const last = Math.max(1, clip.frames - 1);
  for (let i = 0; i < clip.frames; i++) {
    const frame = el("div", "vt-frame", { title: `frame ${clip.places[i]}` });
    frame.classList.toggle("vt-pixels", Math.max(clip.width, clip.height) <= TINY);
    frame.style.backgroundImage = url;
    frame.style.backgroundSize = `${clip.frames * 100}% 100%`;
    frame.style.backgroundPositionX = `${(i / last) * 100}%`;
    frame.style.aspectRatio = `${clip.width} / ${clip.height}`;
    strip.append(frame);
  }
  const facts = clip.facts.map((text) => el("span", "vt-fact", { textContent: sizeText(text) }));
  const head = el("div", "vt-card-head", { title: clip.about }, el("span", "vt-name", { textContent: clip.name }), ...facts);
  return el("article", "vt-card", {}, strip, head, new CaptionField(clip, host.saveCaption).element);
}

function rangeText(first, count) {
  return count > 1 ? `${formatCount(first)}–${formatCount(first + count - 1)}` : formatCount(first);
}

const sizeText = (text) => text.replace(/(\d)x(?=\d)/g, "$1×");
const plural = (count, what) => `${formatCount(count)} ${what}${count === 1 ? "" : "s"}`;
