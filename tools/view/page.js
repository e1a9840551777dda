// The page: connects the outline, the search, the panel and the lanes.

const ROW_HEIGHT = 26;
const MAX_OUTPUTS = 4; // shown in a row
const MAX_STEPS = 500; // to choose from
const FEW_OPS = 60; // of which all are shown from the beginning

const byId = (id) => document.getElementById(id);

class Page {
  constructor(data) {
    this.data = data;
    this.rows = new OutlineRows(data);
    this.found = null; // ops that a search found
    this.selected = -1; // index of a row
    this.details = new Details(data, {
      selectOp: (op) => this.selectOp(op, { focus: true }),
      selectVar: (name) => this.showPanel("details", this.details.var(name)),
      search: (query) => {
        byId("search").value = query;
        this.search(query);
      },
    });
    this.list = new VirtualList(byId("outline"), ROW_HEIGHT, (i) => this.row(i));
    this.showHead();
    this.listen();
    this.rows.openLevels(data.numOps <= FEW_OPS ? 99 : 1);
    this.showRows();
    this.setUpLanes();
    this.showTab(data.findings.some((f) => f.severity === "error") ? "findings"
      : data.hasOriginal ? "changes" : "details");
  }

  get visible() {
    return this.found || this.rows.rows;
  }

  showHead() {
    const { data } = this;
    document.title = `${data.name} · Weft`;
    byId("name").textContent = data.name;
    const verdict = byId("verdict");
    verdict.textContent = data.verdict;
    const warned = /, \d+ warnings?(;|$)/.test(data.verdict) ? "warned" : "right";
    verdict.classList.add(data.verdict.startsWith("wrong") ? "wrong" : warned);
    const inserted = data.insertedBefore[data.numOps];
    const facts = [formatCount(data.numOps, "op")];
    if (data.blocks.length > 1) facts.push(formatCount(data.blocks.length, "block"));
    if (inserted > 0) facts.push(`${inserted.toLocaleString("en-US")} inserted`);
    byId("facts").textContent = facts.join(" · ");
    byId("predicted-head").hidden = data.predicted.isEmpty;
    byId("measured-head").hidden = !data.measured;
    const count = data.findings.length;
    byId("tab-findings").textContent = count > 0 ? `Findings (${count})` : "Findings";
  }

