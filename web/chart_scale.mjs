// Arithmetic of the loss chart: ticks, ranges and thinning; no drawing.

/** About `count` round tick values inside [low, high]. */
export function niceTicks(low, high, count, whole = false) {
  if (!(high > low) || count < 1) return Number.isFinite(low) ? [low] : [];
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  let step = [1, 2, 2.5, 5, 10].find((factor) => factor * power >= rough * 0.999) * power;
  if (whole) step = Math.max(1, Math.round(step));
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

/** Decimals that tell neighbouring ticks apart. */
export function tickDecimals(ticks) {
  if (ticks.length < 2) return 3;
  for (let decimals = 0; decimals < 8; decimals += 1) {
    if (ticks.every((tick) => Math.abs(tick - Number(tick.toFixed(decimals))) < Math.abs(ticks[1] - ticks[0]) / 100)) return decimals;
  }
  return 8;
}

/** First and last step of the axis: a short run that is training has room for its next steps, one that ended has none. */
export function stepRange(steps, firstSample, total, running) {
  const first = steps[0] <= 1 ? 0 : Math.min(steps[0], firstSample ?? Infinity);
  const end = steps[steps.length - 1];
  return [first, Math.max(end, first + 1, running ? Math.min(first + 10, total || Infinity) : 0)];
}

/** Range of the loss axis: all of the smoothed line, and the raw one without its rare peaks. */
export function lossRange(losses, smooth) {
  const raw = sorted(losses);
  if (!raw.length) return [0, 1];
  const mean = sorted(smooth);
  const low = Math.min(raw[Math.floor(raw.length * 0.002)], mean[0]);
  const high = Math.max(raw[Math.ceil((raw.length - 1) * 0.98)], mean[mean.length - 1]);
  const room = (high - low || Math.abs(high) || 1) * 0.08;
  return [low >= 0 ? Math.max(0, low - room) : low - room, high + room];
}

/** Finite values in order, of at most 4,000 taken evenly. */
function sorted(values) {
  const stride = Math.max(1, Math.floor(values.length / 4000));
  const some = [];
  for (let i = 0; i < values.length; i += stride) if (Number.isFinite(values[i])) some.push(values[i]);
  return Float64Array.from(some).sort();
}

/** Positions to draw of a long line: the lowest and the highest of each of `buckets` parts, and both ends. */
export function thin(values, buckets) {
  const count = values.length;
  if (count <= buckets * 2) return Array.from({ length: count }, (_, i) => i);
  const kept = [0];
  for (let bucket = 0; bucket < buckets; bucket += 1) {
    const from = Math.floor((bucket * count) / buckets);
    const to = Math.floor(((bucket + 1) * count) / buckets);
    let low = from;
    let high = from;
    for (let i = from + 1; i < to; i += 1) {
      if (values[i] < values[low] || Number.isNaN(values[low])) low = i;
      if (values[i] > values[high] || Number.isNaN(values[high])) high = i;
    }
    for (const i of low <= high ? [low, high] : [high, low]) if (i > kept[kept.length - 1]) kept.push(i);
  }
  if (kept[kept.length - 1] !== count - 1) kept.push(count - 1);
  return kept;
}

/** Position of the value nearest to `target` in a rising list; -1 when it is empty. */
export function nearest(values, target) {
  if (!values.length) return -1;
  let low = 0;
  let high = values.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < target) low = middle + 1;
    else high = middle;
  }
  return low > 0 && target - values[low - 1] < values[low] - target ? low - 1 : low;
}
