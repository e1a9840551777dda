// For tests of the page, which run in node: cases, an XML report as Bazel takes it, and pages of
// `weft view`.
//
//   const { test, run } = require("./testing.js");
//   test("NamesAreText", () => assert.equal(...));
//   run();

"use strict";

const assert = require("node:assert/strict");
const { spawnSync } = require("node:child_process");
const fs = require("node:fs");
const path = require("node:path");

const cases = [];

function test(name, body) {
  cases.push({ name, body });
}

function escapeXml(text) {
  const names = { "<": "&lt;", ">": "&gt;", "&": "&amp;", '"': "&quot;" };
  return text.replace(/[<>&"]/g, (c) => names[c]).replace(/[^\n\t\x20-\uffff]/g, "?");
}

// Runs the cases in order. `reason`: why they are skipped, if they are.
async function run({ skip: reason = null } = {}) {
  let failures = 0;
  const results = [];
  for (const { name, body } of cases) {
    let result = "";
    if (reason !== null) {
      result = `<skipped message="${escapeXml(reason)}"/>`;
      console.log(`skipped, ${reason}: ${name}`);
    } else {
      try {
        await body();
        console.log(`ok: ${name}`);
      } catch (error) {
        ++failures;
        console.log(`FAILED: ${name}\n${error.stack}`);
        result = `<failure message="${escapeXml(error.message)}"/>`;
      }
    }
    results.push(`<testcase name="${escapeXml(name)}">${result}</testcase>`);
  }
  const report = process.env.XML_OUTPUT_FILE;
  if (report) {
    fs.writeFileSync(report, `<testsuites><testsuite name="view" tests="${cases.length}" ` +
      `failures="${failures}">${results.join("\n")}</testsuite></testsuites>\n`);
  }
  process.exit(failures > 0 ? 1 : 0);
}

function call(command, args) {
  const result = spawnSync(command, args, { encoding: "utf8", maxBuffer: 1 << 28 });
  assert.equal(result.status, 0, `${command} ${args.join(" ")}: ${result.stderr}`);
  return result.stdout;
}

const TEMPORARY = fs.mkdtempSync(path.join(process.env.TEST_TMPDIR || "/tmp", "view"));
const temporary = (name) => path.join(TEMPORARY, name);

// The page of an averaging fit_a_line with everything that a page can have.
function fitALinePage() {
  const data = "tests/data/fit_a_line";
  const [main, startup, why, trace, page] =
    ["out.pb", "startup.pb", "why.json", "trace.json", "fit_a_line.html"].map(temporary);
  call("tools/transpile", ["--mode", "grad_allreduce", "--explain", why, "--startup_in",
    `${data}/startup.pb`, "--startup_out", startup, `${data}/main.pb`, main]);
  call("tools/weft", ["run", main, "--startup", startup, "--feeds", `${data}/feeds.npz`,
    "--ranks", "2", "--steps", "3", "--trace", trace]);
  call("tools/weft", ["view", main, "--startup", startup, "--original", `${data}/main.pb`,
    "--original_startup", `${data}/startup.pb`, "--explain", why, "--trace", trace, "-o", page]);
  return page;
}

// The page of a program text, with a trace of these events, if there are any.
function textPage(name, lines, events = null) {
  const program = temporary(`${name}.prog`);
  const page = temporary(`${name}.html`);
  fs.writeFileSync(program, `program {\n  block 0 parent=-1 {\n${lines}\n  }\n}\n`);
  const args = ["view", program, "-o", page];
  if (events) {
    args.push("--trace", temporary(`${name}.json`));
    fs.writeFileSync(args.at(-1), JSON.stringify({ traceEvents: events }));
  }
  call("tools/weft", args);
  return page;
}

module.exports = { test, run, fitALinePage, textPage, temporary };
