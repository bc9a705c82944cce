// Tables that a click on the head of a column sorts.

const FEWEST_ROWS_TO_SORT = 8; // shorter tables can be read at a glance

// The exact value of a cell where it has one; otherwise what it shows.
function cellValue(cell) {
  return cell.dataset.value ?? cell.textContent;
}

// Numbers come before texts, each in their own order.
function compareCells(left, right) {
  const [x, y] = [left, right].map(numberOrText);
  if (typeof x !== typeof y) return typeof x === "number" ? -1 : 1;
  if (x === y) return 0;
  return x < y ? -1 : 1;
}

function numberOrText(cell) {
  const text = cellValue(cell);
  const number = Number(text);
  return text === "" || Number.isNaN(number) ? text : number;
}

function sortBy(table, head, column) {
  const isAscending = head.getAttribute("aria-sort") !== "ascending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", isAscending ? "ascending" : "descending");
  const direction = isAscending ? 1 : -1;
  const rows = [...table.tBodies[0].rows];
  rows.sort((a, b) => direction * compareCells(a.cells[column], b.cells[column]));
  for (const row of rows) row.classList.remove("first"); // the line above a group has no meaning in another order
  table.tBodies[0].append(...rows);
}

function makeSortable(table) {
  if (table.dataset.fixed || table.tBodies[0].rows.length < FEWEST_ROWS_TO_SORT) return;
  for (const [column, head] of [...table.tHead.rows[0].cells].entries()) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => sortBy(table, head, column));
  }
}
