// Helpers, and the tables of the page that can be sorted.

const PAGE_SIZE = matchMedia("(min-width: 900px)").matches ? 10 : 6;
const KEPT_BLOCKS = 200;
const DIGITS = 4;
const SNIPPET = 24;
const DEEP = 0.77; // from here on the other ink: with black and white the contrast is 4.5 or more at every depth
const MINUS = "\u2212";
const $ = (id) => document.getElementById(id);

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function number(value, digits) {
  return Number.isNaN(value) ? "none" : value.toFixed(digits).replace("-", MINUS);
}


for (const table of document.querySelectorAll("table[data-sortable]")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = element("button", { type: "button" }, ...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent.trim();
      const compare = new Intl.Collator("en", { numeric: true }).compare;
      const rows = [...table.tBodies[0].rows].sort((a, b) => {
        const [x, y] = [key(a), key(b)];
        const order = Number.isNaN(Number(x) + Number(y)) ? compare(x, y) : Number(x) - Number(y);
        return down ? -order : order;
      });
      table.tBodies[0].append(...rows);
    });
  });
}

addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details:not([open])")) {
    details.open = true;
    details.dataset.forPrint = "";
  }
});
addEventListener("afterprint", () => {
  for (const details of document.querySelectorAll("details[data-for-print]")) {
    details.open = false;
    delete details.dataset.forPrint;
  }
});
// a link to a folded card opens it
const unfold = () => {
  const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
  if (target instanceof HTMLDetailsElement) target.open = true;
};
addEventListener("hashchange", unfold);
unfold();
