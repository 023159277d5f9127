// The state of one run, folded from its events in the order of the log.

import { fileName } from "./format.mjs";

const PHASES = {
  load: "Loading the model",
  prepare: "Preparing",
  train: "Training",
  sample: "Drawing samples",
};
const SMOOTHING = { share: 20, least: 5, most: 100 };

/** An empty run. `status`: waiting, running, finished, stopped or failed. */
export function createRun(id) {
  return {
    id,
    folder: "",
    missing: false,
    lastIndex: -1,
    status: "waiting",
    phase: null,
    progress: null,
    total: 0,
    last: null,
    steps: [],
    losses: [],
    smooth: [],
    rates: [],
    decay: 0,
    samples: [],
    checkpoints: [],
    notices: [],
    launch: 0,
    failure: "",
    lora: "",
  };
}

/** Folds one event into the run; events already seen are ignored. */
export function applyEvent(run, event) {
  if (event.index <= run.lastIndex) return false;
  run.lastIndex = event.index;
  HANDLERS[event.type]?.(run, event);
  return true;
}

const HANDLERS = {
  phase(run, event) {
    begin(run);
    run.phase = { name: event.name, detail: event.detail ?? "" };
    run.progress = null;
  },
  progress(run, event) {
    begin(run);
    run.progress = { done: event.done, total: event.total, unit: event.unit, secondsLeft: event.seconds_left ?? null };
  },
  step(run, event) {
    begin(run);
    run.total = event.total;
    run.last = event;
    if (run.phase?.name !== "train") run.phase = { name: "train", detail: "" };
    run.progress = null;
    addLoss(run, event);
  },
  sample(run, event) {
    let group = run.samples.find((one) => one.step === event.step);
    if (!group) {
      group = { step: event.step, videos: [] };
      run.samples.push(group);
      run.samples.sort((a, b) => a.step - b.step);
    }
    group.videos[event.slot] = { prompt: event.prompt, file: event.file, time: event.time };
  },
  checkpoint(run, event) {
    run.checkpoints.push({ step: event.step, lora: event.lora ?? "" });
  },
  notice(run, event) {
    addNotice(run, event.level, event.text, event.where ?? "");
  },
  resumed(run, event) {
    begin(run);
    dropAfter(run, event.step);
  },
  finished(run, event) {
    end(run, "finished");
    run.lora = event.lora ?? "";
  },
  stopped(run) {
    end(run, "stopped");
  },
  failed(run, event) {
    end(run, "failed");
    run.failure = event.text;
  },
};

function begin(run) {
  run.status = "running";
  run.failure = "";
}

function end(run, status) {
  run.status = status;
  run.progress = null;
  run.launch += 1;
}

function addLoss(run, event) {
  if (run.steps.length === 0 || run.decay === 0) {
    const span = Math.min(SMOOTHING.most, Math.max(SMOOTHING.least, event.total / SMOOTHING.share));
    run.decay = 1 - 1 / span;
  }
  const loss = Number.isFinite(event.loss) ? event.loss : NaN;
  run.steps.push(event.step);
  run.losses.push(loss);
  run.rates.push(event.lr);
  run.smooth.push(nextMean(run, loss));
}

/** The running mean with its start corrected, so that the first steps are not pulled towards zero. */
function nextMean(run, loss) {
  const count = run.smooth.length;
  const before = count ? run.smooth[count - 1] : NaN;
  if (!Number.isFinite(loss)) return before;
  if (!Number.isFinite(before)) return loss;
  const weight = 1 - run.decay ** count;
  return (before * weight * run.decay + loss * (1 - run.decay)) / (1 - run.decay ** (count + 1));
}

/** Drops what a resumed run undid: steps, samples and checkpoints after `step`. */
function dropAfter(run, step) {
  let kept = run.steps.length;
  while (kept > 0 && run.steps[kept - 1] > step) kept -= 1;
  for (const list of [run.steps, run.losses, run.smooth, run.rates]) list.length = kept;
  run.samples = run.samples.filter((group) => group.step <= step);
  run.checkpoints = run.checkpoints.filter((checkpoint) => checkpoint.step <= step);
  if (run.last && run.last.step > step) {
    run.last = kept ? { ...run.last, step: run.steps[kept - 1], loss: run.losses[kept - 1], lr: run.rates[kept - 1], seconds_left: null } : null;
  }
}

/** Adds a notice; one that was said before is counted, or starts anew when a run that ended goes on. */
function addNotice(run, level, text, where) {
  const { launch } = run;
  const same = run.notices.find((notice) => notice.text === text && notice.where === where && notice.level === level);
  if (!same) run.notices.push({ level, text, where, launch, count: 1 });
  else Object.assign(same, { launch, count: same.launch === launch ? same.count + 1 : 1 });
}

/** The line that says what the run is doing now. */
export function phaseText(run) {
  if (run.missing) return "The folder of this run is gone";
  if (run.status === "finished") return run.lora ? `Finished: ${fileName(run.lora)}` : "Finished";
  if (run.status === "stopped") return "Stopped; Run again goes on from here";
  if (run.status === "failed") return "Failed";
  if (run.status === "waiting" || !run.phase) return "Ready";
  const { name, detail } = run.phase;
  if (name === "prepare" && detail) return detail;
  return detail ? `${phaseName(name)}: ${detail}` : phaseName(name);
}

function phaseName(name) {
  return PHASES[name] ?? name;
}

/** The server's line of progress, "prepare · 3/12 clips", in the monitor's words. */
export function progressText(line) {
  const [name, ...rest] = line.split(" · ");
  return [phaseName(name), ...rest].join(" · ");
}
