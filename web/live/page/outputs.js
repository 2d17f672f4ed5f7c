// From outputs, in the form in which notebooks store them, to the elements that the book shows.

import { renderMarkdown } from "../vendor/editor.js";
import { typeset } from "./mathematics.js";

// The richest kind that an output has is shown, as in the book.
const RENDERERS = {
  "text/html": (html) => withClass("output text_html", ownContent(html)),
  "image/svg+xml": (svg) => picture(`data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`, svgTitle(svg)),
  "image/png": (data, plain) => picture(`data:image/png;base64,${data}`, plain),
  "image/jpeg": (data, plain) => picture(`data:image/jpeg;base64,${data}`, plain),
  "text/markdown": (text) => formulas("output text_markdown", ownContent(renderMarkdown(text))),
  "text/latex": (text) => formulas("output text_latex math", document.createTextNode(delimited(text))),
  "text/plain": (text) => preformatted("output text_plain", text),
};

export class Outputs {
  /** Shows outputs in an element, in place of what it holds when the first one comes. */
  constructor(element) {
    this.element = element;
    this.stale = false;
  }

  /** From now on outputs belong to a new run. */
  begin() {
    this.stale = true;
  }

  end() {
    this.clearIfStale();
  }

  add(output) {
    if (output.output_type === "clear" && output.wait) {
      this.stale = true;
      return;
    }
    if (output.output_type === "clear") this.stale = true;
    this.clearIfStale();
    if (output.output_type === "stream") this.addText(output);
    else if (output.output_type === "error") this.element.append(errorBox(output));
    else if (output.data) this.element.append(rendered(output.data));
  }

  clearIfStale() {
    if (this.stale) this.element.replaceChildren();
    this.stale = false;
  }

  /** Text continues what the same stream has just printed. */
  addText({ name, text }) {
    const last = this.element.lastElementChild;
    if (last?.dataset.stream === name) {
      last.querySelector("pre").append(text);
      return;
    }
    const box = preformatted(`output ${name === "stderr" ? "stderr" : "stream"}`, text);
    box.dataset.stream = name;
    this.element.append(box);
  }
}

function rendered(data) {
  const kind = Object.keys(RENDERERS).find((name) => name in data);
  return kind ? RENDERERS[kind](data[kind], data["text/plain"] ?? "") : document.createTextNode("");
}

function errorBox({ traceback }) {
  const box = preformatted("output live-error", traceback.join("\n"));
  box.setAttribute("role", "group");
  box.setAttribute("aria-label", "Error");
  return box;
}

function withClass(className, content) {
  const element = document.createElement("div");
  element.className = className;
  element.append(content);
  return element;
}

function preformatted(className, text) {
  const pre = document.createElement("pre");
  pre.tabIndex = 0; // a long line is scrolled by keyboard
  pre.textContent = text;
  return withClass(`${className} highlight-myst-ansi notranslate`, withClass("highlight", pre));
}

function picture(source, description) {
  const image = document.createElement("img");
  image.src = source;
  image.alt = description;
  return image;
}

function svgTitle(svg) {
  const drawing = new DOMParser().parseFromString(svg, "image/svg+xml");
  return drawing.querySelector("title")?.textContent.trim() ?? "";
}

function formulas(className, content) {
  const element = withClass(`${className} tex2jax_process mathjax_process`, content);
  typeset(element);
  return element;
}

/** Notebooks write LaTeX with dollar signs, the book's MathJax reads \(…\) and \[…\]. */
function delimited(latex) {
  return latex
    .trim()
    .replace(/^\$\$([^]*)\$\$$/, "\\[$1\\]")
    .replace(/^\$\\displaystyle ([^]*)\$$/, "\\[$1\\]")
    .replace(/^\$([^]*)\$$/, "\\($1\\)");
}

/** Return HTML as elements, without scripts and without anything that another host would send. */
function ownContent(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  for (const element of template.content.querySelectorAll("script, [src], link[href]")) {
    const source = element.getAttribute("src") ?? element.getAttribute("href");
    const foreign = source && new URL(source, location).origin !== location.origin;
    if (element.matches("script") || (foreign && !source.startsWith("data:"))) element.remove();
  }
  return template.content;
}
