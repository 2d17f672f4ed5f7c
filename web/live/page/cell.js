// One code cell of the page: its editor, its buttons, its outputs, what state it is in.

import { makeEditor } from "../vendor/editor.js";
import { button, make } from "./elements.js";
import { Outputs } from "./outputs.js";

const STATES = {
  "": "",
  waiting: "waiting",
  running: "running…",
  done: "has run",
  failed: "ended in an error",
  stopped: "stopped",
};

export class Cell {
  /** `written` is the cell of the notebook: {id, index, source, tags}. */
  constructor(written, number, edits) {
    Object.assign(this, written);
    this.name = `Cell ${number}`;
    this.runs = !written.tags.includes("torch");
    this.mayFail = written.tags.includes("raises-exception");
    this.edits = edits;
    this.element = document.querySelector(`.live-cell-${written.index}`);
    this.outputs = new Outputs(this.outputElement());
  }

  get code() {
    return this.editor ? this.editor.code : this.source;
  }

  /** Make the cell editable. `session` runs it, `next` leads to the cell below. */
  mount(session, next) {
    const input = this.element?.querySelector(".cell_input");
    if (!input) return; // a cell that the book does not show is run, and that is all
    if (!this.runs) {
      input.append(make("p", "live-note", "This cell needs PyTorch, which no browser runs: it is left out."));
      return;
    }
    this.status = make("span", "live-state");
    const run = button("Run", `Run ${this.name}`, () => session.run(this));
    this.reset = button("Reset", `Reset ${this.name} to the book's code`, () => this.toBook());
    const actions = {
      "Shift-Enter": () => {
        session.run(this);
        next(this)?.editor.focus();
      },
      "Mod-Enter": () => session.run(this),
      Escape: () => run.focus(),
    };
    const box = make("div", "live-editor");
    this.editor = makeEditor({
      parent: box,
      code: this.edits.get(this) ?? this.source,
      label: this.name,
      description: "live-keys",
      actions,
      changed: () => this.edited(),
      complete: (code, cursor) => session.complete(code, cursor),
    });
    // Said outright: axe does not know that what can be edited can have the focus.
    box.querySelector("[contenteditable]").tabIndex = 0;
    const tools = make("div", "live-tools");
    tools.append(make("span", "live-name", this.name), run, this.reset, this.status);
    for (const shown of input.children) shown.hidden = true;
    input.append(box, tools);
    this.markEdited();
  }

  edited() {
    this.edits.set(this, this.code);
    this.markEdited();
  }

  markEdited() {
    const edited = this.code !== this.source;
    this.element.classList.toggle("live-edited", edited);
    this.reset.disabled = !edited;
  }

  toBook() {
    this.editor.code = this.source;
    this.editor.focus();
  }

  wait() {
    this.show("waiting");
  }

  begin() {
    this.outputs.begin();
    this.editor?.markLine(0);
    this.show("running");
  }

  output(output) {
    this.outputs.add(output);
    if (output.output_type !== "error") return;
    this.error = `${output.ename}: ${output.evalue}`;
    this.editor?.markLine(output.line ?? 0);
  }

  end(state) {
    if (state) this.outputs.end();
    this.show(state);
  }

  show(state) {
    if (this.element) this.element.dataset.live = state;
    if (this.status) this.status.textContent = STATES[state];
  }

  /** Return the element of the outputs; a cell without outputs gets one where they would stand. */
  outputElement() {
    if (!this.element) return make("div");
    const there = this.element.querySelector(".cell_output");
    if (there) return there;
    const made = make("div", "cell_output docutils container");
    const folded = this.tags.includes("hide-cell") && this.element.querySelector("details");
    (folded || this.element).append(made);
    return made;
  }
}
