// The reader's edits, kept in the browser until they are reset.

/** Keeps the edited code of the cells of one page. What cannot be kept is lost with the page. */
export class Edits {
  constructor(page) {
    this.prefix = `attnlib edit ${page} `;
  }

  /** Return the reader's version of a cell, or null; one of an older version of the book is dropped. */
  get(cell) {
    const kept = this.read(cell.id);
    if (kept && kept.of !== cell.source) {
      this.drop(cell);
      return null;
    }
    return kept ? kept.code : null;
  }

  set(cell, code) {
    if (code === cell.source) this.drop(cell);
    else this.write(cell.id, { of: cell.source, code });
  }

  drop(cell) {
    try {
      localStorage.removeItem(this.prefix + cell.id);
    } catch {
      // nothing was kept
    }
  }

  read(id) {
    try {
      return JSON.parse(localStorage.getItem(this.prefix + id));
    } catch {
      return null;
    }
  }

  write(id, value) {
    try {
      localStorage.setItem(this.prefix + id, JSON.stringify(value));
    } catch {
      // the browser keeps nothing for this site, or is full
    }
  }
}
