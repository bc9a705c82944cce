// The live page: asks the server for news every two seconds, and says so when it is gone.

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

const main = document.getElementById("main");
const status = document.getElementById("status");

async function refresh() {
  try {
    const answer = await fetch("/body", { cache: "no-store" });
    if (!answer.ok) throw new Error(answer.statusText);
    main.innerHTML = await answer.text(); // escaped by the server; the policy of the page runs no script in it
    status.textContent = `Updated at ${new Date().toLocaleTimeString()}.`;
  } catch {
    status.textContent = "The server does not answer; this is the last state.";
  }
}

setInterval(refresh, 2000);
