"use strict";
// Sorting, filtering and choosing columns of what the page already holds; without this script it is all there, unsorted.

function value(cell) {
  const text = cell.dataset.value ?? cell.textContent;
  return text === "" || Number.isNaN(Number(text)) ? text.toLowerCase() : Number(text);
}

function compare(a, b) {
  if (a === "" || b === "") return (a === "") - (b === ""); // what is unknown comes last
  if (typeof a === typeof b) return a < b ? -1 : a > b ? 1 : 0;
  return typeof a === "number" ? -1 : 1;
}

function sort(table, column, descending) {
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row, place) => ({ row, place, key: value(row.cells[column]) }));
  rows.sort((a, b) => {
    const unknown = a.key === "" || b.key === "";
    const order = compare(a.key, b.key) * (descending && !unknown ? -1 : 1);
    return order || a.place - b.place;
  });
  body.append(...rows.map(({ row }) => row));
}

for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => {
      const descending = head.getAttribute("aria-sort") === "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      sort(table, column, descending);
    });
  });
}

// One set of controls for all tables that can be filtered.
const filtered = [...document.querySelectorAll("table.filtered")];
const search = document.querySelector("input[data-search]");
const selects = [...document.querySelectorAll("select[data-filter]")];

function filter() {
  const name = search === null ? "" : search.value.trim().toLowerCase();
  const wanted = selects.map((s) => [s.dataset.filter, s.value]);
  for (const table of filtered) {
    const rows = [...table.tBodies[0].rows];
    for (const row of rows) {
      row.hidden = !row.dataset.name.includes(name) || wanted.some(([key, word]) => word !== "" && row.dataset[key] !== word);
    }
    table.parentElement.nextElementSibling.hidden = rows.some((row) => !row.hidden);
  }
}

for (const select of selects) select.addEventListener("change", filter);
if (search !== null) search.addEventListener("input", filter);

function showColumn(name, shown) {
  for (const table of filtered) {
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      if (head.textContent !== name) return;
      for (const row of table.rows) row.cells[column].hidden = !shown;
    });
  }
}

const picker = document.querySelector(".picker");
if (picker !== null) {
  const names = new Set(filtered.flatMap((t) => [...t.tHead.rows[0].cells].filter((h) => !h.classList.contains("name"))).map((h) => h.textContent));
  for (const name of names) {
    const label = document.createElement("label");
    const box = document.createElement("input");
    box.type = "checkbox";
    box.checked = true;
    box.addEventListener("change", () => showColumn(name, box.checked));
    label.append(box, name);
    picker.append(label);
  }
  document.querySelector(".controls").hidden = false;
}
filter();

// What scrolls sideways can be reached by keys; what does not is no stop on the way.
function reach() {
  for (const box of document.querySelectorAll("figure, .scroll, pre")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
}
addEventListener("resize", reach);
document.addEventListener("toggle", reach, true);
reach();
