// The engine behind the message protocol of README.md: CPython, NumPy and Matplotlib.

import { Downloads } from "./download.js";
import { Interpreter } from "./interpreter.js";

const MODULE = "python.wasm.gz";
const LIBRARY = "library.zip.gz";
const DATA = "matplotlib.zip.gz";
const IDLE = 1000; // milliseconds without a message, after which there is time to store files

let interpreter = null;
let downloads = null;
let idle = null;

const actions = {
  async start({ folder, book, compiled }) {
    downloads = new Downloads(folder, [MODULE, LIBRARY, DATA], reporter());
    const archives = Promise.all([
      downloads.buffer(LIBRARY),
      downloads.buffer(DATA),
      fetch(book).then(wholeBuffer),
    ]);
    archives.catch(() => {}); // reported when it is awaited below
    const module = compiled ?? (await WebAssembly.compileStreaming(downloads.response(MODULE)));
    const [library, data, own] = await archives;
    interpreter = new Interpreter(module, { library, data, book: own }, postMessage);
    postMessage({ type: "ready", compiled: module });
  },

  run({ run, code, cell }) {
    interpreter.call("run", run, code, cell);
  },

  complete({ request, code, cursor }) {
    interpreter.call("complete", request, code, cursor);
  },
};

async function wholeBuffer(response) {
  if (!response.ok) throw new Error(`${response.url}: ${response.status} ${response.statusText}`);
  return response.arrayBuffer();
}

/** Tell the page how many bytes have come, ten times a second at most. */
function reporter() {
  let bytes = 0;
  let told = 0;
  return (more) => {
    bytes += more;
    if (interpreter || performance.now() - told < 100) return;
    told = performance.now();
    postMessage({ type: "progress", bytes });
  };
}

/** Store the files for the next visit when nothing else is to be done. */
async function keep() {
  await downloads.keep().catch(() => {}); // no space: the page works without
  postMessage({ type: "kept" });
}

let earlier = Promise.resolve();
addEventListener("message", ({ data }) => {
  clearTimeout(idle);
  earlier = earlier
    .then(() => actions[data.type](data))
    .then(() => {
      clearTimeout(idle);
      idle = setTimeout(keep, IDLE);
    })
    .catch((error) => postMessage({ type: "failed", reason: String(error?.message ?? error) }));
});
