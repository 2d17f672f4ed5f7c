// The engine's large files: fetched with progress, and kept by the browser for later visits.

const KEPT = "attnlib engine "; // a store of this name and of the folder's address
const TYPES = { wasm: "application/wasm", zip: "application/zip" };

/**
 * Files below a folder whose name changes whenever its content does, so that what is kept of it is
 * never stale. They lie there compressed, and are kept inflated: the next visit has nothing to do
 * but to read them. `report(bytes)` hears of every piece that arrives.
 */
export class Downloads {
  constructor(folder, names, report) {
    this.folder = folder;
    this.names = names;
    this.report = report;
    this.store = openStore(folder);
  }

  /** Return the response of a file, inflated. */
  async response(name) {
    return (await (await this.store)?.match(this.folder + name)) ?? this.fetched(name);
  }

  async buffer(name) {
    return (await this.response(name)).arrayBuffer();
  }

  /** Store what is not stored yet. A browser that is short of space may refuse. */
  async keep() {
    const store = await this.store;
    for (const name of this.names) {
      const address = this.folder + name;
      if (store && !(await store.match(address))) await store.put(address, await this.fetched(name));
    }
  }

  async fetched(name) {
    const response = await fetch(this.folder + name);
    if (!response.ok) {
      throw new Error(`${response.url}: ${response.status} ${response.statusText}`);
    }
    const inflated = response.body
      .pipeThrough(counter(this.report))
      .pipeThrough(new DecompressionStream("gzip"));
    const [, type] = name.match(/\.(\w+)\.gz$/);
    return new Response(inflated, { headers: { "Content-Type": TYPES[type] } });
  }
}

/** Open the store of a folder and drop those of earlier engines; null where there is no store. */
async function openStore(folder) {
  if (!self.caches) return null; // the page does not come from a secure address
  try {
    for (const name of await caches.keys()) {
      if (name.startsWith(KEPT) && name !== KEPT + folder) await caches.delete(name);
    }
    return await caches.open(KEPT + folder);
  } catch {
    return null;
  }
}

function counter(report) {
  return new TransformStream({
    transform(piece, controller) {
      report(piece.byteLength);
      controller.enqueue(piece);
    },
  });
}
