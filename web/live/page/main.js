// What happens when the button of a page is pressed.

import { Edits } from "./edits.js";
import { Engine } from "./engine.js";
import { useMathJax } from "./mathematics.js";
import { keepPages } from "./offline.js";
import { Session } from "./session.js";
import { Toolbar } from "./toolbar.js";

/** Make the page live: `place` is the element of the button, which says where everything is. */
export async function start(place) {
  const address = (name) => new URL(place.dataset[name], location).href;
  const assets = address("assets");
  const toolbar = new Toolbar(() => session);
  const engine = new Engine(
    `${assets}engine/worker.js`,
    { folder: address("engine"), book: `${assets}python.zip` },
    (progress) => toolbar.progress(progress, Number(place.dataset.bytes)),
  );
  const session = new Session(engine, (text, kind) => toolbar.report(text, kind));
  session.start(); // the engine loads while the editors are made
  loadStyles(`${assets}live.css`);
  useMathJax(address("mathjax"));
  const [written, { Cell }] = await Promise.all([
    fetch(address("cells")).then((response) => response.json()),
    import("./cell.js"),
  ]);
  const edits = new Edits(place.dataset.page);
  session.cells = written.map((cell, index) => new Cell(cell, index + 1, edits));
  mount(session);
  place.replaceWith(toolbar.element);
  document.documentElement.classList.add("live");
  toolbar.element.focus();
  session.runAll();
  await Promise.all([engine.kept, session.started.then(() => keepPages(address("root"), assets))]);
  toolbar.element.dataset.kept = "";
}

function mount(session) {
  const editable = () => session.cells.filter((cell) => cell.editor);
  const next = (cell) => editable()[editable().indexOf(cell) + 1];
  for (const cell of session.cells) cell.mount(session, next);
}

function loadStyles(address) {
  const link = document.createElement("link");
  link.rel = "stylesheet";
  link.href = address;
  document.head.append(link);
}
