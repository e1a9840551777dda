// Drives a headless Chromium over the pipe of the DevTools protocol, for tests.

"use strict";

const { spawn, spawnSync } = require("node:child_process");
const fs = require("node:fs");

// Chromium on the path, or null.
function findBrowser() {
  return ["chromium", "chromium-browser", "google-chrome"].find(
    (name) => spawnSync(name, ["--version"]).status === 0) || null;
}

class Browser {
  constructor(command, profile) {
    const args = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
      "--hide-scrollbars", "--remote-debugging-pipe", `--user-data-dir=${profile}`];
    this.process = spawn(command, args, { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
    this.waiting = new Map(); // by number of the call
    this.events = []; // of the page
    this.calls = 0;
    let received = "";
    this.process.stdio[4].on("data", (data) => {
      received += data;
      const messages = received.split("\0");
      received = messages.pop();
      messages.forEach((message) => this.receive(JSON.parse(message)));
    });
  }

  receive(message) {
    if (!message.id) {
      this.events.push(message);
      return;
    }
    const { resolve, reject } = this.waiting.get(message.id);
    this.waiting.delete(message.id);
    if (message.error) reject(new Error(message.error.message));
    else resolve(message.result);
  }

  call(method, params = {}) {
    const id = ++this.calls;
    const message = { id, method, params, sessionId: this.session };
    this.process.stdio[3].write(`${JSON.stringify(message)}\0`);
    return new Promise((resolve, reject) => this.waiting.set(id, { resolve, reject }));
  }

  // Opens a file, and waits until its page is there: `ready` is an expression.
  async open(file, { width = 1400, height = 900, scheme = "light", ready }) {
    this.session = undefined;
    this.events = [];
    const { targetId } = await this.call("Target.createTarget", { url: "about:blank" });
    const { sessionId } = await this.call("Target.attachToTarget", { targetId, flatten: true });
    this.session = sessionId;
    for (const domain of ["Runtime", "Log", "Page", "Network"]) await this.call(`${domain}.enable`);
    await this.call("Emulation.setDeviceMetricsOverride",
      { width, height, deviceScaleFactor: 1, mobile: false });
    await this.call("Emulation.setEmulatedMedia",
      { features: [{ name: "prefers-color-scheme", value: scheme }] });
    await this.call("Page.navigate", { url: `file://${file}` });
    for (let tries = 0; !(await this.evaluate(ready)); ++tries) {
      if (tries > 3000) throw new Error(`the page is not there: ${this.complaints()}`);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  // The value of an expression in the page.
  async evaluate(expression) {
    const result = await this.call("Runtime.evaluate",
      { expression, awaitPromise: true, returnByValue: true });
    if (result.exceptionDetails) {
      throw new Error(result.exceptionDetails.exception.description);
    }
    return result.result.value;
  }

  async press(key, code = key) {
    const text = key.length === 1 ? key : undefined;
    await this.call("Input.dispatchKeyEvent", { type: "keyDown", key, code, text });
    await this.call("Input.dispatchKeyEvent", { type: "keyUp", key, code });
  }
  async type(text) {
    await this.call("Input.insertText", { text });
  }
  async click(x, y) {
    const at = { x, y, button: "left", clickCount: 1 };
    await this.call("Input.dispatchMouseEvent", { type: "mousePressed", ...at });
    await this.call("Input.dispatchMouseEvent", { type: "mouseReleased", ...at });
  }

  async screenshot(file) {
    const { data } = await this.call("Page.captureScreenshot", { format: "png" });
    fs.writeFileSync(file, Buffer.from(data, "base64"));
  }

  // Exceptions, errors of the console, refused scripts.
  complaints() {
    const about = (event) =>
      event.method === "Runtime.exceptionThrown" || event.method === "Log.entryAdded" ||
      event.method === "Runtime.consoleAPICalled";
    return this.events.filter(about).map((event) => JSON.stringify(event.params));
  }
  // The addresses that the page asked for.
  requests() {
    return this.events.filter((event) => event.method === "Network.requestWillBeSent")
      .map((event) => event.params.request.url);
  }

  close() {
    this.process.kill();
  }
}

module.exports = { Browser, findBrowser };
