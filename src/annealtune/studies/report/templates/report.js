// Sort a table by a click on a column's title; a second click turns the order round.
for (const table of document.querySelectorAll("table.sortable")) {
  const titles = [...table.querySelectorAll("thead tr.titles th")];
  titles.forEach((title, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...title.childNodes);
    title.append(button);
    button.addEventListener("click", () => {
      const direction = title.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      for (const other of titles) other.removeAttribute("aria-sort");
      title.setAttribute("aria-sort", direction === 1 ? "ascending" : "descending");
      const key = (row) => row.cells[column]?.dataset.order ?? row.cells[column]?.textContent ?? "";
      const compare = (first, second) => {
        const [a, b] = [key(first), key(second)];
        if (a === "" || b === "") return (a === "") - (b === ""); // what is not known comes last
        const difference = Number(a) - Number(b);
        return direction * (Number.isNaN(difference) ? a.localeCompare(b) : difference);
      };
      const body = table.tBodies[0];
      body.append(...[...body.rows].sort(compare));
    });
  });
}

// Copy the text of a block by a button.
for (const block of document.querySelectorAll(".copyable")) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy";
  block.append(button);
  button.addEventListener("click", async () => {
    const text = block.querySelector("pre");
    try {
      await navigator.clipboard.writeText(text.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(text); // the reader copies what is marked
      button.textContent = "Marked";
    }
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
}

// Show the values of the point next to the mouse or finger; with the arrow keys, point by point.
const values = document.createElement("div");
values.className = "values";
values.hidden = true;
values.setAttribute("role", "status");
document.body.append(values);
for (const svg of document.querySelectorAll("svg[data-points]")) {
  const NEAR = 40; // of the drawing's own units
  const all = JSON.parse(svg.dataset.points).map(([name, colour, isLine, xs, ys, texts]) => ({
    name,
    colour,
    isLine,
    points: xs.map((x, place) => ({ x, y: ys[place], text: texts[place] })),
  }));
  const shape = (kind, look) => {
    const made = document.createElementNS(svg.namespaceURI, kind);
    made.setAttribute("class", look);
    made.setAttribute("visibility", "hidden");
    svg.append(made);
    return made;
  };
  const line = shape("polyline", "point-line");
  const ring = shape("circle", "point-ring");
  ring.setAttribute("r", 5);
  let at = null;
  const hide = () => {
    at = null;
    values.hidden = true;
    line.setAttribute("visibility", "hidden");
    ring.setAttribute("visibility", "hidden");
  };
  const show = (series, place) => {
    at = [series, place];
    const { name, colour, isLine, points } = all[series];
    const { x, y, text } = points[place];
    for (const mark of [line, ring]) mark.style.stroke = colour;
    ring.setAttribute("cx", x);
    ring.setAttribute("cy", y);
    ring.setAttribute("visibility", "visible");
    line.setAttribute("points", points.map((point) => `${point.x},${point.y}`).join(" "));
    line.setAttribute("visibility", isLine ? "visible" : "hidden");
    const heading = document.createElement("b");
    heading.textContent = name;
    values.replaceChildren(heading, text);
    values.style.borderLeftColor = colour;
    values.hidden = false;
    // Beside the point, within the window.
    const spot = new DOMPoint(x, y).matrixTransform(svg.getScreenCTM());
    const { width, height } = values.getBoundingClientRect();
    const room = document.documentElement.clientWidth;
    const left = spot.x + 14 + width < room ? spot.x + 14 : Math.max(4, spot.x - 14 - width);
    const top = Math.max(4, spot.y - height - 8);
    values.style.left = `${Math.min(left, room - width - 4) + scrollX}px`;
    values.style.top = `${top + scrollY}px`;
  };
  const seek = (event) => {
    const spot = new DOMPoint(event.clientX, event.clientY).matrixTransform(
      svg.getScreenCTM().inverse(),
    );
    let best = NEAR;
    let found = null;
    all.forEach(({ points }, series) =>
      points.forEach(({ x, y }, place) => {
        const distance = Math.hypot(x - spot.x, y - spot.y);
        if (distance < best) {
          best = distance;
          found = [series, place];
        }
      }),
    );
    if (found) show(...found);
    else hide();
  };
  svg.addEventListener("pointermove", seek);
  svg.addEventListener("pointerdown", seek);
  svg.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && hide());
  svg.setAttribute("tabindex", "0");
  svg.addEventListener("blur", hide);
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    if (event.key === "Escape") hide();
    if (!(event.key in step)) return;
    event.preventDefault();
    if (!at) return show(0, 0);
    const [across, along] = step[event.key];
    const series = (at[0] + across + all.length) % all.length;
    const last = all[series].points.length - 1;
    show(series, Math.min(Math.max(at[1] + along, 0), last));
  });
}
