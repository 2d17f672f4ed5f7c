// Which cells run, and in which order.

import { Stopped } from "./engine.js";

/**
 * Runs cells one after the other. A cell has `code`, `name`, `runs` (false: it needs torch),
 * `mayFail`, and the methods `begin()`, `output(output)`, `end(state)` that show what happens.
 * `report(text, kind)` tells the reader about the session as a whole.
 */
export class Session {
  constructor(engine, report) {
    this.engine = engine;
    this.cells = [];
    this.report = report;
    this.queue = [];
    this.done = new Set(); // cells that ran since the engine started
    this.running = null;
    this.working = Promise.resolve(); // kept when the queue is empty
    this.started = Promise.resolve(false); // kept when the engine can run cells, or cannot start
  }

  start() {
    this.boot("Python is ready");
  }

  /** Run one cell, and before it those above it that have not been run yet. */
  run(cell) {
    const above = this.cells.slice(0, this.cells.indexOf(cell));
    return this.enqueue([...above.filter((other) => !this.done.has(other)), cell], `${cell.name} has run`);
  }

  runAll() {
    return this.enqueue(this.cells, "All cells have run");
  }

  /** Return the names that can stand at a place of some code; null while a cell runs. */
  async complete(code, cursor) {
    if (this.running) return null;
    return this.engine.complete(code, cursor).catch(() => null);
  }

  /** Stop what runs; the cell that was stopped is not run again unasked. */
  stop() {
    const stopped = this.running;
    this.halt();
    if (stopped) this.done.add(stopped);
    this.boot(
      "Stopped. Python has restarted: the cells above are run again when a cell needs them",
    );
  }

  restart() {
    this.halt();
    this.boot("Python has restarted; no cell has been run");
  }

  /** Give up all cells, the running one too, and all that they have left. */
  halt() {
    this.dismiss();
    this.done.clear();
    this.engine.stop();
  }

  /** Start the engine, and keep the promise that tells whether it could. */
  boot(message) {
    this.report("Python is starting", "starting");
    this.started = this.engine.start().then(
      () => {
        this.report(message, "ready");
        return true;
      },
      (error) => {
        if (!(error instanceof Stopped)) this.report(`Python did not start: ${error.message}`, "broken");
        return false;
      },
    );
  }

  /** Wait until the engine has started; without it no cell can run. */
  async engineStarted() {
    const start = this.started;
    const runs = await start;
    if (start !== this.started) await this.engineStarted(); // it was started anew meanwhile
    else if (!runs) this.dismiss();
  }

  /** Give up the cells that wait. */
  dismiss() {
    for (const cell of this.queue.splice(0)) cell.end("");
  }

  enqueue(cells, what) {
    for (const cell of cells) {
      if (!cell.runs || this.queue.includes(cell)) continue;
      cell.wait();
      this.queue.push(cell);
    }
    this.working = this.working.then(() => this.work(what));
    return this.working;
  }

  /** Run the queue to its end, or to the first cell that fails. */
  async work(what) {
    await this.engineStarted();
    if (!this.queue.length) return;
    this.report("Running", "running");
    while (this.queue.length) {
      const cell = this.queue.shift();
      const state = await this.runOne(cell);
      if (state === "stopped") return;
      if (state === "failed" && !cell.mayFail) {
        this.dismiss();
        this.report(`${cell.name}: ${cell.error}`, "failed");
        return;
      }
    }
    this.report(what, "ready");
  }

  async runOne(cell) {
    this.running = cell;
    cell.begin();
    let state;
    try {
      const ok = await this.engine.run(cell.code, cell.name, (output) => cell.output(output));
      this.done.add(cell);
      state = ok ? "done" : "failed";
    } catch (error) {
      state = error instanceof Stopped ? "stopped" : "failed";
      if (state === "failed") {
        cell.output(brokenEngine(error));
        this.halt();
        this.done.add(cell);
        this.boot("Python broke off and has restarted");
      }
    }
    this.running = null;
    cell.end(state);
    return state;
  }
}

function brokenEngine(error) {
  return {
    output_type: "error",
    ename: "The engine broke off",
    evalue: error.message,
    traceback: [`The engine broke off: ${error.message}`],
  };
}
