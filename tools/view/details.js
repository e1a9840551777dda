// The panel beside the outline: an op, a variable or a layer; what a rewrite changed; findings.
//
// Text from programs becomes text nodes, never markup.

const MAX_LISTED = 200;

// An element with properties and children: strings and elements.
function h(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties || {})) {
    if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

class Details {
  // `actions`: selectOp(op), selectVar(name), search(query).
  constructor(data, actions) {
    this.data = data;
    this.actions = actions;
  }

  opLink(op, withType = true) {
    const { data } = this;
    const text = withType ? `${data.titleOf(op)} (${data.typeOf(op)})` : data.titleOf(op);
    return h("button", { class: "link", onclick: () => this.actions.selectOp(op) }, text);
  }
  varLink(name) {
    const text = this.data.names.get(name);
    return h("button", { class: "link var", onclick: () => this.actions.selectVar(name) }, text);
  }
  searchLink(text, query) {
    return h("button", { class: "link", onclick: () => this.actions.search(query) }, text);
  }

  op(op) {
    const { data } = this;
    const change = data.change[op];
    const badges = [
      h("span", { class: `badge ${data.classOf(op)}` }, data.roleName(op)),
      change === OP_INSERTED ? h("span", { class: "badge inserted" }, "inserted") : null,
      change === OP_CHANGED ? h("span", { class: "badge changed" }, "changed") : null,
    ];
    return [
      h("h2", null, `${data.titleOf(op)} `, h("span", { class: "type" }, data.typeOf(op))),
      h("p", { class: "badges" }, badges),
      this.note(op),
      this.reasons(op),
      this.findingsOf(op),
      this.times(op),
      this.slots("inputs", data.slotsOf(op, "in")),
      this.slots("outputs", data.slotsOf(op, "out")),
      this.attributes(op),
    ];
  }

  note(op) {
    const { data } = this;
    const note = data.texts.get(data.note[op]);
    if (note === "") return null;
    const bytes = data.bytes[op] > 0 ? `; ${formatBytes(data.bytes[op])} from each rank` : "";
    return h("p", { class: "note" }, `${note}${bytes}`);
  }

  // Why a rewrite inserted or changed an op.
  reasons(op) {
    const { data } = this;
    if (data.change[op] === 0) return null;
    const reasons = data.reasonsOf(op);
    const changed = data.changedText.get(op);
    const items = reasons.slice(0, MAX_LISTED).map((i) => this.remark(i));
    if (reasons.length > items.length) {
      items.push(h("li", null, `and ${reasons.length - items.length} more`));
    }
    const hint = data.hasRemarks
      ? "No remark names a variable of this op."
      : "transpile --remarks writes the reasons; weft view --remarks shows them here.";
    return h("section", null,
      h("h3", null, "Why"),
      changed ? h("p", { class: "mono" }, changed) : null,
      items.length > 0 ? h("ul", { class: "remarks" }, items) : h("p", { class: "hint" }, hint),
      items.length > 0 ? h("p", { class: "hint" }, "Ops in remarks have their numbers before the pass.")
        : null);
  }
  remark(i) {
    const { remarks } = this.data;
    const details = remarks.details.get(i);
    return h("li", null,
      h("span", { class: "mono" }, remarks.subject.get(i)), " ",
      h("b", null, remarks.what.get(i)), `: ${remarks.why.get(i)}`,
      h("div", { class: "hint" },
        details === "" ? `pass ${remarks.pass.get(i)}` : `pass ${remarks.pass.get(i)}; ${details}`));
  }

  findingsOf(op) {
    const found = this.data.findingsOfOp.get(op);
    if (!found) return null;
    return h("section", null, found.map((i) => this.finding(this.data.findings[i])));
  }
  finding(finding) {
    const place = finding.startup ? h("span", null, "startup program") : null;
    const ops = [finding.op, finding.other].filter((op, i, all) => op >= 0 && all.indexOf(op) === i);
    return h("div", { class: `finding ${finding.severity}` },
      h("div", { class: "rule" }, h("b", null, `${finding.severity} ${finding.rule}`),
        ` ${finding.title}`),
      h("p", null, finding.message),
      h("div", { class: "places" }, place, ops.map((op) => this.opLink(op))));
  }

  times(op) {
    const { predicted, measured } = this.data;
    const rows = [];
    if (!predicted.isEmpty && predicted.timeOfOp[op] > 0) {
      rows.push(h("tr", null, h("th", null, "predicted"),
        h("td", null, formatTime(predicted.timeOfOp[op]))));
    }
    if (measured && measured.timeOfOp[op] > 0) {
      const { rank, steps } = measured.totals;
      rows.push(h("tr", null, h("th", null, "measured"),
        h("td", null, formatTime(measured.timeOfOp[op]),
          h("span", { class: "hint" }, ` a step, rank ${rank}, mean of ${steps}`))));
    }
    return rows.length === 0 ? null : h("table", { class: "times" }, rows);
  }

  slots(title, slots) {
    const rows = slots.filter((slot) => slot.vars.length > 0).map((slot) => {
      const vars = [...slot.vars.slice(0, MAX_LISTED)].map((name) => this.variable(name));
      if (slot.vars.length > vars.length) {
        vars.push(h("div", { class: "hint" }, `and ${slot.vars.length - vars.length} more`));
      }
      return h("tr", null, h("th", null, slot.name), h("td", null, vars));
    });
    if (rows.length === 0) return null;
    return h("section", null, h("h3", null, title), h("table", { class: "slots" }, rows));
  }
  variable(name) {
    const type = this.data.texts.get(this.data.typeOfName[name]);
    return h("div", null, this.varLink(name), h("span", { class: "hint" }, ` ${type}`));
  }

  attributes(op) {
    const text = this.data.texts.get(this.data.attrs[op]);
    if (text === "") return null;
    return h("section", null, h("h3", null, "attributes"), h("p", { class: "mono" }, text));
  }

  var(name) {
    const { data } = this;
    const uses = data.usesOf(name, MAX_LISTED);
    const list = (title, ops) =>
      ops.length === 0 ? null : h("section", null, h("h3", null, title),
        h("ul", null, ops.map((op) => h("li", null, this.opLink(op)))),
        ops.length === MAX_LISTED ? h("p", { class: "hint" }, `the first ${MAX_LISTED}`) : null);
    const type = data.texts.get(data.typeOfName[name]);
    return [
      h("h2", null, h("span", { class: "mono" }, data.names.get(name))),
      h("p", { class: "note" }, type === "" ? "no tensor is declared" : type,
        data.persistable[name] ? ", persistable" : ""),
      list("written by", uses.writers),
      list("read by", uses.readers),
    ];
  }

  node(node) {
    const { data } = this;
    const [begin, end] = [data.node.begin[node], data.node.end[node]];
    const counts = new Map();
    for (let op = begin; op < end; ++op) {
      const type = data.signatures[data.signature[op]].type;
      counts.set(type, (counts.get(type) || 0) + 1);
    }
    const types = [...counts].sort((a, b) => b[1] - a[1]).slice(0, MAX_LISTED);
    const inserted = data.insertedBefore[end] - data.insertedBefore[begin];
    const sum = (lanes) => (lanes ? lanes.timeBefore[end] - lanes.timeBefore[begin] : 0);
    const times = [["predicted", sum(data.predicted)], ["measured", sum(data.measured)]]
      .filter(([, time]) => time > 0)
      .map(([name, time]) => h("tr", null, h("th", null, name), h("td", null, formatTime(time))));
    return [
      h("h2", null, data.node.name.get(node)),
      h("p", { class: "note" }, formatCount(end - begin, "op"),
        inserted > 0 ? `, ${formatCount(inserted, "inserted", "inserted")}` : ""),
      times.length > 0 ? h("table", { class: "times" }, times) : null,
      h("section", null, h("h3", null, "ops by type"),
        h("table", { class: "slots" }, types.map(([type, count]) =>
          h("tr", null, h("td", { class: "count" }, count.toLocaleString("en-US")),
            h("td", null, data.names.get(type)))))),
    ];
  }

  // What the rewrite changed, as a whole.
  changes() {
    const { data } = this;
    if (!data.hasOriginal) {
      return [h("p", { class: "hint" },
        "weft view --original FILE compares with the program before the rewrite.")];
    }
    const inserted = new Map();
    for (let op = 0; op < data.numOps; ++op) {
      if (data.change[op] !== OP_INSERTED) continue;
      const type = data.typeOf(op);
      inserted.set(type, (inserted.get(type) || 0) + 1);
    }
    const rows = [...inserted].sort((a, b) => b[1] - a[1]).map(([type, count]) =>
      h("tr", null, h("td", { class: "count" }, count.toLocaleString("en-US")),
        h("td", null, this.searchLink(type, `is:inserted type:${type}`))));
    const changed = data.changedText.size;
    const nothing = rows.length === 0 && changed === 0 && data.removed.before.length === 0;
    return [
      nothing ? h("p", { class: "note" }, "The ops are those of the original.") : null,
      rows.length === 0 ? null : h("section", null,
        h("h3", null, this.searchLink(`${formatCount(data.insertedBefore[data.numOps],
          "op", "ops")} inserted`, "is:inserted")),
        h("table", { class: "slots" }, rows)),
      changed === 0 ? null : h("section", null,
        h("h3", null, this.searchLink(`${formatCount(changed, "op")} changed`, "is:changed"))),
      this.removedOps(),
      this.remarkGroups(),
    ];
  }
  removedOps() {
    const { before, text } = this.data.removed;
    if (before.length === 0) return null;
    const items = [];
    for (let i = 0; i < Math.min(before.length, MAX_LISTED); ++i) {
      const next = before[i] < this.data.numOps ? this.opLink(before[i], false) : "the end";
      items.push(h("li", null, h("div", { class: "mono" }, text.get(i)),
        h("div", { class: "hint" }, "before ", next)));
    }
    return h("section", null, h("h3", null, `${formatCount(before.length, "op")} removed`),
      h("ul", { class: "remarks" }, items));
  }
  // Remarks by pass and by what they say, such as gradients that were not reduced.
  remarkGroups() {
    const { remarks } = this.data;
    const groups = new Map();
    for (let i = 0; i < remarks.pass.length; ++i) {
      const title = `${remarks.pass.get(i)}: ${remarks.what.get(i)}`;
      if (!groups.has(title)) groups.set(title, []);
      groups.get(title).push(i);
    }
    if (groups.size === 0) return null;
    return h("section", null, h("h3", null, "remarks of passes"),
      [...groups].map(([title, ids]) => h("details", null,
        h("summary", null, `${title} `, h("span", { class: "hint" }, ids.length)),
        h("ul", { class: "remarks" }, ids.slice(0, MAX_LISTED).map((i) => this.remark(i)),
          ids.length > MAX_LISTED ? h("li", null, `and ${ids.length - MAX_LISTED} more`) : null))));
  }

  findings() {
    const { data } = this;
    const cards = data.findings.map((finding) => this.finding(finding));
    return [
      h("p", { class: "note" }, data.verdict),
      cards.length > 0 ? cards : h("p", { class: "hint" }, "no findings"),
    ];
  }
}
