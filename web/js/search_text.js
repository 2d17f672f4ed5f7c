// What the search page shows and understands: formulas as text instead of LaTeX, and Greek letters
// in a query. It changes Sphinx's searchtools.js in a few places before that starts to search.
const searchText = (() => {
  const GREEK = {
    alpha: "α", beta: "β", gamma: "γ", delta: "δ", epsilon: "ε", varepsilon: "ε", eta: "η", theta: "θ",
    lambda: "λ", mu: "μ", pi: "π", rho: "ρ", sigma: "σ", tau: "τ", phi: "φ", varphi: "φ", omega: "ω",
    Delta: "Δ", Sigma: "Σ", Phi: "Φ", Omega: "Ω",
  };
  const SIGNS = {
    cdot: "·", times: "×", le: "≤", leq: "≤", ge: "≥", geq: "≥", ne: "≠", neq: "≠", approx: "≈",
    infty: "∞", in: "∈", notin: "∉", to: "→", rightarrow: "→", Rightarrow: "⇒", mapsto: "↦", sum: "Σ",
    prod: "Π", partial: "∂", top: "⊤", dots: "…", ldots: "…", cdots: "…", vdots: "…", ddots: "…",
    odot: "⊙", oplus: "⊕", pm: "±", mid: "|", lVert: "‖", rVert: "‖", Vert: "‖", lfloor: "⌊",
    rfloor: "⌋", lceil: "⌈", rceil: "⌉", langle: "⟨", rangle: "⟩", colon: ":", prime: "′", equiv: "≡",
    ll: "≪", gg: "≫", sim: "∼", subset: "⊂", cup: "∪", cap: "∩", forall: "∀", exists: "∃",
  };
  const BETWEEN = new Set([..."·×≤≥≠≈∈∉→⇒↦⊙⊕±≡≪≫∼"]);
  // Commands that are words; any other command is a matter of looks, and left out.
  const WORDS = new Set(["ln", "log", "exp", "max", "min", "sin", "cos", "lim", "arg", "det", "sup", "inf"]);
  const SPACES = new Set(["quad", "qquad"]);
  const GROUP = "\\{((?:[^{}\\\\]|\\\\.)*)\\}"; // the innermost braces

  const brief = (part) => (/^√?[\p{L}\p{N}.′]*$/u.test(part.trim()) ? part.trim() : `(${part.trim()})`);

  function command(name) {
    if (name in GREEK) return GREEK[name];
    if (name in SIGNS) return BETWEEN.has(SIGNS[name]) ? ` ${SIGNS[name]} ` : SIGNS[name];
    if (WORDS.has(name)) return ` ${name} `;
    return SPACES.has(name) ? " " : "";
  }

  // The text of a formula: \frac{q K^\top}{\sqrt{d}} becomes (q K^⊤)/√d.
  function plain(latex) {
    let text = latex
      .replace(/\\[()[\]]/g, " ")
      .replace(/\\(?:begin|end)\s*\{[^}]*\}(?:\{[rlc|]*\})?|\\(?:label|hspace|vspace)\s*\{[^}]*\}/g, " ")
      .replace(/\\\\(?:\[[^\]]*\])?|(?<!\\)&/g, " ")
      .replace(/\\(?:left|right|middle|[bB]igg?[lrm]?)\s*\.?(?![a-zA-Z])/g, "")
      .replace(/\\tag\s*\{([^}]*)\}/g, " ($1)")
      .replace(/\\[{}]/g, (brace) => (brace === "\\{" ? "\u27ec" : "\u27ed"))
      .replace(/\\[,;:! ]/g, " ");
    let before;
    do { // from the inside out, so that groups may stand in groups
      before = text;
      text = text
        .replace(new RegExp(`\\\\[dtc]?frac\\s*${GROUP}\\s*${GROUP}`, "g"), (_, a, b) => `${brief(a)}/${brief(b)}`)
        .replace(new RegExp(`\\\\sqrt\\s*${GROUP}`, "g"), (_, a) => `√${brief(a)}`)
        .replace(new RegExp(`\\\\(?:mathrm|mathbf|mathbb|mathcal|mathit|operatorname|text|textbf|textit|texttt|boldsymbol|underbrace|overbrace|overline|underline|color|hat|bar|tilde|boxed)\\*?\\s*${GROUP}`, "g"), "$1");
      if (text === before) text = text.replace(new RegExp(`(?<!\\\\[a-zA-Z]*)${GROUP}`), "$1");
    } while (text !== before);
    return text
      .replace(/\\([a-zA-Z]+)\s*/g, (_, name) => command(name))
      .replace(/\\(.)/g, "$1")
      .replace(/[{}]/g, "")
      .replace(/\u27ec/g, "{")
      .replace(/\u27ed/g, "}")
      .replace(/\s+/g, " ")
      .replace(/\( /g, "(")
      .replace(/\b(arg|cos|exp|ln|log|max|min|sin) (?=\()/g, "$1")
      .trim();
  }

  const named = (query) =>
    query.replace(/\p{Script=Greek}/gu, (letter) => {
      const name = Object.keys(GREEK).find((key) => GREEK[key] === letter);
      return name ? ` ${name} ` : letter;
    }).trim();

  // The words of a page, or of its part at an anchor, without what only steers the page.
  function pageText(html, anchor) {
    const page = new DOMParser().parseFromString(html, "text/html");
    const aside = ".headerlink, .viewcode-link, script, style, summary, button, nav, .live-start, " +
      "#jb-print-docs-body, .visually-hidden";
    page.querySelectorAll(aside).forEach((node) => node.remove());
    page.querySelectorAll(".math").forEach((node) => {
      const source = node.querySelector('annotation[encoding="application/x-tex"]') ?? node;
      node.textContent = plain(source.textContent);
    });
    page.querySelectorAll("p, li, dt, dd, tr, td, th, pre, h1, h2, h3, div").forEach((node) => node.append(" "));
    const main = page.querySelector(".bd-article") ?? page.body;
    const part = anchor ? page.getElementById(decodeURIComponent(anchor.slice(1))) : null;
    return (part ?? main).textContent.replace(/\s+/g, " ").trim();
  }

  const withMath = (title) => (/[\\{}]/.test(title) ? plain(title) : title);

  function readable(index) {
    index.titles = index.titles.map(withMath);
    index.alltitles = Object.fromEntries(
      Object.entries(index.alltitles).map(([title, places]) => [withMath(title), places]));
    return index;
  }

  function change(search) {
    const { query, setIndex, makeSearchSummary } = search;
    search.htmlToText = pageText;
    search.query = (words) => query.call(search, named(words));
    search.makeSearchSummary = (html, words, anchor) =>
      makeSearchSummary.call(search, html, [...words].flatMap((word) => [word, GREEK[word] ?? word]), anchor);
    search.setIndex = (index) => setIndex.call(search, readable(index));
    if (search.hasIndex()) readable(search._index);
  }

  return { plain, named, pageText, change };
})();

document.addEventListener("DOMContentLoaded", () => searchText.change(Search));
