// Keeping a live page, and what it needs, for visits without a network.

const PAGES = "attnlib pages"; // the same store as in service_worker.js

/**
 * Store the page as it is now loaded; from then on the service worker keeps what is visited. The
 * engine keeps its own files.
 */
export async function keepPages(root, assets) {
  if (!navigator.serviceWorker || !self.caches) return; // not a secure address
  try {
    await navigator.serviceWorker.register(new URL(`${root}service_worker.js`, location));
    const store = await caches.open(PAGES);
    await dropOlderThan(assets, store);
    await Promise.all((await addresses(assets)).map((address) => keep(address, store)));
    await navigator.serviceWorker.ready;
  } catch {
    // The browser keeps nothing for this site, or is full: the page works while it is online.
  }
}

async function addresses(assets) {
  const files = await (await fetch(`${assets}files.json`)).json();
  const loaded = performance
    .getEntriesByType("resource")
    .map((entry) => entry.name)
    .filter((name) => name.startsWith(location.origin) && !name.includes("/live/engine-"));
  const page = location.href.replace(/[?#].*$/, "");
  return [...new Set([page, ...loaded, ...files.map((name) => assets + name)])];
}

async function keep(address, store) {
  if (await store.match(address)) return;
  const response = await fetch(address);
  if (response.ok) await store.put(address, response);
}

/** Cells and scripts of earlier versions of the site are of no use any more. */
async function dropOlderThan(assets, store) {
  for (const { url } of await store.keys()) {
    if (url.includes("/live/page-") && !url.startsWith(assets)) await store.delete(url);
  }
}
