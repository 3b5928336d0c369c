"use strict";
// Every response is a whole page; this takes over the parts that changed. Without it, forms and links do the same.

const PAUSE = 300; // ms in which a new question takes no answer: the second click of a double click is not meant for it
const EVERY = 2500; // ms between looks at the ranking, which others change, too
const KEYS = {
  ArrowLeft: ".left .choose", a: ".left .choose", ArrowRight: ".right .choose", b: ".right .choose",
  ArrowDown: "[value=tie]", t: "[value=tie]", s: "[value=skip]", u: "[value=undo]",
};

const $ = (selector, root = document) => root.querySelector(selector);
const calm = matchMedia("(prefers-reduced-motion: reduce)");
let busy = false;
let early = false; // whether a key came while an answer was on its way

const waits = () => busy || $("#question").classList.contains("settling");
// Where the page scrolls, the arrow down is for that, unless somebody is at the question.
const scrolls = () => document.documentElement.scrollHeight > innerHeight && !$("#question").contains(document.activeElement);

async function load(address, options) {
  const response = await fetch(address, options);
  const text = await response.text();
  if (!(response.headers.get("content-type") || "").startsWith("text/html")) throw new Error(text);
  return new DOMParser().parseFromString(text, "text/html");
}

async function act(form, button) {
  if (waits()) return;
  busy = true;
  form.setAttribute("aria-busy", "true");
  const card = button.closest(".card");
  if (card) card.classList.add("chosen");
  const body = new URLSearchParams(new FormData(form));
  body.set(button.name, button.value);
  try {
    showQuestion(await load(form.action, { method: "POST", body }), button);
  } catch (error) {
    const gone = error instanceof TypeError;
    complain(gone ? "No answer from relpref: is it still running? This answer was not confirmed." : error.message);
    form.removeAttribute("aria-busy");
    if (card) card.classList.remove("chosen");
  }
  busy = false;
  if (early) tooEarly();
  early = false;
}

function tooEarly() {
  if (!$("#question > .notice")) complain("A key came before this question could be read, and did nothing.");
}

function showQuestion(page, button) {
  const fresh = $("#question", page);
  const why = $(".why");
  if (why && why.open && $(".why", fresh)) $(".why", fresh).open = true;
  const focused = document.activeElement === button;
  const place = button.closest(".card") ? (button.closest(".left") ? ".left .choose" : ".right .choose") : `[value=${button.value}]`;
  const before = $("#question").dataset.question;
  $("#question").replaceWith(fresh);
  if (fresh.dataset.question !== before) {
    fresh.classList.add("new");
    fresh.classList.add("settling");
    setTimeout(() => fresh.classList.remove("settling"), PAUSE);
    if (scrollY > 0) scrollTo({ top: 0, behavior: calm.matches ? "auto" : "smooth" });
  }
  if (focused) ($(place, fresh) || $("h1", fresh)).focus({ preventScroll: true });
  document.title = page.title;
  const names = [...fresh.querySelectorAll(".card h2 > bdi")].map((name) => name.textContent);
  $("#said").textContent = names.length ? `Next: ${names.join(", or ")}?` : $("h1", fresh).textContent;
  showStanding(page, false);
}

// While somebody looks at another part of the ranking than the first ten, an answer does not take that away.
function showStanding(page, always) {
  const [here, fresh] = [$("#standings"), $("#standings", page)];
  $("#progress").replaceWith($("#progress", page));
  if (always || here.dataset.source === fresh.dataset.source) renew(here, fresh);
  else look();
}

function renew(here, fresh) {
  const old = new Map([...here.querySelectorAll("[data-key]")].map((row) => [row.dataset.key, row]));
  const was = new Map([...old].map(([key, row]) => [key, [row.getBoundingClientRect().top, Number(row.dataset.rank)]]));
  for (const row of fresh.querySelectorAll("[data-key]")) {
    const kept = old.get(row.dataset.key);
    if (kept) {
      row.replaceWith(kept);
      morph(kept, row);
    }
  }
  here.dataset.source = fresh.dataset.source;
  here.replaceChildren(...fresh.childNodes);
  if (calm.matches) return;
  for (const row of here.querySelectorAll("[data-key]")) {
    const [top, rank] = was.get(row.dataset.key) || [null, 0];
    if (top === null) {
      row.animate([{ opacity: 0 }, { opacity: 1 }], 400);
      continue;
    }
    const moved = top - row.getBoundingClientRect().top;
    if (!moved) continue;
    row.animate([{ transform: `translateY(${moved}px)` }, { transform: "none" }], { duration: 600, easing: "cubic-bezier(.2,.7,.2,1)" });
    if (rank !== Number(row.dataset.rank)) row.classList.add(rank > Number(row.dataset.rank) ? "up" : "down");
  }
}

// Changes an element into another of the same shape, so that what CSS says of transitions applies.
function morph(here, fresh) {
  if (here.nodeName !== fresh.nodeName || here.childNodes.length !== fresh.childNodes.length) return here.replaceWith(fresh);
  if (here.nodeType !== Node.ELEMENT_NODE) {
    if (here.nodeValue !== fresh.nodeValue) here.nodeValue = fresh.nodeValue;
    return;
  }
  for (const { name } of [...here.attributes]) if (!fresh.hasAttribute(name)) here.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (here.getAttribute(name) !== value) here.setAttribute(name, value);
  const parts = [...fresh.childNodes];
  [...here.childNodes].forEach((child, at) => morph(child, parts[at]));
}

async function look(address = $("#standings").dataset.source) {
  try {
    showStanding(await load(address), true);
  } catch {
    // The next answer, or the next look, says what is wrong.
  }
}

function complain(text) {
  let notice = $("#question > .notice");
  if (!notice) {
    notice = document.createElement("p");
    notice.className = "notice";
    notice.setAttribute("role", "alert");
    $("#question").prepend(notice);
  }
  notice.textContent = text;
}

document.addEventListener("submit", (event) => {
  if (event.target.id === "answer" && event.submitter) {
    event.preventDefault();
    act(event.target, event.submitter);
  } else if (event.target.classList.contains("find")) {
    event.preventDefault();
    find();
  }
});

document.addEventListener("click", (event) => {
  const link = event.target.closest(".pager a");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  if (link.classList.contains("first-ten")) $(".find input[type=search]").value = "";
  look(link.href);
});

let waiting;
function find() {
  clearTimeout(waiting);
  const query = new URLSearchParams(new FormData($(".find")));
  query.set("most", query.get("find").trim() ? 100 : 10);
  look(`ranking?${query}`);
}
document.addEventListener("input", (event) => {
  if (!event.target.matches(".find input")) return;
  clearTimeout(waiting);
  waiting = setTimeout(find, 200);
});

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  if (event.target.closest("input:not([type=checkbox]), textarea, select") || !$("#keys").checked) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const button = KEYS[key] && $(KEYS[key], $("#question"));
  if (button && !(key === "ArrowDown" && scrolls())) {
    event.preventDefault();
    if (busy) early = true;
    else if (waits()) tooEarly();
    else act(button.form, button);
  } else if (key === "w" && $(".why")) {
    $(".why").open = !$(".why").open;
  }
});

document.addEventListener("animationend", (event) => event.target.classList.remove("up", "down", "new"));
setInterval(() => document.hidden || busy || look(), EVERY);
$("footer").hidden = false;
$("#keys").checked = localStorage.getItem("keys") !== "off";
$("#keys").addEventListener("change", (event) => localStorage.setItem("keys", event.target.checked ? "on" : "off"));
