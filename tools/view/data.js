// The data of the page: unpacks what tools/view/page.cc packs. No DOM here.

const OP_INSERTED = 1;
const OP_CHANGED = 2;
const COMMUNICATES = ["collective", "message"];  // kinds of ops

// Control characters, and those that change the direction of writing, are shown as escapes: a name
// looks like what it is.
function visible(text) {
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g,
    (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

// Strings of a column, decoded one by one as they are needed.
class Strings {
  constructor(bytes, offsets) {
    this.bytes = bytes;
    this.offsets = offsets; // one more than strings
    this.length = offsets.length - 1;
    this.decoder = new TextDecoder();
  }
  get(i) {
    return visible(this.decoder.decode(this.bytes.subarray(this.offsets[i], this.offsets[i + 1])));
  }
}

// Reads numbers in LEB128. Up to 2^53 they are exact.
class Leb128Reader {
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
  }
  next() {
    const { bytes } = this;
    let byte = bytes[this.at++];
    let value = byte & 0x7f;
    let factor = 128;
    while (byte >= 0x80) {
      byte = bytes[this.at++];
      value += (byte & 0x7f) * factor;
      factor *= 128;
    }
    return value;
  }
}

function readIntegers(bytes, count, Type) {
  const reader = new Leb128Reader(bytes);
  const values = new Type(count);
  let value = 0;
  for (let i = 0; i < count; ++i) {
    const zigzag = reader.next();
    value += zigzag % 2 === 0 ? zigzag / 2 : -(zigzag + 1) / 2;
    values[i] = value;
  }
  return values;
}

function readStrings(bytes, count) {
  const reader = new Leb128Reader(bytes);
  const offsets = new Uint32Array(count + 1);
  for (let i = 0; i < count; ++i) offsets[i + 1] = offsets[i] + reader.next();
  return new Strings(bytes.subarray(reader.at), offsets);
}

// The columns behind a header. A missing column is empty.
class Columns {
  constructor(bytes) {
    const size = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
    this.header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + size)));
    this.columns = new Map();
    let at = 4 + size;
    for (const column of this.header.columns) {
      this.columns.set(column.name, { ...column, bytes: bytes.subarray(at, at + column.size) });
      at += column.size;
    }
  }
  integers(name, Type = Int32Array) {
    const column = this.columns.get(name);
    return column ? readIntegers(column.bytes, column.count, Type) : new Type(0);
  }
  strings(name) {
    const column = this.columns.get(name);
    return column ? readStrings(column.bytes, column.count) : new Strings(new Uint8Array(0), [0]);
  }
}

async function unpackBase64(text) {
  const binary = atob(text);
  const packed = new Uint8Array(binary.length);
  for (let i = 0; i < packed.length; ++i) packed[i] = binary.charCodeAt(i);
  const plain = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(plain).arrayBuffer());
}

// sums[i]: of the values before i.
function prefixSums(count, valueOf) {
  const sums = new Float64Array(count + 1);
  for (let i = 0; i < count; ++i) sums[i + 1] = sums[i] + valueOf(i);
  return sums;
}

