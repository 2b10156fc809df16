// Links to single examples, and the listed rows as a file.

function linkTo(row) {
  const { run, columns } = state.examples;
  return `#${new URLSearchParams({ run: run.run_id, ex: columns.example_id[row] })}`;
}

// where the address names an example: its run's number and its id
function linked() {
  const asked = new URLSearchParams(location.hash.slice(1));
  const run = index.runs.findIndex(({ run_id }) => run_id === asked.get("run"));
  return run < 0 || !/^\d+$/.test(asked.get("ex") ?? "") ? null : { run, example: Number(asked.get("ex")) };
}

// a browser may unfold everything for print; on paper only what the reader unfolded is shown
document.addEventListener("toggle", ({ target }) => target.toggleAttribute("data-open", target.open), true);

// what a link names may be folded away
function openFolded() {
  const target = document.getElementById(location.hash.slice(1));
  if (!target) return;
  for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
  const own = target.querySelector(":scope > details.fold");
  if (own) own.open = true;
  target.scrollIntoView();
}

async function followLink() {
  const found = linked();
  if (!found) return false;
  for (const id of ["browser-label", "browser-prediction", "browser-right", "browser-query"]) $(id).value = "";
  state.query = queryOf("");
  $("browser-run").value = String(found.run);
  await openRun(found.run, found.example);
  $("browser-detail").scrollIntoView();
  return true;
}

// a cell that a spreadsheet would take for a formula is kept as text
function cellOf(value) {
  const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function csvOfRows() {
  const { examples, order } = state;
  const { measures } = examples.run;
  const head = ["example_id", "label", "prediction", ...measures.map(({ key }) => key), ...(index.words ? ["text"] : [])];
  const lines = order.map((row) => [
    examples.columns.example_id[row],
    examples.named(row, "label"),
    examples.named(row, "prediction"),
    ...measures.map(({ key }) => (Number.isNaN(examples.columns[key][row]) ? "" : examples.columns[key][row])),
    ...(index.words ? [examples.words(row).map(visible).join(" ")] : []),
  ]);
  return [head, ...lines].map((line) => line.map(cellOf).join(",")).join("\r\n") + "\r\n";
}

function saveRows() {
  const address = URL.createObjectURL(new Blob(["\ufeff", csvOfRows()], { type: "text/csv" }));
  element("a", { href: address, download: `${state.examples.run.run_id.replace(/[^\w.-]+/g, "-")}-examples.csv` }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60000);
}
