"use strict";
// Every response is a whole page; this takes over its questions. Without it, forms and links do the same.

const PAUSE = 300; // ms in which a new question takes no click: the second click of a double click is not meant for it
const KEYS = {
  ArrowLeft: ".left .choose", a: ".left .choose", ArrowRight: ".right .choose", b: ".right .choose",
  ArrowDown: "[value=tie]", t: "[value=tie]", s: "[value=skip]", u: "[value=undo]",
};

const $ = (selector, root = document) => root.querySelector(selector);
const calm = matchMedia("(prefers-reduced-motion: reduce)");
const queue = []; // what was chosen while an answer was on its way: the id of a question, or none for the first, and the button
let busy = ""; // the id of the question whose answer is on its way

// Where the page scrolls, the arrow down is for that, unless a question has the focus.
const scrolls = () => document.documentElement.scrollHeight > innerHeight && !document.activeElement.closest("form");
const ids = (page) => [...page.querySelectorAll(".question")].map((form) => form.dataset.question);

async function load(address, options) {
  const response = await fetch(address, options);
  const text = await response.text();
  if (!(response.headers.get("content-type") || "").startsWith("text/html")) throw new Error(text);
  return new DOMParser().parseFromString(text, "text/html");
}

async function act(button) {
  const form = button.form;
  busy = form.dataset.question || "none";
  form.setAttribute("aria-busy", "true");
  const card = button.closest(".card");
  if (card) card.classList.add("chosen");
  const body = new URLSearchParams(new FormData(form));
  body.set(button.name, button.value);
  try {
    show(await load(form.action, { method: "POST", body }), button);
  } catch (error) {
    const gone = error instanceof TypeError;
    complain(gone ? "No answer from relpref: is it still running? This answer was not confirmed." : error.message);
    form.removeAttribute("aria-busy");
    if (card) card.classList.remove("chosen");
  }
  busy = "";
  if ($("main > .notice") && queue.length) {
    $("main > .notice").textContent += ` What was chosen after it (${queue.length}) was not counted.`;
    queue.length = 0;
  }
  let next;
  while (!busy && (next = queue.shift())) {
    const place = next.question ? $(`[data-question="${CSS.escape(next.question)}"]`) : $("main");
    const chosen = place && $(next.selector, place);
    if (chosen) act(chosen);
  }
}

// What was done, for who answers faster than they look.
function told(button) {
  const names = [...button.form.querySelectorAll("h2 > bdi")].map((name) => name.textContent);
  if (button.value === "undo") return "";
  if (button.value === "skip") return `Skipped: ${names.join(", ")}.`;
  if (button.value === "tie") return `About equal: ${names.join(", ")}.`;
  return `${$("h2 > bdi", button.closest(".card")).textContent}, not ${names[button.closest(".left") ? 1 : 0]}.`;
}

function show(page, button) {
  const fresh = $("main", page);
  const before = ids(document);
  const open = $(".why[open]") && $(".why", fresh);
  if (open) open.open = true;
  const focused = document.activeElement === button;
  const place = button.closest(".card") ? (button.closest(".left") ? ".left .choose" : ".right .choose") : `[value=${button.value}]`;
  const last = $("#last", fresh);
  if (last && !$(".notice", fresh)) last.textContent = told(button);
  $("main").replaceWith(fresh);
  if (!ids(fresh).some((id) => before.includes(id))) {
    fresh.classList.add("new", "settling");
    setTimeout(() => fresh.classList.remove("settling"), PAUSE);
    if (scrollY > 0) scrollTo({ top: 0, behavior: calm.matches ? "auto" : "smooth" });
  }
  if (focused) ($(place, fresh) || $("h1", fresh)).focus({ preventScroll: true });
  document.title = page.title;
  const names = [...fresh.querySelectorAll(".question .card h2 > bdi")].slice(0, 2).map((name) => name.textContent);
  $("#said").textContent = names.length ? `Next: ${names.join(", or ")}?` : $("h1", fresh).textContent;
}

function complain(text) {
  let notice = $("main > .notice");
  if (!notice) {
    notice = document.createElement("p");
    notice.className = "notice";
    notice.setAttribute("role", "alert");
    $("main").prepend(notice);
  }
  notice.textContent = text;
}

document.addEventListener("submit", (event) => {
  const button = event.submitter;
  if (!button || button.name !== "do") return;
  event.preventDefault();
  const question = button.form.dataset.question;
  if (!busy) act(button);
  else if (question !== busy) queue.push({ question, selector: `[value=${button.value}]` });
});

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  if (event.target.closest("input:not([type=checkbox]), textarea, select") || ($("#keys") && !$("#keys").checked)) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const selector = KEYS[key];
  if (selector) {
    if (!(busy || $(selector, $("main"))) || (key === "ArrowDown" && scrolls())) return;
    event.preventDefault();
    if (busy) queue.push({ selector });
    else act($(selector, $("main")));
  } else if (key === "w" && $(".why")) {
    $(".why").open = !$(".why").open;
  } else if (key === "?" && $("#help")) {
    $("#help").open = !$("#help").open;
    $("#help").scrollIntoView({ block: "nearest" });
  } else if ((key === "r" || key === "d") && $("#to-done")) {
    $(key === "r" ? "#to-ranking" : "#to-done").click();
  }
});

document.addEventListener("animationend", (event) => event.target.classList.remove("new"));
if ($("#keys")) {
  $("footer").hidden = false;
  $("#keys").checked = localStorage.getItem("keys") !== "off";
  $("#keys").addEventListener("change", (event) => localStorage.setItem("keys", event.target.checked ? "on" : "off"));
}
