// The Python interpreter: one WebAssembly module that runs Python source, on files in memory.

import { Directory, File, OpenFile, PreopenDirectory, WASI } from "../vendor/shim.js";
import { filesOfZip } from "./zip.js";

const LIBRARY = "/usr/local/lib/python315.zip"; // the path that is compiled into the module
const DATA = `${LIBRARY}/matplotlib/mpl-data`; // where its Matplotlib looks for fonts and styles
const BOOK = "/book/python.zip"; // attnlib of this site, and the runtime of the cells
const OUTBOX = "/outbox";

const NOT_SUPPORTED = 58; // WASI's number of the error ENOTSUP
const ALL_RIGHTS = 0x1fffffffn;
const CLOCK_REALTIME = 0;

export class Interpreter {
  /**
   * `module` is the compiled WebAssembly; `library`, `data` and `book` are zip archives in buffers.
   * `receive` hears of every line that the runtime sends, decoded from JSON, at once.
   */
  constructor(module, { library, data, book }, receive) {
    const decoder = new TextDecoder();
    let unfinished = "";
    const onOutput = (bytes) => {
      const lines = (unfinished + decoder.decode(bytes, { stream: true })).split("\n");
      unfinished = lines.pop();
      for (const line of lines) receive(JSON.parse(line));
    };
    this.complaints = "";
    const onComplaint = (bytes) => {
      this.complaints += new TextDecoder().decode(bytes);
    };
    this.files = memoryFiles({ library, data, book }, onOutput, onComplaint);
    const environment = ["HOME=/home", "TMPDIR=/tmp", "MPLCONFIGDIR=/tmp", "NO_COLOR=1"];
    const wasi = new WASI(["python"], environment, this.files, { debug: false });
    this.instance = new WebAssembly.Instance(module, {
      host: { call: () => -1 },
      wasi_snapshot_preview1: { ...wasi.wasiImport, ...this.system() },
    });
    wasi.inst = this.instance;
    this.instance.exports._initialize();
    this.execute(`__import__("sys").path.insert(0, "${BOOK}")`);
    this.call("start", OUTBOX);
  }

  /** Call a function of the runtime with arguments that JSON can say. No name is left behind. */
  call(name, ...args) {
    const runtime = '__import__("livecells")';
    const json = JSON.stringify(JSON.stringify(args)); // JSON inside a string of Python
    this.execute(`${runtime}.${name}(*${runtime}.decoded(${json}))`);
  }

  execute(source) {
    const bytes = new TextEncoder().encode(source);
    const { host_alloc, turn, memory } = this.instance.exports;
    const place = host_alloc(bytes.length) >>> 0;
    new Uint8Array(memory.buffer, place, bytes.length).set(bytes);
    if (turn(place, bytes.length) !== 0) throw new Error(this.complaints || "no reason was given");
  }

  /** System calls that the shim lacks, or that it answers too slowly or too coarsely. */
  system() {
    const view = () => new DataView(this.instance.exports.memory.buffer);
    const refuse = () => NOT_SUPPORTED;
    return {
      clock_time_get: (clock, _precision, result) => {
        view().setBigUint64(result, now(clock), true);
        return 0;
      },
      poll_oneoff: (subscriptions, events, count, eventCount) => {
        sleep(shortestWait(view(), subscriptions, count));
        view().setBigUint64(events, view().getBigUint64(subscriptions, true), true);
        view().setUint16(events + 8, 0, true);
        view().setUint8(events + 10, view().getUint8(subscriptions + 8));
        view().setUint32(eventCount, 1, true);
        return 0;
      },
      sock_accept: refuse,
      sock_recv: refuse,
      sock_send: refuse,
      sock_shutdown: refuse,
    };
  }
}

function memoryFiles({ library, data, book }, onOutput, onComplaint) {
  const directory = (entries) => new Directory(new Map(Object.entries(entries)));
  const preopened = (path, entries) => new PreopenDirectory(path, new Map(Object.entries(entries)));
  const [, libraryName] = LIBRARY.match(/([^/]+)$/);
  const root = preopened("/", {
    usr: directory({ local: directory({ lib: directory({}) }) }),
    book: directory({ "python.zip": new File(book, { readonly: true }) }),
    home: directory({}),
    tmp: directory({}),
    outbox: new Listener(onOutput),
  });
  // The runtime has its own input and output; what comes here is said where that does not work.
  const complaints = new Listener(onComplaint);
  const files = [
    ...[new OpenFile(new File([])), complaints.open(), complaints.open()],
    preopened("/usr/local/lib", { [libraryName]: new File(library, { readonly: true }) }),
    new PreopenDirectory(DATA, dataTree(data)),
    root,
  ];
  for (const file of files) if (file instanceof PreopenDirectory) allowAll(file);
  return files;
}

/** Return Matplotlib's data as the entries of a directory. */
function dataTree(archive) {
  const tree = new Map();
  for (const [path, bytes] of filesOfZip(archive)) {
    const parts = path.replace(/^(matplotlib\/)?mpl-data\//, "").split("/");
    const name = parts.pop();
    let folder = tree;
    for (const part of parts) {
      if (!folder.has(part)) folder.set(part, new Directory(new Map()));
      folder = folder.get(part).contents;
    }
    folder.set(name, new File(bytes, { readonly: true }));
  }
  return tree;
}

/** The shim reports no rights at all, which Python reads as "not writable". */
function allowAll(directory) {
  const answer = directory.fd_fdstat_get.bind(directory);
  directory.fd_fdstat_get = () => {
    const result = answer();
    result.fdstat.fs_rights_base = result.fdstat.fs_rights_inherited = ALL_RIGHTS;
    return result;
  };
}

/** A file that hands over what is written to it. */
class Listener extends File {
  constructor(receive) {
    super([]);
    this.receive = receive;
  }

  open() {
    const file = new OpenFile(new File([]));
    file.fd_write = (bytes) => {
      this.receive(bytes.slice());
      return { ret: 0, nwritten: bytes.byteLength };
    };
    return file;
  }

  path_open() {
    return { ret: 0, fd_obj: this.open() };
  }
}

/** Return the time of a clock in nanoseconds. */
function now(clock) {
  const milliseconds = performance.now() + (clock === CLOCK_REALTIME ? performance.timeOrigin : 0);
  return BigInt(Math.round(milliseconds * 1000)) * 1000n;
}

/** Return how long a call of poll_oneoff may wait, in milliseconds. */
function shortestWait(view, subscriptions, count) {
  let shortest = 0;
  for (let index = 0; index < count; index += 1) {
    const at = subscriptions + 48 * index;
    if (view.getUint8(at + 8) !== 0) continue; // not a clock
    const absolute = view.getUint16(at + 40, true) & 1;
    const start = absolute ? now(view.getUint32(at + 16, true)) : 0n;
    const wait = Number(view.getBigUint64(at + 24, true) - start) / 1e6;
    shortest = index === 0 ? wait : Math.min(shortest, wait);
  }
  return shortest;
}

const never = new Int32Array(new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true }).buffer);

function sleep(milliseconds) {
  if (milliseconds > 0) Atomics.wait(never, 0, 0, milliseconds);
}
