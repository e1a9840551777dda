// The scripts of the page without a browser: reading the data, rows, search, boxes of lanes.
//
// usage: node scripts_test.js

"use strict";

const assert = require("node:assert/strict");
const fs = require("node:fs");
const path = require("node:path");
const { test, run, fitALinePage, textPage } = require("./testing.js");

const SCRIPTS = ["data.js", "search.js", "outline.js", "timeline.js"];
const source = SCRIPTS.map((name) => fs.readFileSync(path.join(__dirname, name), "utf8")).join("\n");
const page = new Function(`"use strict"; ${source}; return {
  boxesOf, exposedTimes, findInStrings, formatBytes, formatTime, mergeIntervals, readIntegers,
  readStrings, rulerLabel, rulerStep, searchOps, spanOfOp, unpackBase64, Columns, OutlineRows,
  ScrollScale, ViewData };`)();

async function read(file) {
  const [, base64] = fs.readFileSync(file, "utf8").match(/id="data">([^<]*)</);
  return new page.ViewData(new page.Columns(await page.unpackBase64(base64)));
}

let fitALine = null;
async function fit() {
  fitALine ||= await read(fitALinePage());
  return fitALine;
}
const namesOf = (data, ids) => [...ids].map((id) => data.names.get(id));
const opOf = (data, type) => {
  for (let op = 0; op < data.numOps; ++op) if (data.typeOf(op) === type) return op;
  return -1;
};

test("IntegersOfManyBytesAreExact", () => {
  // 3, -1, 2^40 + 2: zigzag differences in LEB128.
  const bytes = new Uint8Array([6, 7, 0x86, 0x80, 0x80, 0x80, 0x80, 0x80 | 0x40, 0x00]);
  const numbers = page.readIntegers(bytes, 3, Float64Array);
  assert.deepEqual([...numbers], [3, -1, 2 ** 40 + 2]);
});

test("StringsAreDecodedFromUtf8", () => {
  const strings = page.readStrings(new Uint8Array([1, 0, 2, 0x61, 0xc3, 0xa4]), 3);
  assert.deepEqual([0, 1, 2].map((i) => strings.get(i)), ["a", "", "ä"]);
});

test("NamesCannotHideWhatTheyAre", () => {
  const bytes = new TextEncoder().encode("a\u202eb\n");
  const strings = page.readStrings(new Uint8Array([bytes.length, ...bytes]), 1);
  assert.equal(strings.get(0), "a\\u202eb\\u000a");
});

test("OpsHaveTheirTypesRolesAndVariables", async () => {
  const data = await fit();
  assert.equal(data.numOps, 17);
  assert.equal(data.typeOf(0), "mul");
  assert.equal(data.roleName(0), "forward");
  assert.equal(data.titleOf(0), "op 0");
  assert.deepEqual(namesOf(data, data.inputsOf(0)), ["x", "fc_0.w_0"]);
  assert.deepEqual(namesOf(data, data.outputsOf(0)), ["fc_0.tmp_0"]);
  const [x, y] = data.slotsOf(0, "in");
  assert.deepEqual([x.name, y.name], ["X", "Y"]);
  assert.equal(data.texts.get(data.typeOfName[y.vars[0]]), "fp32[13, 1]");
  assert.equal(data.persistable[y.vars[0]], 1);
  assert.equal(data.texts.get(data.attrs[0]), "x_num_col_dims=1, y_num_col_dims=1");
});

test("InsertedOpsHaveReasons", async () => {
  const data = await fit();
  const inserted = [...data.change.keys()].filter((op) => data.change[op] === 1);
  assert.deepEqual(inserted.map((op) => data.typeOf(op)),
    ["coalesce_tensor", "c_wait_compute", "c_allreduce_avg", "c_wait_comm"]);
  const allReduce = opOf(data, "c_allreduce_avg");
  assert.equal(data.texts.get(data.note[allReduce]), "all-reduce (avg) over all ranks on ring 0");
  assert.equal(data.bytes[allReduce], 512);
  const subjects = data.reasonsOf(allReduce).map((i) => data.remarks.subject.get(i));
  assert.deepEqual(subjects.sort(), ["fc_0.b_0@GRAD", "fc_0.w_0@GRAD"]);
  assert.deepEqual(data.reasonsOf(0), []);
});

