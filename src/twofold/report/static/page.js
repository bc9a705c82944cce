// Start the page. The scripts of this folder become one script, this one last; twofold.report.html lists them.

function byId(id) {
  return document.getElementById(id);
}

// The colours are the system's until someone chooses.
function isDark() {
  const chosen = document.documentElement.dataset.theme;
  if (chosen) return chosen === "dark";
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

function labelThemeButton() {
  const button = byId("theme");
  const other = isDark() ? "Light" : "Dark";
  button.textContent = other;
  button.setAttribute("aria-label", `Use ${other.toLowerCase()} colours`);
}

function switchTheme() {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  labelThemeButton();
}

function startPage() {
  byId("theme").addEventListener("click", switchTheme);
  labelThemeButton();
  const data = JSON.parse(byId("data").textContent);
  const explorer = data.explorer && byId("explorer") ? new Explorer(data.explorer) : null;
  for (const figure of document.querySelectorAll("figure[data-figure]")) {
    const name = figure.dataset.figure;
    const tableOf = () => {
      if (name === "surface") return explorer.surfaceTable();
      return [data.figures[name].columns, ...data.figures[name].rows];
    };
    addFigureTools(figure, tableOf);
  }
  for (const table of document.querySelectorAll("table[data-table]")) {
    addTableTools(table);
    makeSortable(table);
  }
  return { explorer };
}

window.twofold = startPage();
