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
      const body = table.tBodies[table.tBodies.length - 1]; // a summary above it stays
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

// Show the values of the point next to the mouse or finger.
const values = document.createElement("div");
values.className = "values";
values.hidden = true;
document.body.append(values);
for (const svg of document.querySelectorAll("svg[data-points]")) {
  const NEAR = 40; // of the drawing's own units
  const all = JSON.parse(svg.dataset.points).flatMap(([name, colour, xs, ys, texts]) =>
    xs.map((x, place) => ({ name, colour, x, y: ys[place], text: texts[place] })),
  );
  const ring = document.createElementNS(svg.namespaceURI, "circle");
  ring.setAttribute("class", "point-ring");
  ring.setAttribute("r", 5);
  const hide = () => {
    values.hidden = true;
    ring.remove();
  };
  const show = ({ name, colour, x, y, text }) => {
    ring.style.stroke = colour;
    ring.setAttribute("cx", x);
    ring.setAttribute("cy", y);
    svg.append(ring);
    const heading = document.createElement("b");
    heading.textContent = name;
    values.replaceChildren(heading, text);
    values.style.borderLeftColor = colour;
    values.hidden = false;
    // Beside the point, within the window.
    const spot = new DOMPoint(x, y).matrixTransform(svg.getScreenCTM());
    const { width, height } = values.getBoundingClientRect();
    const room = document.documentElement.clientWidth - width - 4;
    values.style.left = `${Math.max(4, Math.min(spot.x + 14, room)) + scrollX}px`;
    values.style.top = `${Math.max(4, spot.y - height - 8) + scrollY}px`;
  };
  const seek = (event) => {
    const spot = new DOMPoint(event.clientX, event.clientY).matrixTransform(
      svg.getScreenCTM().inverse(),
    );
    const distance = ({ x, y }) => Math.hypot(x - spot.x, y - spot.y);
    const nearest = all.reduce((best, each) => (distance(each) < distance(best) ? each : best));
    if (distance(nearest) < NEAR) show(nearest);
    else hide();
  };
  if (all.length === 0) continue;
  svg.addEventListener("pointermove", seek);
  svg.addEventListener("pointerdown", seek);
  svg.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && hide());
}
