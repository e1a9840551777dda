// Opens programs with Netron's own loader, without a browser, and prints the ops that it draws.
//
// usage: node netron_ops.mjs NETRON_FOLDER < FILES
//
// NETRON_FOLDER holds Netron's modules (view.js, paddle.js, ...), FILES is a list of paths, one a
// line. Prints a JSON object for each: {"format": ..., "ops": [[type, ...] of each block]} or
// {"error": ...}.
import * as fs from 'fs';
import * as path from 'path';
import * as readline from 'readline';
import { pathToFileURL } from 'url';

const folder = path.resolve(process.argv[2]);
const load = (id) => import(pathToFileURL(path.join(folder, id.replace(/(\.js)?$/, '.js'))).href);
const view = await load('view');
const base = await load('base');

// What a window would offer.
const host = {
  environment: () => null,
  event: () => {},
  exception: (error) => { throw error; },
  require: load,
  asset: async (name) => fs.readFileSync(path.join(folder, name), 'utf-8'),
};

class Context {
  constructor(file) {
    this.identifier = path.basename(file);
    this.name = this.identifier;
    this.stream = new base.BinaryStream(fs.readFileSync(file));
  }
  require(id) { return host.require(id); }
  asset(name) { return host.asset(name); }
  async fetch(name) { throw new Error(`${name} is not there`); }  // weights lie in no file
  error(error) { throw error; }
}

// Netron hangs an op that works in place on the node of the op before it.
const drawn = (node) => [node.type.name, ...(node.chain || []).flatMap(drawn)];

const service = new view.ModelFactoryService(host);
for await (const file of readline.createInterface({ input: process.stdin })) {
  let result = null;
  try {
    const model = await service.open(new Context(file));
    result = { format: model.format, ops: model.modules.map((m) => m.nodes.flatMap(drawn)) };
  } catch (error) {
    result = { error: error.message };
  }
  console.log(JSON.stringify(result));
}