test("LanesAreThoseOfTheTrace", async () => {
  const { measured } = await fit();
  assert.deepEqual(measured.lanes.map(({ rank, stream }) => `${rank} ${stream}`),
    ["0 compute", "0 ring 0", "1 compute", "1 ring 0"]);
  assert.equal(measured.totals.steps, 2);
  assert.equal(measured.steps.length, 6);
  assert.equal(measured.first[4], measured.op.length);
  assert.ok(measured.waits.from.every((from) => from >= 0));
  assert.ok(measured.timeOfOp[0] > 0);
});

test("PredictionHasEveryOpButSynchronizations", async () => {
  const data = await fit();
  assert.equal(data.predicted.op.length, 15);
  assert.equal(data.predicted.waits.lane.length, 2);
});

test("UsesOfAVariableAreItsWritersAndReaders", async () => {
  const data = await fit();
  const buffer = data.outputsOf(opOf(data, "c_allreduce_avg"))[0];
  const types = (ops) => ops.map((op) => data.typeOf(op));
  const uses = data.usesOf(buffer, 100);
  assert.deepEqual(types(uses.writers),
    ["coalesce_tensor", "c_wait_compute", "c_allreduce_avg", "c_wait_comm"]);
  assert.deepEqual(types(uses.readers), ["c_wait_compute", "c_allreduce_avg", "c_wait_comm"]);
});

test("SearchCombinesWordsOfAllKinds", async () => {
  const data = await fit();
  const find = (query) => [...page.searchOps(data, query)].map((op) => data.typeOf(op));
  assert.deepEqual(find("is:inserted type:wait"), ["c_wait_compute", "c_wait_comm"]);
  assert.deepEqual(find("role:optimize"), ["sgd", "sgd"]);
  assert.deepEqual(find("var:fc_0.W_0 role:forward"), ["mul"]);
  assert.deepEqual(find("layer:fc_0 role:loss type:fill"), ["fill_constant"]);
  assert.deepEqual(find("#4"), ["reduce_mean"]);
  assert.deepEqual(find("x_num_col_dims=1"), ["mul", "mul_grad"]);
  assert.deepEqual(find("is:nonsense"), []);
  assert.deepEqual(find("is:constructor"), []);
  assert.equal(find("").length, 17);
});

test("SearchDoesNotMatchAcrossTwoStrings", () => {
  const strings = page.readStrings(new Uint8Array([2, 2, 0x61, 0x62, 0x63, 0x41]), 2); // ab, cA
  assert.deepEqual([...page.findInStrings(strings, "bc")], [0, 0]);
  assert.deepEqual([...page.findInStrings(strings, "a")], [1, 1]);
});

// Nodes 0-6 > (1-4 > 2-3), 4-5; op 6 and 7 are in no node.
const tree = {
  numOps: 8,
  node: {
    depth: Int32Array.from([0, 1, 2, 1]),
    begin: Int32Array.from([0, 1, 2, 4]),
    end: Int32Array.from([6, 4, 3, 5]),
  },
};

test("RowsAreOpsAndNodesInOrder", () => {
  const rows = new page.OutlineRows(tree);
  rows.openLevels(99);
  assert.deepEqual([...rows.rows], [~0, 0, ~1, 1, ~2, 2, 3, ~3, 4, 5, 6, 7]);
  assert.deepEqual([...rows.rows].map((row) => rows.depthOf(row)), [0, 1, 1, 2, 2, 3, 2, 1, 2, 1, 0, 0]);
});

test("ClosedNodesHideTheirOps", () => {
  const rows = new page.OutlineRows(tree);
  rows.openLevels(1);
  assert.deepEqual([...rows.rows], [~0, 0, ~1, ~3, 5, 6, 7]);
  rows.toggle(0);
  assert.deepEqual([...rows.rows], [~0, 6, 7]);
});