// When ops run: `prefix` is "predicted" or "measured". Times are nanoseconds.
class LaneData {
  constructor(columns, prefix, numOps) {
    const header = columns.header[prefix];
    const integers = (name, Type) => columns.integers(`${prefix}_${name}`, Type);
    this.isPredicted = prefix === "predicted"; // for each rank
    this.lanes = header.lanes;
    this.totals = header.totals;
    this.steps = header.steps.map(([rank, step, begin, end]) => ({ rank, step, begin, end }));
    this.lane = integers("lane");
    this.op = integers("op");
    this.begin = integers("begin", Float64Array);
    const duration = integers("duration", Float64Array);
    this.end = this.begin.map((begin, i) => begin + duration[i]);
    this.bytes = integers("bytes", Float64Array);
    this.waits = {
      lane: integers("wait_lane"),
      begin: integers("wait_begin", Float64Array),
      duration: integers("wait_duration", Float64Array),
      from: integers("wait_from"),
      fromTime: integers("wait_from_time", Float64Array),
    };
    this.timeOfOp = integers("time_of_op", Float64Array);
    this.timeBefore = prefixSums(numOps, (op) => this.timeOfOp[op] || 0);
    // Spans of lane l: from first[l] to first[l + 1].
    this.first = new Uint32Array(this.lanes.length + 1);
    for (let i = 0; i < this.lane.length; ++i) this.first[this.lane[i] + 1] = i + 1;
    for (let l = 1; l <= this.lanes.length; ++l) {
      this.first[l] = Math.max(this.first[l], this.first[l - 1]);
    }
  }
  get isEmpty() {
    return this.lane.length === 0;
  }
}

// A program, what a rewrite did to it, its findings, and its times.
class ViewData {
  constructor(columns) {
    const { header } = columns;
    this.name = header.name;
    this.verdict = header.verdict;
    this.hasOriginal = header.has_original;
    this.hasRemarks = header.has_remarks;
    this.findings = header.findings;
    this.roles = header.roles;
    this.blocks = header.blocks;
    this.signatures = header.signatures;
    this.names = columns.strings("names");
    this.texts = columns.strings("texts");
    this.signature = columns.integers("signature");
    this.role = columns.integers("role");
    this.args = columns.integers("args");
    this.attrs = columns.integers("attrs");
    this.note = columns.integers("note");
    this.bytes = columns.integers("bytes", Float64Array);
    this.typeOfName = columns.integers("type_of_name");
    this.persistable = columns.integers("persistable", Uint8Array);
    this.numOps = this.signature.length;
    this.readSlots();
    this.node = {
      name: columns.strings("node_name"),
      depth: columns.integers("node_depth"),
      begin: columns.integers("node_begin"),
      end: columns.integers("node_end"),
    };
    this.readChanges(columns);
    this.findingsOfOp = new Map();
    this.findings.forEach((finding, i) => {
      for (const op of new Set([finding.op, finding.other])) {
        if (op < 0) continue;
        if (!this.findingsOfOp.has(op)) this.findingsOfOp.set(op, []);
        this.findingsOfOp.get(op).push(i);
      }
    });
    this.predicted = new LaneData(columns, "predicted", this.numOps);
    this.measured = header.measured ? new LaneData(columns, "measured", this.numOps) : null;
  }

  readSlots() {
    const countArgs = (slots) => slots.reduce((sum, [, count]) => sum + count, 0);
    const inputs = this.signatures.map((s) => (s ? countArgs(s.in) : 0));
    const outputs = this.signatures.map((s) => (s ? countArgs(s.out) : 0));
    this.numInputs = inputs; // by signature
    // Arguments of op i: from firstArg[i] to firstArg[i + 1], inputs first.
    this.firstArg = new Uint32Array(this.numOps + 1);
    for (let op = 0; op < this.numOps; ++op) {
      const signature = this.signature[op];
      this.firstArg[op + 1] = this.firstArg[op] + inputs[signature] + outputs[signature];
    }
  }

  readChanges(columns) {
    this.change = this.hasOriginal
      ? columns.integers("change", Uint8Array)
      : new Uint8Array(this.numOps);
    this.insertedBefore = prefixSums(this.numOps, (op) => (this.change[op] === OP_INSERTED ? 1 : 0));
    this.changedBefore = prefixSums(this.numOps, (op) => (this.change[op] === OP_CHANGED ? 1 : 0));
    const changedText = columns.strings("changed_text");
    this.changedText = new Map();
    columns.integers("changed_op").forEach((op, i) => this.changedText.set(op, changedText.get(i)));
    this.removed = {
      before: columns.integers("removed_before"),
      text: columns.strings("removed_text"),
    };
    this.reasonOp = columns.integers("reason_op"); // ascending
    this.reason = columns.integers("reason");
    const remarks = (field) => columns.strings(`remark_${field}`);
    this.remarks = {
      pass: remarks("pass"),
      subject: remarks("subject"),
      what: remarks("what"),
      why: remarks("why"),
      details: remarks("details"),
    };
  }

