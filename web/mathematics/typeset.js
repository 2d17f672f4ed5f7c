// MathJax without a browser: formulas in TeX become elements that a page shows as they are.
// `make vendor` bundles this with all it imports; web/mathematics/typesetter.py runs the bundle.

import { liteAdaptor } from "mathjax-full/js/adaptors/liteAdaptor.js";
import { AssistiveMmlHandler } from "mathjax-full/js/a11y/assistive-mml.js";
import { RegisterHTMLHandler } from "mathjax-full/js/handlers/html.js";
import { TeX } from "mathjax-full/js/input/tex.js";
import { AllPackages } from "mathjax-full/js/input/tex/AllPackages.js";
import { mathjax } from "mathjax-full/js/mathjax.js";
import { CHTML } from "mathjax-full/js/output/chtml.js";

const adaptor = liteAdaptor();
AssistiveMmlHandler(RegisterHTMLHandler(adaptor));
const output = new CHTML();
// Without the two packages that hide mistakes behind red letters.
const packages = AllPackages.filter((name) => !["noerrors", "noundefined"].includes(name));
const page = mathjax.document("", { InputJax: new TeX({ packages }), OutputJax: output });
const ESCAPES = { "&": "&amp;", "<": "&lt;", ">": "&gt;" };

/** Set a formula. Screen readers get it as MathML, which keeps the TeX for a search. */
globalThis.typeset = (tex, display) => {
  const container = page.convert(tex, { display });
  if (display) adaptor.setAttribute(container, "tabindex", "0"); // a wide one is scrolled by keyboard
  const note = `<annotation encoding="application/x-tex">${tex.replace(/[&<>]/g, (sign) => ESCAPES[sign])}</annotation>`;
  return adaptor
    .outerHTML(container)
    .replace(/(<math[^>]*>)([^]*)(<\/math>)/, (_, open, inner, close) =>
      `${open}<semantics><mrow>${inner}</mrow>${note}</semantics>${close}`);
};

/** The style sheet of all formulas set so far, which finds the fonts in a folder. */
globalThis.styleSheet = (fonts) => {
  output.font.options.fontURL = fonts;
  return adaptor.textContent(output.styleSheet(page));
};
