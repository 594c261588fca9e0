// What htmx and uPlot do not: the dialog, the charts, and saying that the node does not answer.
"use strict";

const CHARTS_EVERY_MS = 10000;
const dialog = document.getElementById("dialog");
const content = document.getElementById("dialog-content");
let opener = null;

// --- pages that are not looked at ask for nothing; while a dialog is open nothing moves behind it

document.addEventListener("htmx:beforeRequest", event => {
  const polls = event.detail.elt.id === "live" && !(event.detail.requestConfig.triggeringEvent?.type === "changed");
  if (polls && (document.hidden || hasSelection())) event.preventDefault();
});

function hasSelection() {
  const selection = document.getSelection();
  return selection !== null && !selection.isCollapsed;
}

const silent = document.getElementById("silent");
const notices = document.querySelectorAll("[data-silent]");

let answered = new Date();

document.addEventListener("htmx:sendError", () => {
  if (silent === null || !silent.hidden) return;
  silent.querySelector("time").textContent = answered.toISOString().slice(11, 19);
  for (const link of silent.querySelectorAll("a")) {
    link.pathname = location.pathname;
    link.search = location.search;
  }
  for (const notice of notices) notice.hidden = false;
});
document.addEventListener("htmx:afterRequest", event => {
  if (!event.detail.successful) return;
  answered = new Date();
  for (const notice of notices) notice.hidden = true;
});

document.querySelector("nav [aria-current]")?.scrollIntoView({inline: "center", block: "nearest"});

// --- the dialog

document.addEventListener("htmx:afterSettle", event => {
  if (event.detail.target !== content) return;
  if (!dialog.open) {
    opener = document.activeElement;
    dialog.showModal();
  }
  const first = content.querySelector("[data-focus]") ??
    content.querySelector("input:not([type=hidden]), textarea, select, button");
  first?.focus();
});

document.addEventListener("click", async event => {
  const button = event.target.closest("button");
  if (button === null) return;
  if ("close" in button.dataset) dialog.close();
  if ("hours" in button.dataset) choose(button);
  if ("copy" in button.dataset) {
    await navigator.clipboard?.writeText(button.parentElement.querySelector("pre").textContent);
    button.textContent = "Copied";
  }
});

if (dialog !== null) {
  dialog.addEventListener("close", () => {
    content.replaceChildren();
    if (opener !== null && opener.isConnected) opener.focus();
  });
}

// --- which fields of the form for messages count

const browse = document.querySelector("[data-browse]");

function showFields() {
  const by = browse.elements.by.value;
  for (const label of browse.querySelectorAll("[data-by]")) {
    label.hidden = !label.dataset.by.split(" ").includes(by);
    label.querySelector("input, select").disabled = label.hidden;
  }
}

if (browse !== null) {
  browse.elements.by.addEventListener("change", showFields);
  showFields();
}

// --- the charts

const charts = document.querySelector(".charts");
const plots = new Map();
let hours = sessionStorage.getItem("hours") || "1";
let last = null;

const SERIES = {
  rate: [["stored", "stored", "--stored"], ["delivered", "delivered", "--delivered"]],
  lag: [["lag", "not yet consumed", "--stored"]],
  commit: [["commit", "ms", "--stored"]],
  bytes: [["bytes", "KiB/s", "--stored"]],
};

const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const short = value => value === null || value === undefined ? "–" :
  value.toLocaleString("en", value < 10 ? {maximumSignificantDigits: 2} : {maximumFractionDigits: 0});

function figures(name, told) {
  return SERIES[name].map(([field]) =>
    field === "bytes" ? told.bytes.map(value => value / 1024) : told[field]);
}

function draw(name, told) {
  const place = charts.querySelector(`[data-chart="${name}"]`);
  const values = figures(name, told);
  const known = values.flat().filter(value => value !== null);
  const now = charts.querySelector(`[data-now="${name}"]`);
  const text = SERIES[name].map(([, label], n) =>
    (SERIES[name].length > 1 ? label + " " : "") + short(values[n].findLast(value => value !== null))).join(", ");
  now.textContent = known.length ? `${text}; at most ${short(Math.max(...known))}` : "";
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", known.length ? `${now.textContent}, over ${hours} h` : "no figures yet");
  plots.get(name)?.destroy();
  plots.delete(name);
  place.replaceChildren();
  if (known.length === 0) {
    const none = document.createElement("span");
    none.className = "none";
    none.textContent = told.time.length ? "None in this time." : "The first figures come after ten seconds.";
    place.append(none);
    return;
  }
  const axis = {stroke: colour("--dim"), grid: {stroke: colour("--line"), width: 1}, ticks: {show: false}};
  const end = Date.now() / 1000;
  plots.set(name, new uPlot({
    width: place.clientWidth,
    height: place.clientHeight,
    tzDate: seconds => uPlot.tzDate(new Date(1000 * seconds), "Etc/UTC"),
    cursor: {y: false, points: {size: 6}},
    scales: {
      x: {range: () => [end - hours * 3600, end]},
      y: {range: (_plot, _low, high) => [0, high > 0 ? high * 1.1 : 1]},
    },
    axes: [
      {...axis, size: 28, space: 70, values: "{HH}:{mm}"},
      {...axis, size: 46, space: 32, values: (_plot, ticks) => ticks.map(short)},
    ],
    series: [{}, ...SERIES[name].map(([, label, name_]) => ({
      label, stroke: colour(name_), width: 1.8, fill: colour(name_) + "22", points: {size: 4},
    }))],
  }, [told.time, ...values], place));
}

function drawAll() {
  if (last !== null) Object.keys(SERIES).forEach(name => draw(name, last));
}

async function ask() {
  if (!document.hidden) {
    try {
      const response = await fetch(`/console/charts?hours=${hours}`);
      if (response.ok) {
        last = await response.json();
        drawAll();
      }
    } catch {
      // The page says already that the node does not answer.
    }
  }
}

function choose(button) {
  hours = button.dataset.hours;
  sessionStorage.setItem("hours", hours);
  press();
  ask();
}

function press() {
  for (const each of charts.querySelectorAll("[data-hours]")) {
    each.setAttribute("aria-pressed", String(each.dataset.hours === hours));
  }
}

if (charts !== null) {
  press();
  ask();
  setInterval(ask, CHARTS_EVERY_MS);
  addEventListener("resize", drawAll);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
}
