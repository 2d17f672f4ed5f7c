// The bar at the foot of a live page: what Python does, and the buttons for all cells at once.

import { button, make } from "./elements.js";

const KEYS =
  "Control or Command with Enter runs the cell, Shift with Enter runs it and goes on to the next. " +
  "Tab completes a name or indents. Escape leaves the editor.";

export class Toolbar {
  constructor(session) {
    this.element = make("section", "live-toolbar");
    this.element.setAttribute("aria-label", "Live code");
    this.element.tabIndex = -1; // has the focus when the page has become live
    this.status = make("span", "live-status");
    this.status.setAttribute("role", "status");
    this.runAll = button("Run all", "Run all cells", () => this.may("runAll") && session().runAll());
    this.stop = button("Stop", "Stop the running cell", () => this.may("stop") && session().stop());
    this.restart = button("Restart", "Restart Python", () => session().restart());
    const keys = make("p", "live-keys", KEYS);
    keys.id = "live-keys";
    this.element.append(this.status, this.runAll, this.stop, this.restart, keys);
    this.report("Python is starting", "starting");
  }

  report(text, kind) {
    this.status.textContent = text;
    this.element.dataset.state = kind;
    this.allow("stop", kind === "running");
    this.allow("runAll", kind === "ready" || kind === "failed");
  }

  /** Buttons that make no sense now keep the focus, which a disabled button would lose. */
  allow(name, allowed) {
    this[name].setAttribute("aria-disabled", String(!allowed));
  }

  may(name) {
    return this[name].getAttribute("aria-disabled") === "false";
  }

  progress({ bytes }, expected) {
    const percent = Math.min(99, Math.round((100 * bytes) / expected));
    this.status.textContent = `Python is loading: ${percent} %`;
  }
}
