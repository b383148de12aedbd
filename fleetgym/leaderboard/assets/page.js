"use strict";
// Sorting and filtering of what the page already holds; it works, unsorted, without this script.

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

function filter() {
  const wanted = [...document.querySelectorAll("select[data-filter]")].map((s) => [s.dataset.filter, s.value]);
  for (const row of document.querySelectorAll("tr[data-division]")) {
    row.hidden = wanted.some(([name, word]) => word !== "" && row.dataset[name] !== word);
  }
  for (const table of document.querySelectorAll("table.filtered")) {
    const rows = [...table.tBodies[0].rows];
    const note = table.parentElement.nextElementSibling;
    note.hidden = rows.some((row) => !row.hidden);
  }
}

for (const select of document.querySelectorAll("select[data-filter]")) select.addEventListener("change", filter);
filter();
