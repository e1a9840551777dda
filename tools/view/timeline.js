// Streams and ranks as lanes: which spans are visible, and their drawing. The canvas is as high as its
// frame, which scrolls.

// The times when a rank communicates and does not compute: [{rank, begin, end}], in order.
function exposedTimes(data, lanes) {
  const exposed = [];
  for (const rank of new Set(lanes.lanes.map((lane) => lane.rank))) {
    const busy = { communication: [], computation: [] };
    lanes.lanes.forEach((lane, l) => {
      if (lane.rank !== rank) return;
      for (let i = lanes.first[l]; i < lanes.first[l + 1]; ++i) {
        const communicates = lanes.op[i] >= 0 && COMMUNICATES.includes(data.kindOf(lanes.op[i]));
        busy[communicates ? "communication" : "computation"].push([lanes.begin[i], lanes.end[i]]);
      }
    });
    const computation = mergeIntervals(busy.computation);
    let next = 0;
    for (let [begin, end] of mergeIntervals(busy.communication)) {
      while (next < computation.length && computation[next][1] <= begin) ++next;
      for (let c = next; begin < end; ++c) {
        const [from, to] = c < computation.length ? computation[c] : [end, end];
        if (from > begin) exposed.push({ rank, begin, end: Math.min(from, end) });
        begin = Math.max(begin, to);
        if (from >= end) break;
      }
    }
  }
  return exposed;
}

function mergeIntervals(intervals) {
  intervals.sort((a, b) => a[0] - b[0]);
  const merged = [];
  for (const [begin, end] of intervals) {
    const last = merged.at(-1);
    if (last && begin <= last[1]) last[1] = Math.max(last[1], end);
    else merged.push([begin, end]);
  }
  return merged;
}

// The boxes of a lane between two times, at `scale` pixels a nanosecond: [{first, last, begin,
// end}]. Spans of less than a pixel share a box. O(boxes * log(spans)).
function boxesOf(lanes, lane, from, to, scale) {
  const last = lanes.first[lane + 1];
  const pixel = 1 / scale;
  const boxes = [];
  let i = lowerBound(lanes.end, from, lanes.first[lane], last);
  while (i < last && lanes.begin[i] < to) {
    const box = { first: i, last: i + 1, begin: lanes.begin[i], end: lanes.end[i] };
    if (box.end - box.begin < pixel) {
      box.last = Math.max(i + 1, lowerBound(lanes.end, box.begin + pixel, i, last));
      box.end = Math.max(lanes.end[box.last - 1], box.begin + pixel);
    }
    boxes.push(box);
    i = box.last;
  }
  return boxes;
}

// The first span of an op that begins no earlier than a time, or else its last one; -1: none.
function spanOfOp(lanes, op, time) {
  let span = lanes.op.indexOf(op);
  for (let next = span; next >= 0 && lanes.begin[span] < time; ) {
    next = lanes.op.indexOf(op, next + 1);
    if (next >= 0) span = next;
  }
  return span;
}

// Steps of a ruler: the smallest of 1, 2, 5 times a power of ten that is not less.
function rulerStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((n) => n * power).find((step) => step >= least);
}

// A time in the unit of the steps: a multiple of them has no fraction.
function rulerLabel(time, step) {
  const units = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]];
  const [unit, size] = units.find(([, size]) => step >= size) || units.at(-1);
  return `${(Math.round(time / size) || 0).toLocaleString("en-US")} ${unit}`;
}

const LANE_HEIGHT = 26;
const LANE_GAP = 6;
const RANK_GAP = 12;
const RULER_HEIGHT = 24;
const GUTTER = 120;
const MAX_ARROWS = 400;

