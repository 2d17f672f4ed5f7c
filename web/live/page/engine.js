// The page's side of the message protocol of README.md: one worker, started anew after each stop.

export class Stopped extends Error {}

export class Engine {
  /** `worker` is the address of the worker, `files` what it needs to know to start. */
  constructor(worker, files, onProgress) {
    this.address = worker;
    this.files = files;
    this.onProgress = onProgress;
    this.compiled = undefined; // what the engine gave us to start faster the next time
    this.pending = new Map();
    this.count = 0;
    this.kept = new Promise((resolve) => {
      this.tellKept = resolve; // that the next visit finds all it needs
    });
  }

  /** Start the engine; the promise is kept when cells can be run. */
  start() {
    const worker = new Worker(this.address, { type: "module" });
    this.worker = worker;
    worker.addEventListener("message", ({ data }) => {
      if (worker === this.worker) this.receive(data); // not what one that was stopped still says
    });
    worker.addEventListener("error", (event) => {
      event.preventDefault();
      this.fail(new Error(event.message || "the engine could not be loaded"));
    });
    this.ready = this.ask("ready", { type: "start", ...this.files, compiled: this.compiled }).then(
      (answer) => {
        this.compiled = answer.compiled;
      },
    );
    return this.ready;
  }

  /** Run code; `onOutput` hears of each output; the promise tells whether it came to its end. */
  async run(code, cell, onOutput) {
    await this.ready;
    const run = (this.count += 1);
    const { ok } = await this.ask(run, { type: "run", run, code, cell }, onOutput);
    return ok;
  }

  async complete(code, cursor) {
    await this.ready;
    const request = (this.count += 1);
    return this.ask(request, { type: "complete", request, code, cursor });
  }

  /** End whatever the engine does, at once. */
  stop() {
    this.worker.terminate();
    this.fail(new Stopped("stopped"));
  }

  ask(key, message, onOutput) {
    return new Promise((resolve, reject) => {
      this.pending.set(key, { resolve, reject, onOutput });
      this.worker.postMessage(message);
    });
  }

  receive(message) {
    if (message.type === "progress") this.onProgress(message);
    else if (message.type === "output") this.pending.get(message.run)?.onOutput(message.output);
    else if (message.type === "kept") this.tellKept();
    else if (message.type === "failed") this.fail(new Error(message.reason));
    else this.settle(message.run ?? message.request ?? message.type, message);
  }

  settle(key, message) {
    this.pending.get(key)?.resolve(message);
    this.pending.delete(key);
  }

  fail(error) {
    const waiting = [...this.pending.values()];
    this.pending.clear();
    for (const { reject } of waiting) reject(error);
  }
}
