// Small repairs to the theme's markup, so that what a screen reader says is what is seen.
document.addEventListener("DOMContentLoaded", () => {
  // The theme looks too early for tables that scroll: formulas get their width with their fonts.
  document.fonts.ready.then(() => {
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