test("RevealOpensWhatHoldsAnOp", () => {
  const rows = new page.OutlineRows(tree);
  rows.openLevels(0);
  const index = rows.reveal(2);
  assert.equal(rows.rows[index], 2);
  assert.deepEqual([...rows.isOpen], [1, 1, 1, 0]);
});

test("ScrollBarOfManyRowsReachesBothEnds", () => {
  const scale = new page.ScrollScale(26);
  scale.resize(2e6, 500);
  assert.equal(scale.offsetOf(0), 0);
  assert.ok(scale.height <= page.ScrollScale.MAX_HEIGHT);
  assert.equal(Math.round(scale.offsetOf(scale.height - 500)), 2e6 * 26 - 500);
  scale.resize(10, 500);
  assert.equal(scale.offsetOf(7), 7);
});

// A lane of spans.
const laneOf = (spans) => ({
  first: [0, spans.length],
  begin: spans.map(([begin]) => begin),
  end: spans.map(([, end]) => end),
  op: spans.map((_, i) => i),
});

test("SpansOfLessThanAPixelShareABox", () => {
  const lane = laneOf([[0, 1], [1, 2], [2, 3], [10, 30]]);
  const boxes = page.boxesOf(lane, 0, 0, 100, 0.25);
  assert.deepEqual(boxes.map(({ first, last }) => [first, last]), [[0, 3], [3, 4]]);
});

test("BoxesAreThoseInView", () => {
  const lane = laneOf([[0, 10], [10, 20], [20, 30]]);
  assert.deepEqual(page.boxesOf(lane, 0, 12, 18, 10).map((box) => box.first), [1]);
});

test("ExposedIsCommunicationWithoutComputationOfTheSameRank", () => {
  const data = { kindOf: (op) => ["message", "collective"][op - 8] ?? "compute" };
  const lanes = {
    lanes: [{ rank: 0 }, { rank: 0 }, { rank: 1 }],
    first: [0, 2, 3, 4],
    begin: [0, 30, 5, 10],
    end: [10, 40, 35, 20],
    op: [0, 1, 9, 8],
  };
  assert.deepEqual(page.exposedTimes(data, lanes), [
    { rank: 0, begin: 10, end: 30 },
    { rank: 1, begin: 10, end: 20 },
  ]);
});

test("SpanOfAnOpIsTheFirstInView", () => {
  const lanes = { op: Int32Array.from([3, 4, 3, 3]), begin: [0, 5, 10, 20] };
  assert.equal(page.spanOfOp(lanes, 3, 7), 2);
  assert.equal(page.spanOfOp(lanes, 3, 99), 3);
  assert.equal(page.spanOfOp(lanes, 8, 0), -1);
});

test("RulerHasRoundSteps", () => {
  assert.equal(page.rulerStep(0.7), 1);
  assert.equal(page.rulerStep(1100), 2000);
  assert.equal(page.rulerStep(3e6), 5e6);
  assert.equal(page.rulerLabel(1620000, 20000), "1,620 µs");
  assert.equal(page.rulerLabel(-0, 20000), "0 µs");
});

test("TimesAndBytesHaveUnits", () => {
  assert.deepEqual([0, 7, 1500, 2.5e6, 3e9].map(page.formatTime),
    ["0", "7 ns", "1.5 µs", "2.5 ms", "3 s"]);
  assert.deepEqual([7, 2048, 3 * 2 ** 20].map(page.formatBytes), ["7 bytes", "2 KiB", "3 MiB"]);
});

test("OddProgramsAreRead", async () => {
  const empty = await read(textPage("empty", ""));
  assert.equal(empty.numOps, 0);
  assert.equal(empty.predicted.isEmpty, true);
  new page.OutlineRows(empty).openLevels(1);
  assert.equal(page.searchOps(empty, "a").length, 0);
  const unknown = await read(textPage("unknown", "Out=[y] = no_such_op(X=[@EMPTY@]) role=forward"));
  assert.equal(unknown.kindOf(0), "unknown");
});

run();
