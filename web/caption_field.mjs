// The caption of one clip: as it is trained, and as its file has it while it is edited.

import { el, icon } from "./elements.mjs";

const KEYS = "Ctrl+Enter saves, Escape takes the edit back";
const SAVED = "Saved; the next run trains with it";

/** `save(id, text)` gives a promise of the clip as it is after the edit, or throws with the reason. */
export class CaptionField {
  constructor(clip, save) {
    this.clip = clip;
    this.save = save;
    this.element = el("div", "vt-caption");
    this.showText("");
  }

  showText(note) {
    const [first, ...more] = this.clip.texts;
    const text = el("p", "vt-caption-text", { textContent: first || "no caption" });
    text.classList.toggle("vt-no-caption", !first);
    text.title = this.clip.locked || [first, ...more].join("\n\n");
    if (more.length) text.append(" ", el("span", "vt-more", { textContent: `+${more.length} more` }));
    const parts = [text];
    if (!this.clip.locked) {
      const edit = el("button", "vt-icon vt-edit", { type: "button", title: "Edit the caption file" }, icon("edit"));
      edit.setAttribute("aria-label", `Edit the caption of ${this.clip.name}`);
      edit.addEventListener("click", () => this.edit());
      text.addEventListener("dblclick", () => this.edit());
      parts.push(edit);
    }
    if (note) parts.push(el("p", "vt-caption-note", { textContent: note, role: "status" }));
    this.element.replaceChildren(...parts);
  }

  edit() {
    this.area = el("textarea", "vt-caption-area", { value: this.clip.text, spellcheck: true, title: KEYS });
    this.area.setAttribute("aria-label", `Caption of ${this.clip.name}`);
    this.area.addEventListener("keydown", (event) => this.key(event));
    this.area.addEventListener("input", () => this.fit());
    this.note = el("span", "vt-caption-note", { role: "status" });
    this.done = el("button", "vt-button vt-small vt-primary", { type: "button", textContent: "Save", title: "Writes the caption file" });
    const back = el("button", "vt-button vt-small", { type: "button", textContent: "Cancel" });
    this.done.addEventListener("click", () => this.send());
    back.addEventListener("click", () => this.showText(""));
    this.element.replaceChildren(this.area, el("div", "vt-caption-foot", {}, this.note, back, this.done));
    this.fit();
    this.area.focus();
  }

  /** As high as its text. */
  fit() {
    this.area.style.height = "auto";
    this.area.style.height = `${this.area.scrollHeight + 2}px`;
  }

  key(event) {
    event.stopPropagation(); // the canvas has keys of its own
    if (event.key === "Escape") this.showText("");
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      this.send();
    }
  }

  async send() {
    if (this.area.value.trim() === this.clip.text) return this.showText("");
    this.done.disabled = true;
    try {
      Object.assign(this.clip, await this.save(this.clip.id, this.area.value));
      this.showText(SAVED);
    } catch (error) {
      this.note.textContent = error.message;
      this.done.disabled = false;
    }
  }
}
