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
