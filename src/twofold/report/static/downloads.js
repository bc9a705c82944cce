// Buttons that save figures and tables.

// Colours of a drawing on its own: those of the light page, since its file has no style sheet.
const LIGHT_COLOURS =
  "--page:#fff;--text:#1b1f24;--soft:#5b6470;--grid:#e4e7eb;" +
  "--k0:#0072b2;--k1:#d55e00;--k2:#00845f;--k3:#b8548d;--k4:#b37a00;--k5:#3d8fc6;--k6:#5b6470";
const PNG_SCALE = 3; // pixels of a saved picture for one of the page, sharp enough to print

function saveFile(name, blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000); // the browser may still be reading it
}

// A text that a spreadsheet could take for a formula gets an apostrophe in front; numbers stay.
function guardFormula(text) {
  const looksLikeFormula = /^'*[=+\-@\t\r]/.test(text) && !Number.isFinite(Number(text));
  return looksLikeFormula ? `'${text}` : text;
}

function formatCsvCell(value) {
  const text = guardFormula(String(value ?? ""));
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function saveCsv(name, table) {
  const lines = table.map((row) => row.map(formatCsvCell).join(","));
  saveFile(name, new Blob([lines.join("\n") + "\n"], { type: "text/csv" }));
}

// Copy a drawing with its style inside, so that it looks the same outside the page.
function makeStandAlone(svg) {
  const copy = svg.cloneNode(true);
  const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  const style = document.createElementNS(SVG_NAMESPACE, "style");
  style.textContent = `svg{${LIGHT_COLOURS};background:#fff}\n${byId("chart-style").textContent}`;
  copy.prepend(style);
  return { text: new XMLSerializer().serializeToString(copy), width, height };
}

function saveSvg(name, svg) {
  saveFile(name, new Blob([makeStandAlone(svg).text], { type: "image/svg+xml" }));
}

function savePng(name, svg) {
  const { text, width, height } = makeStandAlone(svg);
  const image = new Image();
  image.onload = () => {
    const canvas = document.createElement("canvas");
    canvas.width = PNG_SCALE * width;
    canvas.height = PNG_SCALE * height;
    const context = canvas.getContext("2d");
    context.fillStyle = "#fff";
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => saveFile(name, blob));
  };
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
}

// Add buttons of [label, description, action].
function addTools(container, buttons) {
  const box = document.createElement("div");
  box.className = "tools";
  for (const [label, description, action] of buttons) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = label;
    button.setAttribute("aria-label", description);
    button.addEventListener("click", action);
    box.append(button);
  }
  container.append(box);
}

// tableOf(): rows of the data behind the figure, the head first; called when someone saves them.
function addFigureTools(figure, tableOf) {
  const name = figure.dataset.figure;
  const svg = figure.querySelector("svg");
  addTools(figure.querySelector(".head"), [
    ["SVG", `Download ${name} as SVG`, () => saveSvg(`${name}.svg`, svg)],
    ["PNG", `Download ${name} as PNG`, () => savePng(`${name}.png`, svg)],
    ["CSV", `Download the data of ${name} as CSV`, () => saveCsv(`${name}.csv`, tableOf())],
  ]);
}

function addTableTools(table) {
  const name = table.dataset.table;
  const readAll = () => [...table.rows].map((row) => [...row.cells].map(cellValue));
  addTools(table.caption, [["CSV", `Download ${name} as CSV`, () => saveCsv(`${name}.csv`, readAll())]]);
}
