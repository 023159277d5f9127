// Colours of the canvas chart, taken from the ComfyUI palette in force.

const ACCENTS = {
  dark: { accent: "#6ea8fe", raw: "rgba(110, 168, 254, 0.38)", fill: "rgba(110, 168, 254, 0.20)", fillEnd: "rgba(110, 168, 254, 0)", mark: "#f5b94d" },
  light: { accent: "#2563eb", raw: "rgba(37, 99, 235, 0.32)", fill: "rgba(37, 99, 235, 0.14)", fillEnd: "rgba(37, 99, 235, 0)", mark: "#c2700a" },
};

/** "dark" or "light", by the surface that the element is drawn on. */
export function themeOf(element) {
  const [red, green, blue] = channels(getComputedStyle(element).backgroundColor);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue < 140 ? "dark" : "light";
}

/** The chart's colours on this element. */
export function chartColors(element) {
  const style = getComputedStyle(element);
  const own = (name) => style.getPropertyValue(name).trim();
  return {
    ...ACCENTS[element.dataset.theme === "light" ? "light" : "dark"],
    text: style.color,
    muted: own("--vt-muted-solid") || style.color,
    grid: own("--vt-grid"),
    border: own("--vt-line"),
    surface: style.backgroundColor,
  };
}

let probe;

/** Red, green and blue of any CSS colour, 0 to 255. */
function channels(color) {
  probe ??= Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
  probe.fillStyle = "#222";
  probe.fillStyle = color;
  probe.fillRect(0, 0, 1, 1);
  return probe.getImageData(0, 0, 1, 1).data;
}
