// Small repairs to the theme's markup, so that what a screen reader says is what is seen.

/** Tell whether a formula is wider than its column. In a table, the table scrolls. */
function isWide(formula) {
  if (formula.matches("div")) return formula.scrollWidth > formula.clientWidth;
  const column = formula.closest("p, li, dd, dt, h1, h2, h3, h4, td, th, div");
  return !formula.closest("table") && formula.firstElementChild?.offsetWidth > column.clientWidth;
}

// A formula that scrolls is reached by keyboard; one that is seen whole is no stop on the way. Those
// near the screen are measured: what is far from it is not laid out yet.
const nearFormulas = new IntersectionObserver(
  (seen) => {
    const near = seen.filter((entry) => entry.isIntersecting).map(({ target }) => target);
    for (const [formula, wide] of near.map((formula) => [formula, isWide(formula)])) {
      formula.firstElementChild?.removeAttribute("tabindex"); // for readers without scripts
      formula.classList.toggle("wide", wide);
      if (wide) formula.tabIndex = 0;
      else formula.removeAttribute("tabindex");
    }
  },
  { rootMargin: "300% 0%" },
);

function watchFormulas() {
  nearFormulas.disconnect();
  for (const formula of document.querySelectorAll(".math")) nearFormulas.observe(formula);
}
addEventListener("resize", watchFormulas);

document.addEventListener("DOMContentLoaded", () => {
  // The theme looks too early for tables that scroll: formulas get their width with their fonts.
  document.fonts.ready.then(() => {
    watchFormulas();
    for (const table of document.querySelectorAll(".pst-scrollable-table-container")) {
      table.tabIndex = table.scrollWidth > table.clientWidth ? 0 : -1;
    }
  });
  const labelled = "summary[aria-label], .search-button-field[aria-label]";
  for (const element of document.querySelectorAll(labelled)) {
    if (element.textContent.trim()) element.removeAttribute("aria-label");
  }
  for (const element of document.querySelectorAll(".citation-list[role], .citation[role]")) {
    element.removeAttribute("role");
  }
  const sidebar = document.querySelector(".bd-sidebar-primary");
  if (sidebar && !sidebar.closest("nav")) {
    sidebar.setAttribute("role", "navigation");
    sidebar.setAttribute("aria-label", "Book");
  }
});
