// The page in a headless Chromium. Skipped where there is none.
//
// usage: node browser_test.js [FOLDER]
//
// Leaves screenshots in the folder, if one is given.

"use strict";

const assert = require("node:assert/strict");
const path = require("node:path");
const { Browser, findBrowser } = require("./browser.js");
const { test, run, fitALinePage, textPage, temporary } = require("./testing.js");

const command = findBrowser();
const browser = command ? new Browser(command, temporary("profile")) : null;
process.on("exit", () => browser?.close());

const READY = "typeof page !== 'undefined'";
const screenshots = process.argv[2];
async function shoot(name) {
  if (screenshots) await browser.screenshot(path.join(screenshots, `${name}.png`));
}
let fitALine = null;
async function openFitALine(options = {}) {
  fitALine ||= fitALinePage();
  await browser.open(fitALine, { ready: READY, ...options });
}
const rows = () => browser.evaluate(
  "[...document.querySelectorAll('.row .title')].map((title) => title.textContent)");
const panel = () => browser.evaluate("document.getElementById('panel').innerText");

test("ShowsTheProgramByPhasesAndLayers", async () => {
  await openFitALine();
  const titles = await rows();
  assert.deepEqual(titles.slice(0, 3), ["forward", "fc_0", "mul"]);
  assert.ok(titles.includes("c_allreduce_avg"));
  assert.equal(await browser.evaluate("document.title"), await browser.evaluate("page.data.name + ' · Weft'"));
  assert.match(await browser.evaluate("document.getElementById('verdict').textContent"), /^verified/);
  await shoot("fit_a_line");
});

test("AsksForNothingAndComplainsOfNothing", async () => {
  await openFitALine();
  const requests = await browser.requests();
  assert.deepEqual(requests.filter((url) => !url.startsWith("file:")), []);
  assert.equal(requests.length, 1);
  assert.deepEqual(browser.complaints(), []);
});

test("KeysMoveAndFold", async () => {
  await openFitALine();
  await browser.evaluate("document.getElementById('outline').focus()");
  await browser.press("ArrowDown");
  assert.match(await panel(), /^forward\n/);
  const before = (await rows()).length;
  await browser.press("ArrowLeft");
  const folded = await rows();
  assert.ok(folded.length < before || folded[1] === "backward");
  assert.equal(folded[1], "backward");
  await browser.press("ArrowRight");
  assert.equal((await rows())[1], "fc_0");
  await browser.press("End");
  assert.match(await panel(), /^op 16 sgd/);
});

test("SlashSearchesAndEscapeEnds", async () => {
  await openFitALine();
  await browser.press("/");
  assert.equal(await browser.evaluate("document.activeElement.id"), "search");
  await browser.type("is:inserted");
  await browser.press("Enter");
  assert.deepEqual(await rows(),
    ["coalesce_tensor", "c_wait_compute", "c_allreduce_avg", "c_wait_comm"]);
  assert.match(await panel(), /^op 9 coalesce_tensor[^]*Why[^]*fc_0\.w_0@GRAD reduced/);
  await new Promise((resolve) => setTimeout(resolve, 300)); // a search that was typed
  assert.equal(await browser.evaluate("document.querySelector('.selected .title').textContent"),
    "coalesce_tensor");
  await shoot("search");
  await browser.press("/");
  await browser.press("Escape");
  assert.ok((await rows()).includes("forward"));
});

test("ClickOnALaneSelectsTheOp", async () => {
  await openFitALine();
  const [x, y] = await browser.evaluate(`(() => {
    const lane = page.timeline.lanes.lanes.findIndex((lane) => lane.stream === "ring 0");
    const box = document.getElementById("lanes").getBoundingClientRect();
    const span = page.timeline.lanes.first[lane] + 1;
    // Ranks do not take a step at the same time: the one that is shown may end before this span.
    const { begin, end } = page.timeline.lanes;
    page.timeline.fit({ begin: begin[span], end: end[span] });
    const middle = (begin[span] + end[span]) / 2;
    return [box.x + page.timeline.xOf(middle), box.y + page.timeline.tops[lane] + 5];
  })()`);
  await browser.click(x, y);
  assert.match(await panel(), /^op 13 c_allreduce_avg/);
  await shoot("lane");
});