  kindOf(op) {
    return this.signatures[this.signature[op]].kind;
  }
  typeOf(op) {
    return this.names.get(this.signatures[this.signature[op]].type);
  }
  roleName(op) {
    return this.roles[this.role[op]];
  }
  // What an op is to the eye: its colour.
  classOf(op) {
    const kind = this.kindOf(op);
    if (COMMUNICATES.includes(kind)) return "collective";
    if (kind === "sync" || kind === "fuse" || kind === "setup") return "sync";
    const role = this.role[op];
    if (role & 0x10) return "rate";
    if (role & 0x01) return "backward";
    if (role & 0x02) return "update";
    if (role & 0x0c) return "sync";
    return "forward";
  }
  blockOf(op) {
    let block = this.blocks.length - 1;
    while (block > 0 && this.blocks[block].first > op) --block;
    return block;
  }
  // "op 17", "block 1, op 0": as messages and weft show count.
  titleOf(op) {
    const block = this.blockOf(op);
    const position = op - this.blocks[block].first;
    return block === 0 ? `op ${position}` : `block ${block}, op ${position}`;
  }
  inputsOf(op) {
    const first = this.firstArg[op];
    return this.args.subarray(first, first + this.numInputs[this.signature[op]]);
  }
  outputsOf(op) {
    const first = this.firstArg[op] + this.numInputs[this.signature[op]];
    return this.args.subarray(first, this.firstArg[op + 1]);
  }
  // Slots with their variables: [{name, vars}].
  slotsOf(op, which) {
    const vars = which === "in" ? this.inputsOf(op) : this.outputsOf(op);
    let at = 0;
    return this.signatures[this.signature[op]][which].map(([name, count]) => {
      const slot = { name: this.names.get(name), vars: vars.subarray(at, at + count) };
      at += count;
      return slot;
    });
  }
  // The remarks about an inserted op.
  reasonsOf(op) {
    const first = lowerBound(this.reasonOp, op, 0, this.reasonOp.length);
    const reasons = [];
    for (let i = first; i < this.reasonOp.length && this.reasonOp[i] === op; ++i) {
      reasons.push(this.reason[i]);
    }
    return reasons;
  }
  // The ops that write and that read a variable, at most `limit` each, in order.
  usesOf(name, limit) {
    const uses = { writers: [], readers: [] };
    for (let op = 0; op < this.numOps; ++op) {
      if (uses.readers.length < limit && this.inputsOf(op).includes(name)) uses.readers.push(op);
      if (uses.writers.length < limit && this.outputsOf(op).includes(name)) uses.writers.push(op);
    }
    return uses;
  }
}

// The first index from `first` to `last` whose value is not less.
function lowerBound(values, value, first, last) {
  while (first < last) {
    const middle = (first + last) >>> 1;
    if (values[middle] < value) first = middle + 1;
    else last = middle;
  }
  return first;
}

// "1.25 ms". `ns`: nanoseconds.
function formatTime(ns) {
  if (ns === 0) return "0";
  for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]]) {
    if (ns >= size) return `${Number((ns / size).toPrecision(3))} ${unit}`;
  }
  return `${Math.round(ns)} ns`;
}

function formatBytes(bytes) {
  for (const [unit, size] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
    if (bytes >= size) return `${Number((bytes / size).toPrecision(3))} ${unit}`;
  }
  return `${bytes} bytes`;
}

function formatCount(count, one, several = `${one}s`) {
  return `${count.toLocaleString("en-US")} ${count === 1 ? one : several}`;
}
