// The button for light, dark, or what the system prefers.

import { byId } from "./dom.js";
import { changeSettings, settings } from "./settings.js";
import { on } from "./state.js";

const THEMES = ["auto", "light", "dark"];

/** Go from the system's colours to light, to dark, and back. */
function nextTheme() {
  const next = THEMES[(THEMES.indexOf(settings.theme) + 1) % THEMES.length];
  changeSettings({ theme: next });
}

function showTheme() {
  const button = byId("theme-button");
  button.title = `Colours: ${settings.theme}`;
  button.setAttribute("aria-label", button.title);
  button.textContent = { auto: "◐", light: "○", dark: "●" }[settings.theme];
}

/** Connect the button. */
export function startTheme() {
  byId("theme-button").addEventListener("click", nextTheme);
  on("settings", showTheme);
  showTheme();
}
