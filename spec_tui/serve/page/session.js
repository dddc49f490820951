// Names this tab's session, and says why a session has ended. textual.js draws the terminal.
"use strict";
const KEY = "spec-tui-session";
const OURS = 4000; // the server's code for a session that is over
const TOO_LONG = 1009; // and for a message that it does not read

function sessionName() {
  let name = sessionStorage.getItem(KEY);
  if (!name) {
    const bytes = crypto.getRandomValues(new Uint8Array(16));
    name = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
    sessionStorage.setItem(KEY, name);
  }
  return name;
}

function type() {
  document.querySelector(".xterm-helper-textarea").focus();
}

function ended(event) {
  const over = event.code === OURS;
  if (over) sessionStorage.removeItem(KEY);
  const tooLong = event.code === TOO_LONG;
  const lost = tooLong ? "The text that was pasted is too long." : "The connection to the server was lost.";
  document.getElementById("why").textContent = over ? event.reason : lost;
  document.getElementById("again").textContent = over ? "New session" : "Connect again";
  document.getElementById("over").hidden = false;
  document.getElementById("again").focus();
}

// What a session copies goes to the browser's clipboard. Where the browser refuses (without https, or by its settings)
// the page shows it, to be copied there. What was copied elsewhere is not for sessions.
const clipboard = navigator.clipboard;

function copy(text) {
  const refused = () => {
    document.getElementById("text").value = text;
    document.getElementById("copied").showModal();
    document.getElementById("text").select();
  };
  return clipboard ? clipboard.writeText(text).catch(refused) : Promise.resolve(refused());
}

Object.defineProperty(navigator, "clipboard", { value: { writeText: copy, readText: () => Promise.resolve("") } });

window.WebSocket = class extends WebSocket {
  constructor(address) {
    super(address);
    this.addEventListener("open", type);
    this.addEventListener("close", ended);
  }
};

document.addEventListener("DOMContentLoaded", () => {
  const page = new URL(".", window.location.href);
  page.protocol = page.protocol === "https:" ? "wss:" : "ws:";
  document.getElementById("terminal").dataset.sessionWebsocketUrl = new URL("session/" + sessionName(), page).href;
  document.getElementById("close").addEventListener("click", () => document.getElementById("copied").close());
  document.getElementById("copied").addEventListener("close", type);
  document.getElementById("again").addEventListener("click", () => window.location.reload());
});
