// Search over ops. No DOM here.
//
// A query is words, all of which must hold of an op:
//   adam              occurs in its type, variables, attributes, or the names of its layers
//   type:sum var:w_0  occurs in its type; in its variables
//   role:backward     occurs in its role
//   layer:encoder     occurs in the names of its layers
//   is:inserted       also changed, collective, message, sync, finding, unregistered
//   #17               has this number in its block, as messages name it

const FIELDS = ["type", "var", "role", "layer", "is"];

function parseQuery(text) {
  return text
    .split(/\s+/)
    .filter((word) => word !== "")
    .map((word) => {
      const colon = word.indexOf(":");
      const field = word.slice(0, Math.max(colon, 0)).toLowerCase();
      if (FIELDS.includes(field)) return { field, text: word.slice(colon + 1).toLowerCase() };
      if (/^#\d+$/.test(word)) return { field: "number", text: word.slice(1) };
      return { field: "any", text: word.toLowerCase() };
    });
}

const lowerByte = new Uint8Array(256).map((_, byte) =>
  byte >= 65 && byte <= 90 ? byte + 32 : byte,
);

// By string: whether it has the text in it. Ignores case in ASCII.
function findInStrings(strings, text) {
  const found = new Uint8Array(strings.length);
  const needle = new TextEncoder().encode(text).map((byte) => lowerByte[byte]);
  const { bytes, offsets } = strings;
  if (needle.length === 0) return found.fill(1);
  const [first] = needle;
  for (let i = 0; i < strings.length; ++i) {
    const last = offsets[i + 1] - needle.length;
    for (let at = offsets[i]; at <= last; ++at) {
      if (lowerByte[bytes[at]] !== first) continue;
      let length = 1;
      while (length < needle.length && lowerByte[bytes[at + length]] === needle[length]) ++length;
      if (length === needle.length) {
        found[i] = 1;
        break;
      }
    }
  }
  return found;
}

// By op: whether it lies in a layer with the text in its name.
function findLayers(data, text) {
  const names = findInStrings(data.node.name, text);
  const found = new Uint8Array(data.numOps);
  for (let node = 0; node < names.length; ++node) {
    if (names[node]) found.fill(1, data.node.begin[node], data.node.end[node]);
  }
  return found;
}

const IS = {
  inserted: (data) => (op) => data.change[op] === OP_INSERTED,
  changed: (data) => (op) => data.change[op] === OP_CHANGED,
  collective: (data) => (op) => data.kindOf(op) === "collective",
  message: (data) => (op) => data.kindOf(op) === "message",
  sync: (data) => (op) => data.kindOf(op) === "sync",
  unregistered: (data) => (op) => data.kindOf(op) === "unknown",
  finding: (data) => (op) => data.findingsOfOp.has(op),
};

// A predicate of ops; null for a word that says nothing known.
function predicateOf(data, { field, text }) {
  const names = field === "any" || field === "type" || field === "var"
    ? findInStrings(data.names, text) : null;
  const hasType = (op) => names[data.signatures[data.signature[op]].type] === 1;
  const hasVar = (op) => {
    for (let i = data.firstArg[op]; i < data.firstArg[op + 1]; ++i) {
      if (names[data.args[i]] === 1) return true;
    }
    return false;
  };
  switch (field) {
    case "type":
      return hasType;
    case "var":
      return hasVar;
    case "role":
      return (op) => data.roleName(op).includes(text);
    case "layer": {
      const layers = findLayers(data, text);
      return (op) => layers[op] === 1;
    }
    case "is":
      return Object.hasOwn(IS, text) ? IS[text](data) : null;
    case "number":
      return (op) => op - data.blocks[data.blockOf(op)].first === Number(text);
    default: {
      const layers = findLayers(data, text);
      const texts = findInStrings(data.texts, text);
      texts[0] = 0;
      return (op) =>
        hasType(op) || hasVar(op) || layers[op] === 1 || texts[data.attrs[op]] === 1;
    }
  }
}

// The ops that a query is about, in order; none if a word of it is unknown.
function searchOps(data, query) {
  const predicates = parseQuery(query).map((word) => predicateOf(data, word));
  if (predicates.includes(null)) return new Int32Array(0);
  const ops = new Int32Array(data.numOps);
  let count = 0;
  for (let op = 0; op < data.numOps; ++op) {
    if (predicates.every((holds) => holds(op))) ops[count++] = op;
  }
  return ops.slice(0, count);
}
