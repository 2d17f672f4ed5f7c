// The editor of a cell and the rendering of Markdown, bundled by `make vendor` into web/vendor.

import { autocompletion, closeBrackets, closeBracketsKeymap } from "@codemirror/autocomplete";
import { completionKeymap, startCompletion, completionStatus } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentLess, indentMore } from "@codemirror/commands";
import { python, pythonLanguage } from "@codemirror/lang-python";
import { bracketMatching, indentOnInput, indentUnit, syntaxHighlighting } from "@codemirror/language";
import { Compartment, EditorState, Prec, StateEffect, StateField } from "@codemirror/state";
import { Decoration, EditorView, drawSelection, keymap } from "@codemirror/view";
import { classHighlighter, highlightCode } from "@lezer/highlight";
import { Marked } from "marked";

const EMPTY_OR_INDENTED = /^\s*$/;
const WORD = /[\w.]+/;

const markLine = StateEffect.define();
const markedLine = StateField.define({
  create: () => Decoration.none,
  update(marks, transaction) {
    for (const effect of transaction.effects) {
      if (effect.is(markLine)) marks = lineMark(transaction.state.doc, effect.value);
    }
    return transaction.docChanged ? Decoration.none : marks;
  },
  provide: (field) => EditorView.decorations.from(field),
});

function lineMark(document, number) {
  if (!number || number > document.lines) return Decoration.none;
  const mark = Decoration.line({ class: "live-raised-here" });
  return Decoration.set([mark.range(document.line(number).from)]);
}

/**
 * Make an editor inside an element. `actions` maps keys to functions; `changed` hears of every
 * change; `complete(code, cursor)` returns a promise of {start, items}.
 */
export function makeEditor({ parent, code, label, description, actions, changed, complete }) {
  const readOnly = new Compartment();
  const view = new EditorView({
    parent,
    state: EditorState.create({
      doc: code,
      extensions: [
        Prec.highest(keymap.of(Object.entries(actions).map(([key, act]) => bound(key, act)))),
        Prec.high(keymap.of([{ key: "Tab", run: completeOrIndent, shift: indentLess }])),
        keymap.of([...closeBracketsKeymap, ...completionKeymap, ...historyKeymap, ...defaultKeymap]),
        history(),
        drawSelection(),
        indentOnInput(),
        bracketMatching(),
        closeBrackets(),
        indentUnit.of("    "),
        python(),
        syntaxHighlighting(classHighlighter),
        autocompletion({ override: [completionSource(complete)] }),
        markedLine,
        readOnly.of([]),
        EditorView.contentAttributes.of({
          "aria-label": label,
          "aria-describedby": description,
          autocapitalize: "off",
          spellcheck: "false",
        }),
        EditorView.updateListener.of((update) => update.docChanged && changed()),
      ],
    }),
  });
  return {
    get code() {
      return view.state.doc.toString();
    },
    set code(text) {
      view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text } });
    },
    focus: () => view.focus(),
    markLine: (number) => view.dispatch({ effects: markLine.of(number) }),
  };
}

function bound(key, act) {
  return {
    key,
    run: (view) => {
      if (key === "Escape" && completionStatus(view.state)) return false; // closes the list first
      act();
      return true;
    },
  };
}

/** Tab after a name completes it, as in a notebook; elsewhere it indents. */
function completeOrIndent(view) {
  const { from, empty } = view.state.selection.main;
  const before = view.state.doc.lineAt(from).text.slice(0, from - view.state.doc.lineAt(from).from);
  if (!empty || EMPTY_OR_INDENTED.test(before) || !/[\w.]$/.test(before)) return indentMore(view);
  return startCompletion(view);
}

function completionSource(complete) {
  return async (context) => {
    const word = context.matchBefore(WORD);
    if (!word || !(context.explicit || word.text.endsWith("."))) return null;
    const found = await complete(context.state.doc.toString(), context.pos);
    if (!found?.items.length) return null;
    const options = found.items.map((label) => ({ label }));
    return { from: found.start, options, validFor: /^[\w.]*$/ };
  };
}

const markdown = new Marked({
  extensions: [
    mathematics("displayed", "block", /^\$\$([^]+?)\$\$(?:\n|$)/, "$$", ["\\[", "\\]"]),
    mathematics("inline", "inline", /^\$(?!\s)([^$\n]+?)\$(?!\d)/, "$", ["\\(", "\\)"]),
  ],
  renderer: {
    code: ({ text, lang }) =>
      `<div class="highlight"><pre>${lang === "python" ? highlighted(text) : escaped(text)}</pre></div>`,
  },
});

/** Return Markdown as HTML; formulas are left, in the delimiters that MathJax looks for. */
export function renderMarkdown(text) {
  return markdown.parse(text);
}

function mathematics(name, level, pattern, start, [open, close]) {
  return {
    name,
    level,
    start: (source) => source.indexOf(start),
    tokenizer(source) {
      const match = pattern.exec(source);
      return match ? { type: name, raw: match[0], text: match[1] } : undefined;
    },
    renderer: ({ text }) => `<span class="math">${open}${escaped(text)}${close}</span>`,
  };
}

function highlighted(code) {
  let html = "";
  const put = (text, classes) => {
    html += classes ? `<span class="${classes}">${escaped(text)}</span>` : escaped(text);
  };
  highlightCode(code, pythonLanguage.parser.parse(code), classHighlighter, put, () => put("\n"));
  return html;
}

function escaped(text) {
  return text.replace(/[&<>]/g, (sign) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[sign]);
}
