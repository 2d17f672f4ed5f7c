// Serves pages without a network, once cells were made live. It stands at the root of the site,
// since it may serve what lies beside and below it only.

const PAGES = "attnlib pages";
const UNCHANGING = /\/live\/page-[0-9a-f]+\//; // a folder named after its content
const ENGINE = /\/live\/engine-[0-9a-f]+\//; // the engine keeps its files itself

addEventListener("install", () => skipWaiting());
addEventListener("activate", (event) => event.waitUntil(clients.claim()));
addEventListener("fetch", (event) => {
  const { request } = event;
  const { origin, pathname } = new URL(request.url);
  if (request.method !== "GET" || origin !== location.origin || ENGINE.test(pathname)) return;
  event.respondWith(UNCHANGING.test(pathname) ? keptFirst(request) : newestFirst(request));
});

async function keptFirst(request) {
  const kept = await (await caches.open(PAGES)).match(request);
  return kept ?? newestFirst(request);
}

async function newestFirst(request) {
  const store = await caches.open(PAGES);
  try {
    const response = await fetch(request);
    if (response.ok) store.put(request, response.clone()).catch(() => {});
    return response;
  } catch (error) {
    const kept = await store.match(request, { ignoreSearch: true });
    if (kept) return kept;
    throw error;
  }
}
