// Sort, filter and open the blocks.  Without it the page shows everything, in the model's order.
"use strict";
for (const table of document.querySelectorAll("table.blocks")) {
  const bodies = [...table.tBodies];
  const headings = [...table.tHead.rows[0].cells];
  const form = table.previousElementSibling;
  const [search, answer] = form.querySelectorAll("input, select");
  const status = form.querySelector("[role=status]");

  const open = (body, on) => {
    body.querySelector(".open-block").setAttribute("aria-expanded", on);
    body.rows[1].hidden = !on;
  };

  const value = (body, column) => {
    const cell = body.rows[0].cells[column];
    return "value" in cell.dataset ? Number(cell.dataset.value) : cell.textContent.trim();
  };

  const compare = (a, b) =>
    typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true });

  const sort = (column) => {
    const up = headings[column].getAttribute("aria-sort") !== "ascending";
    for (const heading of headings) heading.setAttribute("aria-sort", "none");
    headings[column].setAttribute("aria-sort", up ? "ascending" : "descending");
    const sign = up ? 1 : -1;
    bodies.sort((a, b) => sign * compare(value(a, column), value(b, column)));
    table.append(...bodies);
  };

  const filter = () => {
    const wanted = search.value.trim().toLowerCase();
    let shown = 0;
    for (const body of bodies) {
      const matches =
        body.dataset.search.toLowerCase().includes(wanted) &&
        (!answer.value || body.dataset.answer === answer.value);
      body.hidden = !matches;
      shown += matches;
    }
    status.textContent = `${shown} of ${bodies.length} shown`;
  };

  const follow = () => {
    const body = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!bodies.includes(body)) return;
    if (body.hidden) { search.value = answer.value = ""; filter(); }
    open(body, true);
    body.scrollIntoView();
  };

  form.hidden = false;
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", filter);
  headings.forEach((heading, i) => heading.firstChild.addEventListener("click", () => sort(i)));
  for (const body of bodies) {
    const button = body.querySelector(".open-block");
    open(body, bodies.length === 1);
    button.addEventListener("click", () => open(body, button.getAttribute("aria-expanded") !== "true"));
  }
  addEventListener("hashchange", follow);
  filter();
  follow();
}