test("LanesOfManyRanksScroll", async () => {
  const relu = (rank) => ({ ph: "X", pid: rank, tid: 0, ts: 1 + rank, dur: 5000,
    args: { op: "op 0 (relu)" } });
  const events = Array.from({ length: 1000 }, (_, rank) => relu(rank));
  const page = textPage("ranks", "Out=[y] = relu(X=[x]) role=forward", events);
  await browser.open(page, { ready: READY });
  const [height, full] = await browser.evaluate(
    "[document.getElementById('lanes').height, page.timeline.height]");
  assert.ok(height < 500 && full > 30000, `${height} of ${full}`);
  await browser.evaluate("page.timeline.frame.scrollTop = 1e6");
  const [x, y] = await browser.evaluate(`(() => {
    const box = document.getElementById("lanes").getBoundingClientRect();
    const top = page.timeline.tops[999] - page.timeline.frame.scrollTop;
    return [box.x + box.width / 2, box.y + top + 10];
  })()`);
  await browser.click(x, y);
  assert.equal(await browser.evaluate("page.timeline.lanes.lane[page.timeline.selected]"), 999);
  await shoot("ranks");
});

test("LanesAreDrawn", async () => {
  await openFitALine();
  const colors = await browser.evaluate(`(() => {
    const canvas = document.getElementById("lanes");
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    return new Set(new Uint32Array(data.buffer)).size;
  })()`);
  assert.ok(colors > 10, `${colors} colours`);
});

test("VariableLeadsToItsWritersAndReaders", async () => {
  await openFitALine();
  await browser.evaluate("page.selectOp(13)");
  await browser.evaluate("document.querySelector('#panel .var').click()");
  const text = await panel();
  assert.match(text, /^fused_gradient_0\n[^]*written by[^]*op 9 \(coalesce_tensor\)[^]*read by/);
});

test("FindingsLeadToTheirOps", async () => {
  const missing = "    Out=[y] = relu(X=[x]) role=forward\n    Out=[z] = relu(X=[y]) role=forward";
  await browser.open(textPage("findings", missing), { ready: READY });
  assert.match(await panel(), /^wrong: \d+ errors, for one device\s+error W\d+ [^]*op 0 \(relu\)/);
  await browser.evaluate("document.querySelector('.finding .link').click()");
  assert.match(await panel(), /^op 0 relu[^]*error W\d+/);
  await shoot("findings");
});

test("DarkSchemeIsDark", async () => {
  await openFitALine({ scheme: "dark" });
  const background = await browser.evaluate("getComputedStyle(document.body).backgroundColor");
  assert.equal(background, "rgb(20, 23, 27)");
  await shoot("dark");
});

test("NarrowWindowKeepsAllPanels", async () => {
  await openFitALine({ width: 700, height: 1000 });
  const heights = await browser.evaluate(`["outline", "panel", "lanes"].map((id) =>
    document.getElementById(id).getBoundingClientRect().height)`);
  assert.ok(heights.every((height) => height > 100), heights.join(", "));
  assert.equal(await browser.evaluate("document.body.scrollWidth <= innerWidth"), true);
  await shoot("narrow");
});

test("HostileNamesStayText", async () => {
  const evil = [
    "</script><script>window.hurt=1</script>", "<img src=x onerror=window.hurt=1>", "--><b>bold",
    "${window.hurt=1}", "__proto__", "constructor", "\\u202egnp.exe",
  ];
  const lines = evil.map((name) =>
    `    Out=["${name}"] = relu(X=["${name}"]) role=forward {op_namescope="/${name}/"}`);
  await browser.open(textPage("evil", lines.join("\n")), { ready: READY });
  await browser.evaluate("page.openLevels(99)");
  for (let op = 0; op < evil.length; ++op) {
    await browser.evaluate(`page.selectOp(${op})`);
    await browser.evaluate("document.querySelector('#panel .var').click()");
    await browser.evaluate(`page.search(page.data.names.get(page.data.args[${op}]))`);
    await browser.evaluate("page.search('')");
  }
  assert.equal(await browser.evaluate("window.hurt"), undefined);
  assert.equal(await browser.evaluate("document.querySelectorAll('img, b, script[src]').length"), 0);
  assert.deepEqual(browser.complaints(), []);
  await shoot("evil");
});

test("PolicyRefusesScriptsThatGetIn", async () => {
  await openFitALine();
  await browser.evaluate(`(() => {
    const script = document.createElement("script");
    script.textContent = "window.hurt = 1";
    document.body.append(script);
  })()`);
  assert.equal(await browser.evaluate("window.hurt"), undefined);
});

run({ skip: command ? null : "chromium is not installed" });
