// Fetching the engine's large files: kept by the browser after the first time, with progress.

const KEPT = "attnlib-engine ";

/**
 * Fetches files below a folder whose name changes whenever its content does, so that what the
 * browser has kept of it is never stale. `report(bytes)` hears of every piece that arrives.
 */
export class Downloads {
  constructor(folder, report) {
    this.folder = folder;
    this.report = report;
    this.store = open(folder);
  }

  /** Return the response of a file, inflated if its name ends in .gz. */
  async response(name, type) {
    const url = this.folder + name;
    const store = await this.store;
    let response = await store?.match(url);
    if (!response) {
      response = await fetch(url);
      if (!response.ok) throw new Error(`${url}: ${response.status} ${response.statusText}`);
      // A browser that is short of space may refuse; the page works without.
      store?.put(url, response.clone()).catch(() => {});
    }
    const counted = response.body.pipeThrough(counter(this.report));
    const plain = name.endsWith(".gz")
      ? counted.pipeThrough(new DecompressionStream("gzip"))
      : counted;
    return new Response(plain, { headers: { "Content-Type": type ?? "application/octet-stream" } });
  }

  async buffer(name) {
    return (await this.response(name)).arrayBuffer();
  }
}

/** Open the store of a folder and drop those of earlier engines; null where there is no store. */
async function open(folder) {
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
