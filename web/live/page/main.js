// What happens when the button of a page is pressed.

import { Cell } from "./cell.js";
import { Edits } from "./edits.js";
import { Engine } from "./engine.js";
import { useMathJax } from "./mathematics.js";
import { keepForOffline } from "./offline.js";
import { Session } from "./session.js";
import { Toolbar } from "./toolbar.js";

/** Make the page live: `place` is the element of the button, which says where everything is. */
export async function start(place) {
  const address = (name) => new URL(place.dataset[name], location).href;
  const assets = address("assets");
  let session;
  const toolbar = new Toolbar(() => session);
  const engine = new Engine(
    `${assets}engine/worker.js`,
    { folder: address("engine"), book: `${assets}python.zip` },
    (progress) => toolbar.progress(progress, Number(place.dataset.bytes)),
  );
  useMathJax(address("mathjax"));
  loadStyles(`${assets}live.css`);
  const written = fetch(address("cells")).then((response) => response.json());
  written.catch(() => {}); // reported when it is awaited below
  const edits = new Edits(place.dataset.page);
  session = new Session(engine, [], (text, kind) => toolbar.report(text, kind));
  session.start();
  session.cells = (await written).map((cell, index) => new Cell(cell, index + 1, edits));
  const editable = () => session.cells.filter((cell) => cell.editor);
  const next = (cell) => editable()[editable().indexOf(cell) + 1];
  const complete = (code, cursor) =>
    session.running ? null : engine.complete(code, cursor).catch(() => null);
  for (const cell of session.cells) cell.mount(session, complete, next);
  place.replaceWith(toolbar.element);
  document.documentElement.classList.add("live");
  toolbar.element.focus();
  session.runAll();
  if (await session.started) await keepForOffline(address("root"), assets);
  toolbar.element.dataset.kept = "yes";
}

function loadStyles(address) {
  const link = document.createElement("link");
  link.rel = "stylesheet";
  link.href = address;
  document.head.append(link);
}
