// Paper is light: a page that is read in the dark is printed in the light colours, figures too.
(() => {
  const root = document.documentElement;
  let before = null;
  addEventListener("beforeprint", () => {
    if (root.dataset.theme === "light") return;
    before = root.dataset.theme;
    root.dataset.theme = "light";
  });
  addEventListener("afterprint", () => {
    if (before) root.dataset.theme = before;
    before = null;
  });
})();