  listen() {
    const outline = byId("outline");
    outline.addEventListener("keydown", (event) => this.onOutlineKey(event));
    outline.addEventListener("click", (event) => {
      const row = event.target.closest(".row");
      if (row) this.selectRow(Number(row.dataset.index), event.target.closest(".caret") !== null);
    });
    outline.addEventListener("dblclick", (event) => {
      const row = event.target.closest(".row");
      if (row) this.toggleRow(Number(row.dataset.index));
    });
    const search = byId("search");
    let timer = 0;
    search.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => this.search(search.value), this.data.numOps > 1e5 ? 250 : 60);
    });
    search.addEventListener("keydown", (event) => {
      if (["Escape", "Enter", "ArrowDown"].includes(event.key)) clearTimeout(timer);
      if (event.key === "Escape") {
        search.value = "";
        this.search("");
        outline.focus();
      } else if (event.key === "Enter" || event.key === "ArrowDown") {
        this.search(search.value);
        outline.focus();
        if (this.visible.length > 0) this.selectRow(0);
      }
    });
    document.addEventListener("keydown", (event) => {
      const isTyping = event.target.closest("input, select") !== null;
      if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      search.focus();
      search.select();
    });
    byId("expand").addEventListener("click", () => this.openLevels(99));
    byId("collapse").addEventListener("click", () => this.openLevels(0));
    for (const tab of ["details", "changes", "findings"]) {
      byId(`tab-${tab}`).addEventListener("click", () => this.showTab(tab));
    }
    for (const tabs of document.querySelectorAll("[role=tablist]")) {
      tabs.addEventListener("keydown", moveBetweenTabs);
    }
  }

  openLevels(levels) {
    this.leaveSearch();
    this.rows.openLevels(levels);
    this.selected = -1;
    this.showRows();
  }

  showRows() {
    const { data } = this;
    byId("shown").textContent = this.found
      ? `${this.found.length.toLocaleString("en-US")} of ${formatCount(data.numOps, "op")}`
      : formatCount(data.numOps, "op");
    this.list.setCount(this.visible.length);
  }

  // --- the outline ------------------------------------------------------------------------------

  row(index) {
    const row = this.visible[index];
    const element = row < 0 ? this.nodeRow(~row) : this.opRow(row);
    element.dataset.index = index;
    element.id = `row-${index}`;
    element.setAttribute("role", "treeitem");
    if (index === this.selected) {
      element.classList.add("selected");
      element.setAttribute("aria-selected", "true");
    }
    return element;
  }

  nodeRow(node) {
    const { data, rows } = this;
    const depth = data.node.depth[node];
    const [begin, end] = [data.node.begin[node], data.node.end[node]];
    const isOpen = rows.isOpen[node] === 1;
    const inserted = data.insertedBefore[end] - data.insertedBefore[begin];
    const changed = data.changedBefore[end] - data.changedBefore[begin];
    const element = h("div", { class: "row node", "aria-level": depth + 1, "aria-expanded": isOpen },
      this.indent(depth),
      h("span", { class: "caret" }, isOpen ? "▾" : "▸"),
      h("span", { class: "title" }, data.node.name.get(node)),
      h("span", { class: "more" }, formatCount(end - begin, "op")),
      inserted > 0 ? h("span", { class: "mark inserted" }, `+${inserted} inserted`) : null,
      changed > 0 ? h("span", { class: "mark changed" }, `~${changed} changed`) : null,
      this.findingsMark(begin, end),
      this.time(data.predicted, begin, end), this.time(data.measured, begin, end));
    return element;
  }

  opRow(op) {
    const { data } = this;
    const change = data.change[op];
    const depth = this.found ? 0 : this.rows.depthOf(op);
    const changes = ["", " inserted", " changed"][change];
    const outputs = data.outputsOf(op);
    const names = [...outputs.slice(0, MAX_OUTPUTS)].map((name) => data.names.get(name));
    if (outputs.length > MAX_OUTPUTS) names.push(`and ${outputs.length - MAX_OUTPUTS} more`);
    const note = data.texts.get(data.note[op]);
    const more = note === "" ? names.join(", ") : note;
    return h("div", { class: `row op${changes}`, "aria-level": depth + 1 },
      this.indent(depth),
      h("span", { class: "number" }, op - data.blocks[data.blockOf(op)].first),
      h("span", { class: `dot ${data.classOf(op)}` }),
      h("span", { class: "title" }, data.typeOf(op)),
      h("span", { class: "more" }, more),
      this.findingsMark(op, op + 1),
      this.time(data.predicted, op, op + 1), this.time(data.measured, op, op + 1));
  }

  indent(depth) {
    const element = h("span", { class: "indent" });
    element.style.width = `${8 + depth * 16}px`;
    element.style.flex = "none";
    return element;
  }

  findingsMark(begin, end) {
    const { data } = this;
    let count = 0;
    let worst = "note";
    for (const finding of data.findings) {
      if (finding.op < begin || finding.op >= end) continue;
      ++count;
      if (finding.severity === "error" || worst === "note") worst = finding.severity;
    }
    return count === 0 ? null : h("span", { class: `mark ${worst}` }, formatCount(count, worst));
  }

  // The time of ops, before a bar as long as its share of the step.
  time(lanes, begin, end) {
    if (!lanes || lanes.isEmpty) return null;
    const time = lanes.timeBefore[end] - lanes.timeBefore[begin];
    const element = h("span", { class: "time" }, time > 0 ? formatTime(time) : "");
    const whole = lanes.timeBefore[this.data.numOps];
    if (time > 0) element.style.backgroundSize = `${(time / whole) * 76}px 18px`;
    return element;
  }

  selectRow(index, toggles = false) {
    this.selected = Math.min(Math.max(index, 0), this.visible.length - 1);
    byId("outline").setAttribute("aria-activedescendant", `row-${this.selected}`);
    const row = this.visible[this.selected];
    if (row === undefined) return;
    if (toggles) return this.toggleRow(this.selected);
    this.list.show(this.selected);
    this.showPanel("details", row < 0 ? this.details.node(~row) : this.details.op(row));
    if (row >= 0 && this.timeline.lanes) this.timeline.selectOp(row);
  }

  toggleRow(index) {
    const row = this.visible[index];
    if (!(row < 0)) return;
    this.rows.toggle(~row);
    this.selected = index;
    this.showRows();
  }

  // Selects an op, wherever it is.
  selectOp(op, { focus = false } = {}) {
    let index = this.found ? this.found.indexOf(op) : -1;
    if (index < 0) {
      this.leaveSearch();
      index = this.rows.reveal(op);
      this.showRows();
    }
    this.selectRow(index);
    if (focus) byId("outline").focus();
  }

  onOutlineKey(event) {
    const row = this.visible[this.selected];
    const isNode = row < 0;
    const isOpen = isNode && this.rows.isOpen[~row] === 1;
    const moves = {
      ArrowDown: 1, ArrowUp: -1, PageDown: this.list.page, PageUp: -this.list.page,
      Home: -Infinity, End: Infinity,
    };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (Object.hasOwn(moves, event.key)) {
      this.selectRow(this.selected + moves[event.key]);
    } else if (event.key === "ArrowRight" && isNode) {
      if (isOpen) this.selectRow(this.selected + 1);
      else this.toggleRow(this.selected);
    } else if (event.key === "ArrowLeft" && isOpen) {
      this.toggleRow(this.selected);
    } else if (event.key === "ArrowLeft" && row !== undefined && !this.found) {
      this.selectRow(this.parentOf(this.selected));
    } else if ((event.key === "Enter" || event.key === " ") && isNode) {
      this.toggleRow(this.selected);
    } else {
      return;
    }
    event.preventDefault();
  }

  parentOf(index) {
    const depth = this.rows.depthOf(this.visible[index]);
    let parent = index;
    while (parent > 0) {
      --parent;
      const row = this.visible[parent];
      if (row < 0 && this.data.node.depth[~row] < depth) break;
    }
    return parent;
  }

  // --- search, panel ------------------------------------------------------------------------------

  search(query) {
    if (query.trim() === "") {
      const op = this.found && this.selected >= 0 ? this.found[this.selected] : undefined;
      this.leaveSearch();
      this.selected = -1;
      if (op !== undefined) this.selected = this.rows.reveal(op);
      this.showRows();
      if (this.selected >= 0) this.list.show(this.selected);
      return;
    }
    this.found = searchOps(this.data, query);
    this.selected = -1;
    this.list.offset = 0;
    this.showRows();
  }

  leaveSearch() {
    if (!this.found) return;
    this.found = null;
    byId("search").value = "";
  }

  showTab(tab) {
    const row = this.visible[this.selected];
    const contents = {
      details: () => (row === undefined ? this.hints() : row < 0 ? this.details.node(~row)
        : this.details.op(row)),
      changes: () => this.details.changes(),
      findings: () => this.details.findings(),
    };
    this.showPanel(tab, contents[tab]());
  }

  showPanel(tab, content) {
    for (const name of ["details", "changes", "findings"]) selectTab(`tab-${name}`, name === tab);
    byId("panel").replaceChildren(...content.flat().filter((child) => child !== null));
    byId("panel").scrollTop = 0;
  }

  hints() {
    return [
      h("p", { class: "note" }, "Select an op or a layer."),
      h("p", { class: "hint" }, "Arrow keys move and fold; / searches."),
    ];
  }

  // --- lanes ----------------------------------------------------------------------------------------

  setUpLanes() {
    const { data } = this;
    this.timeline = new Timeline(byId("lanes"), data, (op, span) => {
      if (op >= 0) this.selectOp(op);
      this.timeline.select(span);
    });
    const choices = { measured: data.measured, predicted: data.predicted };
    for (const [name, lanes] of Object.entries(choices)) {
      const tab = byId(`show-${name}`);
      tab.disabled = !lanes || lanes.isEmpty;
      tab.addEventListener("click", () => this.showLanes(name, lanes));
    }
    byId("zoom-in").addEventListener("click", () => this.timeline.zoom(1.5));
    byId("zoom-out").addEventListener("click", () => this.timeline.zoom(1 / 1.5));
    byId("zoom-fit").addEventListener("click", () => this.timeline.fit());
    const step = byId("step");
    step.addEventListener("change", () => this.timeline.fit(this.steps[step.value] || null));
    const names = { forward: "forward", backward: "backward", update: "update",
      rate: "learning rate", collective: "collective or message", sync: "other communication",
      exposed: "exposed: a rank communicates and computes nothing" };
    byId("legend").append(...Object.entries(names).map(([name, text]) =>
      h("li", null, h("span", { class: `swatch ${name}` }), text)));
    const first = Object.entries(choices).find(([, lanes]) => lanes && !lanes.isEmpty);
    byId("time").hidden = !first;
    if (first) this.showLanes(...first);
  }

  showLanes(name, lanes) {
    for (const tab of ["measured", "predicted"]) selectTab(`show-${tab}`, tab === name);
    const { totals } = lanes;
    const parts = [`step ${formatTime(totals.step)}`, `computation ${formatTime(totals.computation)}`];
    if (totals.communication > 0) {
      parts.push(`communication ${formatTime(totals.communication)}`,
        `exposed ${formatTime(totals.exposed)}`);
    }
    const of = name === "measured"
      ? `rank ${totals.rank}, mean of ${formatCount(totals.steps, "step")}: ` : "estimated: ";
    byId("totals").textContent = totals.steps > 0 ? of + parts.join(" · ") : "";
    const first = lanes.steps.length > 0 ? lanes.steps[0].rank : 0;
    this.steps = lanes.steps.filter((step) => step.rank === first).slice(0, MAX_STEPS);
    const step = byId("step");
    step.hidden = this.steps.length < 2;
    step.replaceChildren(h("option", { value: "all" }, "all steps"),
      ...this.steps.map(({ step: number }, i) => h("option", { value: i }, `step ${number}`)));
    this.timeline.show(lanes);
    // The first step allocates, and would hide the others.
    if (this.steps.length > 1) {
      step.value = "1";
      this.timeline.fit(this.steps[1]);
    }
  }
}

function selectTab(id, isSelected) {
  byId(id).setAttribute("aria-selected", isSelected);
  byId(id).tabIndex = isSelected ? 0 : -1;
}

function moveBetweenTabs(event) {
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!by) return;
  const tabs = [...event.currentTarget.querySelectorAll("[role=tab]:not(:disabled)")];
  const next = tabs[(tabs.indexOf(event.target) + by + tabs.length) % tabs.length];
  next.focus();
  next.click();
  event.preventDefault();
}

async function start() {
  const loading = byId("loading");
  if (typeof DecompressionStream === "undefined") {
    loading.textContent = "This page needs a browser of 2023 or later (DecompressionStream).";
    return;
  }
  try {
    const bytes = await unpackBase64(byId("data").textContent);
    byId("data").remove();
    globalThis.page = new Page(new ViewData(new Columns(bytes)));
    loading.remove();
  } catch (error) {
    loading.textContent = `The data of this page is damaged: ${error.message}`;
    throw error;
  }
}

start();
