// Numbers and times as short text of steady width.

export const NONE = "–";

const known = (value) => typeof value === "number" && Number.isFinite(value);

/** Exponent form without padding: 2e-4, 1.5e-5. */
function exponent(value, digits) {
  const [mantissa, power] = value.toExponential(digits).split("e");
  return `${mantissa.replace(/\.?0+$/, "")}e${Number(power)}`;
}

/** A loss with four decimals; tiny ones in exponent form. */
export function formatLoss(value) {
  if (!known(value)) return NONE;
  if (value !== 0 && Math.abs(value) < 0.001) return exponent(value, 2);
  return Math.abs(value) >= 100 ? value.toFixed(1) : value.toFixed(4);
}

/** A learning rate such as 2e-4. */
export function formatRate(value) {
  if (!known(value)) return NONE;
  if (value === 0) return "0";
  return Math.abs(value) >= 0.01 ? String(Number(value.toPrecision(3))) : exponent(value, 2);
}

/** Seconds of one step. */
export function formatSpeed(seconds) {
  if (!known(seconds) || seconds < 0) return NONE;
  return `${seconds.toFixed(seconds < 10 ? 2 : 1)} s/step`;
}

/** A span of time: "45 s", "4 min 05 s", "3 h 20 min", "2 d 4 h". */
export function formatDuration(seconds) {
  if (!known(seconds) || seconds < 0) return NONE;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  const pad = (value) => String(value).padStart(2, "0");
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${pad(whole % 60)} s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 24 * 60) return `${Math.floor(minutes / 60)} h ${pad(minutes % 60)} min`;
  const hours = Math.floor(minutes / 60);
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** Memory in GiB; zero means that nothing was measured. */
export function formatMemory(gib) {
  if (!known(gib) || gib <= 0) return NONE;
  return `${gib.toFixed(gib < 100 ? 1 : 0)} GiB`;
}

/** A whole number with thousands marks. */
export function formatCount(value) {
  return known(value) ? Math.round(value).toLocaleString("en-US") : NONE;
}

/** The last part of a path written with either kind of slash. */
export function fileName(path) {
  return String(path ?? "").split(/[\\/]/).pop();
}
