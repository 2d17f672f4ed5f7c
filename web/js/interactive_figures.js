// Figures that answer the reader. Each stands below a static picture of the same example: a cell
// whose tag is interactive-<name> gets the figure <name>. Without scripts, in Colab and on paper
// the picture remains. Every control is a native one, so that a keyboard and a screen reader
// suffice; what is drawn besides is hidden from the latter, and said in a line of text instead.
(() => {
  const { softmax, mix, attend, causal } = attentionNumbers;
  const SVG = "http://www.w3.org/2000/svg";
  const VALUES = [[1, 2], [3, 0], [4, 5]];
  const SHARES = [[[1, 3, 2], [1, 2, 1], [1, 2, 3]], [[1, 1, 1], [3, 1, 1], [1, 4, 1]]];
  let count = 0;

  function node(name, attributes = {}, ...children) {
    const made = name.startsWith("svg:")
      ? document.createElementNS(SVG, name.slice(4))
      : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  const fixed = (number) => (Math.abs(number) < 5e-4 ? 0 : number).toFixed(3).replace("-", "−");
  const row = (numbers) => `[${numbers.map(fixed).join(", ")}]`;

  // A table whose body the figure writes anew: strings in rows, the first of each a header.
  function table(caption, heads, lines, shade = () => null) {
    const body = lines.map((line, i) => node("tr", {}, ...line.map((text, j) => {
      if (j === 0) return node("th", { scope: "row" }, text);
      const weight = shade(i, j - 1);
      const cell = node("td", weight === null ? {} : { class: "weight" }, text);
      if (weight !== null) cell.style.setProperty("--weight", weight);
      return cell;
    })));
    const head = heads.map((text) => node("th", { scope: "col" }, text));
    return node("table", {}, node("caption", {}, caption),
      node("thead", {}, node("tr", {}, ...head)), node("tbody", {}, ...body));
  }

  function panel(title, explanation) {
    const id = `interactive-${(count += 1)}`;
    const said = node("p", { class: "said", role: "status" });
    const shown = node("div", { class: "shown" });
    const controls = node("div", { class: "controls" });
    const box = node("section", { class: "interactive", "aria-labelledby": id },
      node("p", { class: "interactive-title", id }, title),
      node("p", {}, explanation), controls, shown, said);
    return { box, controls, shown, said };
  }

  // A wide table scrolls by itself, by keyboard too.
  function scrolling(label) {
    return node("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": label });
  }

  function button(text, action) {
    const made = node("button", { type: "button" }, text);
    made.addEventListener("click", action);
    return made;
  }

  // ---- one query: two sliders, or a point to drag ----------------------------------------------

  const REACH = 3;
  const KEYS = [[0, 0, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1]];

  function oneQuery() {
    const start = [Math.log(2), Math.log(3)];
    let state = [...start];
    const { box, controls, shown, said } = panel("Move the query",
      "The query is [a, b, a, b]. Move the sliders, or drag the end of the arrow, and watch the output wander between the values.");

    const sliders = ["a", "b"].map((name, place) => {
      const slider = node("input", { type: "range", min: -REACH, max: REACH, step: 0.1 });
      slider.addEventListener("input", () => {
        state[place] = Number(slider.value);
        update();
      });
      controls.append(node("label", {}, `${name} `, slider));
      return slider;
    });
    controls.append(button("Back to the example", () => {
      state = [...start];
      update();
    }));

    const drawing = node("div", { class: "drawings", "aria-hidden": "true" });
    const numbers = scrolling("Numbers of the query");
    shown.append(drawing, numbers);
    const plane = queryPlane((point) => {
      state = point;
      update();
    });
    const values = valuePlane();
    drawing.append(plane.picture, values.picture);

    function update() {
      const [a, b] = state;
      const result = attend([a, b, a, b], KEYS, VALUES);
      sliders.forEach((slider, place) => {
        slider.value = state[place];
        slider.setAttribute("aria-valuetext", fixed(state[place]));
      });
      plane.draw(state);
      values.draw(result);
      const lines = KEYS.map((key, j) => [`key ${j}: [${key.join(", ")}]`,
        fixed(result.dots[j]), fixed(result.scores[j]), fixed(result.weights[j])]);
      numbers.replaceChildren(table(`The query ${row([a, b, a, b])}`,
        ["key", "dot product", "score", "weight"], lines,
        (i, j) => (j === 2 ? result.weights[i] : null)));
      said.textContent = `Weights ${row(result.weights)}. Output ${row(result.output)}.`;
    }

    update();
    return box;
  }

  const SIZE = 220;
  const MARGIN = 22;

  // Axes from low to high, both the same; returns a picture and how to place a point in it.
  function plot(low, high, title) {
    const picture = node("svg:svg", { viewBox: `0 0 ${SIZE} ${SIZE}`, width: SIZE, height: SIZE });
    const unit = (SIZE - 2 * MARGIN) / (high - low);
    const x = (number) => MARGIN + (number - low) * unit;
    const y = (number) => SIZE - x(number);
    for (let tick = Math.ceil(low); tick <= high; tick += 1) {
      const strong = tick === 0 ? "axis" : "grid";
      picture.append(
        node("svg:line", { class: strong, x1: x(tick), x2: x(tick), y1: y(low), y2: y(high) }),
        node("svg:line", { class: strong, x1: x(low), x2: x(high), y1: y(tick), y2: y(tick) }));
    }
    picture.append(node("svg:text", { x: MARGIN, y: 14 }, title));
    const back = (event) => {
      const place = picture.getBoundingClientRect();
      const [right, down] = [event.clientX - place.left, event.clientY - place.top]
        .map((pixels) => (pixels * SIZE) / place.width);
      return [low + (right - MARGIN) / unit, low + (SIZE - down - MARGIN) / unit];
    };
    return { picture, x, y, back };
  }

  function dotWithName(axes, point, text, left = false) {
    const [x, y] = [axes.x(point[0]), axes.y(point[1])];
    const place = left ? { x: x - 7, y: y - 6, "text-anchor": "end" } : { x: x + 7, y: y - 6 };
    return [node("svg:circle", { class: "point", cx: x, cy: y, r: 4 }), node("svg:text", place, text)];
  }

  function queryPlane(moved) {
    const axes = plot(-REACH, REACH, "query (a, b) and keys");
    const arrow = node("svg:line", { class: "arrow", x1: axes.x(0), y1: axes.y(0) });
    const handle = node("svg:circle", { class: "handle", r: 9 });
    const { picture } = axes;
    // On the left, where the query of the example does not hide a name.
    [[0, 0], [1, 0], [0, 1]].forEach((key, j) => picture.append(...dotWithName(axes, key, `k${j}`, true)));
    picture.append(arrow, handle);
    const follow = (event) => {
      const inside = (number) => Math.max(-REACH, Math.min(REACH, Math.round(10 * number) / 10));
      moved(axes.back(event).map(inside));
    };
    handle.addEventListener("pointerdown", (event) => {
      handle.setPointerCapture(event.pointerId);
      handle.addEventListener("pointermove", follow);
    });
    handle.addEventListener("lostpointercapture", () => handle.removeEventListener("pointermove", follow));
    return {
      picture,
      draw([a, b]) {
        arrow.setAttribute("x2", axes.x(a));
        arrow.setAttribute("y2", axes.y(b));
        handle.setAttribute("cx", axes.x(a));
        handle.setAttribute("cy", axes.y(b));
      },
    };
  }

  function valuePlane() {
    const axes = plot(0, 5, "values and output");
    const { picture } = axes;
    const lines = VALUES.map((value) => node("svg:line", {
      class: "pull", x1: axes.x(value[0]), y1: axes.y(value[1]) }));
    const output = node("svg:circle", { class: "output", r: 6 });
    picture.append(...lines);
    VALUES.forEach((value, j) => picture.append(...dotWithName(axes, value, `v${j}`)));
    picture.append(output);
    return {
      picture,
      draw(result) {
        const [x, y] = [axes.x(result.output[0]), axes.y(result.output[1])];
        output.setAttribute("cx", x);
        output.setAttribute("cy", y);
        lines.forEach((line, j) => {
          line.setAttribute("x2", x);
          line.setAttribute("y2", y);
          line.setAttribute("stroke-width", 1 + 9 * result.weights[j]);
        });
      },
    };
  }

  // ---- scores and the causal mask --------------------------------------------------------------

  function causalScores() {
    const start = SHARES[0].map((line) => line.map(Math.log));
    let scores = start.map((line) => [...line]);
    const { box, controls, shown, said } = panel("Change a score",
      "Each row is a query, each column a key. Change a score, and see which weights of its row move. The mask switches the future off.");
    const mask = node("input", { type: "checkbox" });
    mask.checked = true;
    mask.addEventListener("change", () => update("The mask is " + (mask.checked ? "on. " : "off. ")));
    controls.append(node("label", {}, mask, " causal mask"), button("Back to the example", () => {
      scores = start.map((line) => [...line]);
      write();
      update();
    }));

    const fields = scores.map((line, i) => line.map((_, j) => {
      const field = node("input", { type: "number", step: 0.1, "aria-label": `score of query ${i} on key ${j}` });
      field.addEventListener("input", () => {
        if (!field.value || !Number.isFinite(field.valueAsNumber)) return;
        scores[i][j] = field.valueAsNumber;
        update(`Query ${i}. `, i);
      });
      return field;
    }));
    const grid = table("Scores", ["query", "k0", "k1", "k2"], fields.map((_, i) => [`q${i}`, "", "", ""]));
    [...grid.tBodies[0].rows].forEach((line, i) => fields[i].forEach((field, j) => line.cells[j + 1].append(field)));
    const results = scrolling("Weights and outputs");
    const edited = scrolling("Scores");
    edited.append(grid);
    shown.append(edited, results);

    function write() {
      fields.forEach((line, i) => line.forEach((field, j) => {
        field.value = Number(scores[i][j].toFixed(3));
      }));
    }

    function update(what = "", i = 2) {
      const seen = mask.checked ? causal(scores) : scores;
      const weights = seen.map(softmax);
      const outputs = weights.map((line) => mix(line, VALUES));
      fields.forEach((line, place) => line.forEach((field, j) => {
        field.disabled = seen[place][j] === -Infinity;
      }));
      const lines = weights.map((line, place) => [`q${place}`, ...line.map(fixed), row(outputs[place])]);
      results.replaceChildren(table("Weights and outputs", ["query", "k0", "k1", "k2", "output"], lines,
        (place, j) => (j < 3 ? weights[place][j] : null)));
      said.textContent = `${what}Weights of query ${i}: ${row(weights[i])}. Output ${row(outputs[i])}.`;
    }

    write();
    update();
    return box;
  }

  // ---- heads -----------------------------------------------------------------------------------

  const HEAD_VALUES = [VALUES, [[2, 0], [0, 2], [1, 1]]];

  function heads() {
    const weights = SHARES.map((head) => head.map((line) => softmax(line.map(Math.log))));
    const outputs = weights.map((head, j) => head.map((line) => mix(line, HEAD_VALUES[j])));
    const { box, controls, shown, said } = panel("Switch the head",
      "The same three tokens, seen by one head or by the other. Merging puts the outputs of a token side by side.");
    const views = ["head 1", "head 2", "both, merged"];
    const name = `interactive-heads-${count}`;
    const set = node("fieldset", {}, node("legend", {}, "Show"));
    views.forEach((view, j) => {
      const choice = node("input", { type: "radio", name, value: j });
      choice.checked = j === 0;
      choice.addEventListener("change", () => update(j));
      set.append(node("label", {}, choice, ` ${view}`));
    });
    controls.append(set);
    const results = scrolling("Weights and outputs of the heads");
    shown.append(results);

    function update(view) {
      if (view < 2) {
        const lines = weights[view].map((line, i) => [`token ${i}`, ...line.map(fixed), row(outputs[view][i])]);
        results.replaceChildren(table(`Weights and output of ${views[view]}`,
          ["query", "k0", "k1", "k2", "output"], lines, (i, j) => (j < 3 ? weights[view][i][j] : null)));
        said.textContent = `${views[view]}: token 2 has weights ${row(weights[view][2])} and output ${row(outputs[view][2])}.`;
        return;
      }
      const merged = outputs[0].map((line, i) => [...line, ...outputs[1][i]]);
      const lines = merged.map((line, i) => [`token ${i}`, ...line.map(fixed)]);
      results.replaceChildren(table("Outputs of both heads, merged",
        ["query", "head 1, entry 0", "head 1, entry 1", "head 2, entry 0", "head 2, entry 1"], lines));
      said.textContent = `Merged, token 2 has ${row(merged[2])}.`;
    }

    update(0);
    return box;
  }

  const FIGURES = { query: oneQuery, scores: causalScores, heads };

  document.addEventListener("DOMContentLoaded", () => {
    for (const [name, make] of Object.entries(FIGURES)) {
      for (const cell of document.querySelectorAll(`.cell.tag_interactive-${name}`)) cell.after(make());
    }
  });
})();
