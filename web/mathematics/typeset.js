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

/** Set a formula: what is drawn, and MathML for screen readers. */
globalThis.typeset = (tex, display) => adaptor.outerHTML(page.convert(tex, { display }));

/** The style sheet of all formulas set so far, which finds the fonts in a folder. */
globalThis.styleSheet = (fonts) => {
  output.font.options.fontURL = fonts;
  return adaptor.textContent(output.styleSheet(page));
};
