// The page: views, theme, keyboard, and which model is served.
import { getJson } from "./api.js";
import { parameters, regenerate, setModel, startAnew, startChat, stop, toggleParameters } from "./chat.js";
import { byId } from "./dom.js";
import { showState, stopLive, watchLive } from "./live.js";

const kTheme = "heddle.theme";
const tabs = ["chat", "live"];

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
}

function startTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  setTheme(localStorage.getItem(kTheme) ?? (dark.matches ? "dark" : "light"));
  dark.addEventListener("change", () => {
    if (!localStorage.getItem(kTheme)) setTheme(dark.matches ? "dark" : "light");
  });
  byId("theme").addEventListener("click", () => {
    const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    localStorage.setItem(kTheme, theme);
    setTheme(theme);
  });
}

function showView(name, focus) {
  for (const tab of tabs) {
    const button = byId(`tab-${tab}`);
    const selected = tab === name;
    button.setAttribute("aria-selected", String(selected));
    button.tabIndex = selected ? 0 : -1;
    byId(`view-${tab}`).hidden = !selected;
    if (selected && focus) button.focus();
  }
  if (location.hash !== `#${name}`) history.replaceState(null, "", `#${name}`);
  if (name === "live") watchLive(() => parameters().admin_key || parameters().key);
  else stopLive();
}

function startTabs() {
  for (const tab of tabs) byId(`tab-${tab}`).addEventListener("click", () => showView(tab));
  document.querySelector("[role=tablist]").addEventListener("keydown", (event) => {
    if (!["ArrowLeft", "ArrowRight"].includes(event.key)) return;
    showView(byId("tab-chat").getAttribute("aria-selected") === "true" ? "live" : "chat", true);
  });
  showView(location.hash === "#live" ? "live" : "chat");
}

function startKeyboard() {
  const dialog = byId("shortcuts");
  byId("help").addEventListener("click", () => dialog.showModal());
  const withAlt = { KeyR: regenerate, KeyN: startAnew, KeyP: () => toggleParameters(), Digit1: () => showView("chat"), Digit2: () => showView("live") };
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !dialog.open) stop();
    if (event.altKey && !event.ctrlKey && !event.metaKey && withAlt[event.code]) {
      event.preventDefault();
      withAlt[event.code]();
    }
    const typing = event.target.closest("input, textarea, select");
    if (typing || event.altKey || event.ctrlKey || event.metaKey || dialog.open) return;
    if (event.key === "/") {
      event.preventDefault();
      showView("chat");
      byId("input").focus();
    }
    if (event.key === "?") dialog.showModal();
  });
}

// The served model; asks again until the server is ready.
async function findModel() {
  for (;;) {
    try {
      const models = await getJson("/v1/models", parameters().key);
      const name = models.data?.[0]?.id ?? "";
      setModel(name);
      byId("model").textContent = name;
      showState("", false);
      return;
    } catch (error) {
      showState(error.status === 401 ? "needs an API key" : error.status ? "not ready" : "no connection", true);
    }
    await new Promise((done) => setTimeout(done, 2000));
  }
}

startTheme();
startChat();
startTabs();
startKeyboard();
findModel();
