// Making elements.

export function make(tag, className = "", text = "") {
  const element = document.createElement(tag);
  element.className = className;
  element.textContent = text;
  return element;
}

/** Make a button; `description` says in full what its short label leaves to the eye. */
export function button(label, description, act) {
  const element = make("button", "live-button", label);
  element.type = "button";
  if (description !== label) {
    element.setAttribute("aria-label", description);
    element.title = description;
  }
  element.addEventListener("click", act);
  return element;
}
