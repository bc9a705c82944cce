// The page that stands alone: only the colours change.

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  if (chosen) return chosen === "dark";
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

function labelThemeButton() {
  document.getElementById("theme").textContent = isDark() ? "Light" : "Dark";
}

document.getElementById("theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  labelThemeButton();
});
labelThemeButton();
