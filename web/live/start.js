// Written into each page that has a button, right after it: all that is loaded before it is pressed.
{
  const place = document.currentScript.previousElementSibling;
  const button = place.querySelector("button");
  button.addEventListener("click", async () => {
    const note = place.querySelector(".live-note");
    if (location.protocol === "file:") {
      note.textContent =
        "Code runs only on pages that a web server sends. In the folder of this site, run: python -m http.server";
      return;
    }
    button.disabled = true;
    note.textContent = "Loading…";
    try {
      const page = await import(new URL(place.dataset.assets + "page/main.js", location));
      await page.start(place);
    } catch (error) {
      note.textContent = `The cells could not be made live: ${error.message}`;
      button.disabled = false;
    }
  });
}
