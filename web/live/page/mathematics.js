// Typesetting formulas in outputs with the site's own MathJax, loaded when the first one comes.

let source = "";
let loading = null;

/** Tell where MathJax is. */
export function useMathJax(address) {
  source = address;
}

/** Set the formulas inside an element, once it is in the page. */
export async function typeset(element) {
  await ready();
  await window.MathJax.typesetPromise([element]);
}

function ready() {
  if (window.MathJax?.typesetPromise) return Promise.resolve();
  loading ??= new Promise((resolve, reject) => {
    // The page's own formulas are set already; outputs alone are handed over, one by one. Their
    // size comes from the page's style sheet, as that of its own does.
    window.MathJax = { startup: { typeset: false }, chtml: { matchFontHeight: false } };
    const script = document.createElement("script");
    script.src = source;
    script.onload = () => window.MathJax.startup.promise.then(resolve);
    script.onerror = () => reject(new Error("MathJax could not be loaded"));
    document.head.append(script);
  });
  return loading;
}