class Timeline {
  // `onSelect(op, span)` is called when the user selects a span.
  constructor(canvas, data, onSelect) {
    this.canvas = canvas;
    this.data = data;
    this.onSelect = onSelect;
    this.selected = -1; // a span
    this.space = canvas.parentElement;
    this.frame = this.space.parentElement;
    this.frame.addEventListener("scroll", () => this.draw());
    new ResizeObserver(() => this.draw()).observe(this.frame);
    canvas.addEventListener("wheel", (event) => this.onWheel(event), { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.onPointerDown(event));
    canvas.addEventListener("pointermove", (event) => this.onPointerMove(event));
    canvas.addEventListener("keydown", (event) => this.onKey(event));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  // Shows these lanes from begin to end.
  show(lanes) {
    this.lanes = lanes;
    this.selected = -1;
    lanes.exposed ||= exposedTimes(this.data, lanes);
    this.tops = [];
    this.bands = new Map(); // by rank: from where to where its lanes are
    let top = RULER_HEIGHT + LANE_GAP;
    lanes.lanes.forEach((lane, l) => {
      if (l > 0 && lane.rank !== lanes.lanes[l - 1].rank) top += RANK_GAP;
      this.tops.push(top);
      const first = this.bands.get(lane.rank)?.top ?? top - 3;
      this.bands.set(lane.rank, { top: first, bottom: top + LANE_HEIGHT + 3 });
      top += LANE_HEIGHT + LANE_GAP;
    });
    this.height = top + 4;
    this.space.style.height = `${this.height}px`;
    this.fit();
  }

  // The whole, or one step.
  fit(step = null) {
    const { lanes } = this;
    let [begin, end] = step ? [step.begin, step.end] : [Infinity, 0];
    if (!step) {
      lanes.lanes.forEach((_, l) => {
        const [first, last] = [lanes.first[l], lanes.first[l + 1]];
        if (first === last) return;
        begin = Math.min(begin, lanes.begin[first]);
        end = Math.max(end, lanes.end[last - 1]);
      });
    }
    if (begin > end) return;
    this.origin = begin; // of the ruler
    const margin = Math.max((end - begin) * 0.01, 1);
    this.from = begin - margin;
    this.to = end + margin;
    this.draw();
  }

  get width() {
    return this.canvas.clientWidth - GUTTER;
  }
  get scale() {
    return this.width / (this.to - this.from);
  }
  xOf(time) {
    return GUTTER + (time - this.from) * this.scale;
  }
  timeOf(x) {
    return this.from + (x - GUTTER) / this.scale;
  }

  // Zooms around a time; pans.
  zoom(factor, around = (this.from + this.to) / 2) {
    if ((this.to - this.from) / factor < 20) return;
    this.from = around - (around - this.from) / factor;
    this.to = around + (this.to - around) / factor;
    this.draw();
  }
  pan(time) {
    this.from += time;
    this.to += time;
    this.draw();
  }

  // Selects a span, and brings it into view.
  select(span) {
    this.selected = span;
    if (span >= 0) {
      const [begin, end] = [this.lanes.begin[span], this.lanes.end[span]];
      const length = this.to - this.from;
      if (end < this.from || begin > this.to || (end - begin) * this.scale < 3) {
        const shown = Math.min(length, Math.max((end - begin) * 60, 2000));
        this.from = (begin + end) / 2 - shown / 2;
        this.to = this.from + shown;
      }
    }
    this.draw();
  }
  // Selects the first span of an op in view or after it, or else its last one.
  selectOp(op) {
    this.select(spanOfOp(this.lanes, op, this.from));
  }

  // At a place of the canvas.
  spanAt(x, y) {
    if (x < GUTTER || y < RULER_HEIGHT) return -1;
    const place = y + this.frame.scrollTop;
    const lane = this.tops.findIndex((top) => top <= place && place < top + LANE_HEIGHT);
    if (lane < 0) return -1;
    const [first, last] = [this.lanes.first[lane], this.lanes.first[lane + 1]];
    const slack = 1 / this.scale;
    const span = lowerBound(this.lanes.end, this.timeOf(x) - slack, first, last);
    return span < last && this.lanes.begin[span] <= this.timeOf(x) + slack ? span : -1;
  }

  onWheel(event) {
    event.preventDefault();
    if (event.ctrlKey || event.metaKey || Math.abs(event.deltaY) > Math.abs(event.deltaX)) {
      this.zoom(Math.exp(-event.deltaY / 300), this.timeOf(event.offsetX));
    } else {
      this.pan(event.deltaX / this.scale);
    }
  }
  onPointerDown(event) {
    this.canvas.setPointerCapture(event.pointerId);
    this.drag = { x: event.offsetX, from: this.from, to: this.to, moved: false };
    const end = () => {
      this.canvas.removeEventListener("pointerup", end);
      const { moved } = this.drag;
      this.drag = null;
      if (moved) return;
      const span = this.spanAt(event.offsetX, event.offsetY);
      if (span < 0) return;
      this.select(span);
      this.onSelect(this.lanes.op[span], span);
    };
    this.canvas.addEventListener("pointerup", end);
  }
  onPointerMove(event) {
    if (!this.drag) {
      const span = this.spanAt(event.offsetX, event.offsetY);
      this.canvas.title = span < 0 ? "" : this.describe(span);
      return;
    }
    const moved = event.offsetX - this.drag.x;
    if (Math.abs(moved) > 3) this.drag.moved = true;
    const time = moved / this.scale;
    this.from = this.drag.from - time;
    this.to = this.drag.to - time;
    this.draw();
  }
  onKey(event) {
    const step = (this.to - this.from) / 8;
    const actions = {
      "+": () => this.zoom(1.5),
      "=": () => this.zoom(1.5),
      "-": () => this.zoom(1 / 1.5),
      "0": () => this.fit(),
      a: () => this.pan(-step),
      d: () => this.pan(step),
      ArrowLeft: () => this.move(-1),
      ArrowRight: () => this.move(1),
    };
    const action = actions[event.key];
    if (!action || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    action();
  }
  // Selects the next span, or the one before, of the lane.
  move(by) {
    const next = Math.max(0, this.selected + by);
    if (next >= this.lanes.op.length) return;
    this.select(next);
    this.onSelect(this.lanes.op[next], next);
  }

  describe(span) {
    const { lanes, data } = this;
    const op = lanes.op[span];
    const name = op < 0 ? "not an op of the program" : `${data.titleOf(op)} (${data.typeOf(op)})`;
    const time = formatTime(lanes.end[span] - lanes.begin[span]);
    const bytes = lanes.bytes[span] > 0 ? `, ${formatBytes(lanes.bytes[span])}` : "";
    const lane = lanes.lanes[lanes.lane[span]];
    return `${name}: ${time}${bytes}, rank ${lane.rank}, ${lane.stream}`;
  }

  draw() {
    if (!this.lanes || this.canvas.clientWidth === 0) return;
    this.shown = Math.min(this.height, this.frame.clientHeight); // pixels
    const ratio = devicePixelRatio || 1;
    this.canvas.style.height = `${this.shown}px`;
    this.canvas.width = Math.round(this.canvas.clientWidth * ratio);
    this.canvas.height = Math.round(this.shown * ratio);
    const context = this.canvas.getContext("2d");
    context.scale(ratio, ratio);
    const style = getComputedStyle(this.canvas);
    this.color = (name) => style.getPropertyValue(`--${name}`).trim();
    context.font = `11px ${style.fontFamily}`;
    context.textBaseline = "middle";
    this.drawRuler(context);
    this.drawBelowRuler(context, 0, () => this.drawNames(context));
    this.drawBelowRuler(context, GUTTER, () => {
      this.drawExposed(context);
      this.tops.forEach((top, lane) => {
        if (this.isShown(top, top + LANE_HEIGHT)) this.drawLane(context, lane, top);
      });
      this.drawWaits(context);
    });
  }
  // Draws where the frame is scrolled to, right of `left`.
  drawBelowRuler(context, left, draw) {
    context.save();
    context.beginPath();
    context.rect(left, RULER_HEIGHT, this.canvas.clientWidth - left, this.shown - RULER_HEIGHT);
    context.clip();
    context.translate(0, -this.frame.scrollTop);
    draw();
    context.restore();
  }
  isShown(top, bottom) {
    const { scrollTop } = this.frame;
    return bottom >= scrollTop + RULER_HEIGHT && top <= scrollTop + this.shown;
  }

  drawRuler(context) {
    const step = rulerStep(90 / this.scale);
    context.fillStyle = this.color("muted");
    context.strokeStyle = this.color("line");
    const from = this.from - this.origin;
    for (let time = Math.ceil(from / step) * step; time < this.to - this.origin; time += step) {
      const x = Math.round(this.xOf(time + this.origin)) + 0.5;
      if (x < GUTTER) continue;
      context.beginPath();
      context.moveTo(x, RULER_HEIGHT - 4);
      context.lineTo(x, this.shown);
      context.stroke();
      context.fillText(rulerLabel(time, step), x + 4, RULER_HEIGHT / 2);
    }
  }

  drawExposed(context) {
    context.fillStyle = this.color("exposed");
    for (const { rank, begin, end } of this.lanes.exposed) {
      const { top, bottom } = this.bands.get(rank);
      if (end < this.from || begin > this.to || !this.isShown(top, bottom)) continue;
      context.fillRect(this.xOf(begin), top, Math.max((end - begin) * this.scale, 1), bottom - top);
    }
  }

  drawLane(context, lane, top) {
    context.fillStyle = this.color("lane");
    context.fillRect(GUTTER, top, this.width, LANE_HEIGHT);
    for (const box of boxesOf(this.lanes, lane, this.from, this.to, this.scale)) {
      const x = this.xOf(box.begin);
      const width = Math.max((box.end - box.begin) * this.scale, 1);
      const op = this.lanes.op[box.first];
      context.fillStyle = this.color(op < 0 ? "muted" : this.data.classOf(op));
      context.fillRect(x, top, width > 8 ? width - 1 : width, LANE_HEIGHT);
      const isSelected = box.first <= this.selected && this.selected < box.last;
      if (isSelected) {
        context.strokeStyle = this.color("focus");
        context.lineWidth = 2;
        context.strokeRect(x + 1, top + 1, Math.max(width - 2, 2), LANE_HEIGHT - 2);
        context.lineWidth = 1;
      }
      if (width > 40 && op >= 0) this.drawLabel(context, this.data.typeOf(op), x, top, width);
    }
  }

  drawLabel(context, text, x, top, width) {
    const begin = Math.max(x, GUTTER);
    const room = x + width - begin - 10;
    if (room < 24) return;
    context.save();
    context.beginPath();
    context.rect(begin, top, room + 6, LANE_HEIGHT);
    context.clip();
    context.fillStyle = this.color("on-op");
    context.fillText(text, begin + 5, top + LANE_HEIGHT / 2 + 0.5);
    context.restore();
  }

  // Waiting is a line in the lane; an arrow leads there from what is waited for.
  drawWaits(context) {
    const { waits } = this.lanes;
    let arrows = 0;
    for (let i = 0; i < waits.lane.length; ++i) {
      const end = waits.begin[i] + waits.duration[i];
      const first = waits.from[i] < 0 ? waits.begin[i] : Math.min(waits.begin[i], waits.fromTime[i]);
      if (end < this.from || first > this.to) continue;
      const { top, bottom } = this.bands.get(this.lanes.lanes[waits.lane[i]].rank);
      if (!this.isShown(top, bottom)) continue;
      const y = this.tops[waits.lane[i]] + LANE_HEIGHT / 2;
      context.strokeStyle = this.color("wait");
      context.setLineDash([3, 3]);
      context.beginPath();
      context.moveTo(this.xOf(waits.begin[i]), y);
      context.lineTo(this.xOf(end), y);
      context.stroke();
      context.setLineDash([]);
      if (waits.from[i] < 0 || ++arrows > MAX_ARROWS) continue;
      this.drawArrow(context, this.xOf(waits.fromTime[i]), waits.from[i], this.xOf(end),
        waits.lane[i]);
    }
  }

  drawArrow(context, fromX, fromLane, toX, toLane) {
    const down = this.tops[toLane] > this.tops[fromLane];
    const fromY = this.tops[fromLane] + (down ? LANE_HEIGHT : 0);
    const toY = this.tops[toLane] + (down ? 0 : LANE_HEIGHT);
    const middle = (fromY + toY) / 2;
    context.strokeStyle = this.color("arrow");
    context.fillStyle = this.color("arrow");
    context.beginPath();
    context.moveTo(fromX, fromY);
    context.bezierCurveTo(fromX, middle, toX, middle, toX, toY);
    context.stroke();
    const tip = down ? -5 : 5;
    context.beginPath();
    context.moveTo(toX, toY);
    context.lineTo(toX - 3.5, toY + tip);
    context.lineTo(toX + 3.5, toY + tip);
    context.fill();
  }

  drawNames(context) {
    let rank = null;
    this.lanes.lanes.forEach((lane, l) => {
      const y = this.tops[l] + LANE_HEIGHT / 2;
      const isFirst = lane.rank !== rank;
      ({ rank } = lane);
      if (!this.isShown(y, y)) return;
      context.fillStyle = this.color("text");
      context.textAlign = "right";
      context.fillText(lane.stream, GUTTER - 8, y);
      context.textAlign = "left";
      if (isFirst) {
        context.fillStyle = this.color("muted");
        context.fillText(this.lanes.isPredicted ? "each rank" : `rank ${lane.rank}`, 6, y);
      }
    });
  }
}
