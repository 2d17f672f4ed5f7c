// Small repairs to the theme's markup, so that what a screen reader says is what is seen.

// What may be larger than its place, and then scrolls.
const SCROLLERS = "pre, .cell_output > .output, .pst-scrollable-table-container, .math";

/** Tell whether a formula in a sentence is wider than its column. In a table, the table scrolls. */
function isWide(formula) {
  const column = formula.closest("p, li, dd, dt, h1, h2, h3, h4, td, th, div");
  return !formula.closest("table") && formula.firstElementChild?.offsetWidth > column.clientWidth;
}

function scrolls(part) {
  if (part.matches("span.math")) return isWide(part);
  return part.scrollWidth > part.clientWidth || part.scrollHeight > part.clientHeight;
}

/** Make a part that scrolls a stop of the keyboard, and no other. */
function setStop(part, isStop) {
  if (isStop) part.tabIndex = 0;
  else part.removeAttribute("tabindex");
  if (!part.matches(".math")) return;
  part.firstElementChild?.removeAttribute("tabindex"); // which is for readers without scripts
  part.classList.toggle("wide", isStop);
}

// Parts near the screen are measured. What is far from it is not laid out yet (web/css/lazy.css),
// and stays within reach of the keyboard until it comes near.
const nearParts = new IntersectionObserver(
  (seen) => {
    const near = seen.filter((entry) => entry.isIntersecting).map(({ target }) => target);
    for (const [part, isStop] of near.map((part) => [part, scrolls(part)])) setStop(part, isStop);
  },
  { rootMargin: "300% 0%" },
);

function watchScrollers() {
  nearParts.disconnect();
  for (const part of document.querySelectorAll(SCROLLERS)) nearParts.observe(part);
}
addEventListener("resize", watchScrollers);

document.addEventListener("DOMContentLoaded", () => {
  for (const part of document.querySelectorAll(SCROLLERS)) {
    if (!part.matches(".math")) part.tabIndex = 0;
  }
  document.fonts.ready.then(watchScrollers); // formulas get their width with their fonts
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
