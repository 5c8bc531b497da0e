// What the pages do beyond links and forms; all of them work without it.
(() => {
  "use strict";
  const root = document.documentElement;
  const kept = (() => { try { return localStorage; } catch { return null; } })();

  root.classList.add("js");

  // ---- light and dark: before anything is drawn ----
  const theme = kept?.getItem("helix-theme");
  if (theme === "light" || theme === "dark") root.dataset.theme = theme;

  function switchTheme() {
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = (root.dataset.theme ?? (dark ? "dark" : "light")) === "dark" ? "light" : "dark";
    kept?.setItem("helix-theme", root.dataset.theme);
  }

  // ---- times: "3 min ago" goes on ----
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

  // As formats.py does.
  function describeSpan(seconds, parts) {
    const found = units.findIndex(([, size]) => seconds >= size);
    const at = found < 0 ? units.length - 1 : found;
    const [name, size] = units[at];
    const first = `${Math.max(1, Math.floor(seconds / size))} ${name}`;
    if (parts === 1 || size < 3600) return first;
    const [below, smaller] = units[at + 1];
    const rest = Math.floor((seconds % size) / smaller);
    return rest ? `${first} ${rest} ${below}` : first;
  }

  function writeAgo(element) {
    const apart = (Date.now() - Date.parse(element.dateTime)) / 1000;
    if (element.dataset.ago === "for") { element.textContent = describeSpan(Math.max(0, apart), 2); return; }
    if (Math.abs(apart) > 30 * 86400) return;
    element.textContent = Math.abs(apart) < 5 ? "now" : apart > 0 ? `${describeSpan(apart, 1)} ago` : `in ${describeSpan(-apart, 2)}`;
  }

  // ---- seconds of silence: they are counted on until the next word of them comes ----
  function countSeconds(element) {
    element.since ??= Date.now() - 1000 * element.dataset.seconds;
    const seconds = Math.floor((Date.now() - element.since) / 1000);
    element.textContent = seconds < 120 ? `${seconds} s` : `${Math.floor(seconds / 60)} min`;
  }

  // ---- rows by keyboard ----
  function rows() { return [...document.querySelectorAll("[data-row]")]; }

  function chooseRow(step) {
    const all = rows();
    if (!all.length) return;
    const before = all.findIndex((row) => row.classList.contains("chosen"));
    const row = all[Math.min(all.length - 1, Math.max(0, before < 0 ? 0 : before + step))];
    all.forEach((each) => each.classList.toggle("chosen", each === row));
    (row.querySelector("a.main-link, summary") ?? row).focus({ preventScroll: true });
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    row.scrollIntoView({ block: row.offsetHeight > innerHeight * 0.7 ? "start" : "nearest", behavior: calm ? "auto" : "smooth" });
  }

  function say(text) {
    const toast = document.getElementById("toast");
    toast.textContent = text;
    clearTimeout(say.later);
    say.later = setTimeout(() => { toast.textContent = ""; }, 1800);
  }

  async function copy(text) {
    try { await navigator.clipboard.writeText(text); say("Copied"); } catch { say("The browser did not allow it"); }
  }

  // ---- keys ----
  let afterG = 0;

  function follow(place) {
    const link = document.querySelector(`.top nav a:nth-child(${place})`);
    if (link) location.assign(link.href);
  }

  const keys = {
    j: () => chooseRow(1),
    k: () => chooseRow(-1),
    t: switchTheme,
    "/": () => document.getElementById("open-id")?.focus(),
    "?": () => document.getElementById("keys")?.showModal(),
  };
  const places = { s: 1, c: 2, w: 3, m: 4 };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) {
      if (event.key === "Escape" && event.target.closest("input, textarea")) event.target.blur();
      return;
    }
    if (Date.now() - afterG < 1200 && places[event.key]) { afterG = 0; follow(places[event.key]); return; }
    if (event.key === "g") { afterG = Date.now(); return; }
    const act = keys[event.key];
    if (act) { event.preventDefault(); act(); }
  });

  // ---- a link to something folded opens it ----
  function openTarget() {
    const target = document.getElementById(location.hash.slice(1)); // our ids have nothing to decode
    if (target?.tagName === "DETAILS") target.open = true;
  }

  // ---- what became of a decision is told once: not on a reload, nor to who gets the link ----
  function forgetSaid() {
    const address = new URL(location.href);
    if (!address.searchParams.has("said")) return;
    address.searchParams.delete("said");
    history.replaceState(history.state, "", address);
  }

  // ---- the newest is in sight while it grows, unless the reader has gone up ----
  function keepInSight(live) {
    let atEnd = true;
    addEventListener("scroll", () => { atEnd = innerHeight + scrollY > root.scrollHeight - 120; }, { passive: true });
    new MutationObserver(() => { if (atEnd && live.children.length) scrollTo(0, root.scrollHeight); }).observe(live, { childList: true, subtree: true, characterData: true });
  }

  // ---- what the reader has opened or closed stays so when the turn under way is drawn anew ----
  function keepFolds(live) {
    const chosen = new Map();
    live.addEventListener("click", (event) => {
      const details = event.target.closest("summary")?.parentElement;
      if (details?.id) chosen.set(details.id, !details.open);
    });
    new MutationObserver(() => {
      for (const [id, open] of chosen) {
        const details = document.getElementById(id);
        if (details && details.open !== open) details.open = open;
      }
    }).observe(live, { childList: true, subtree: true, attributes: true, attributeFilter: ["open"] });
  }

  // ---- a page is followed while it is seen: over HTTP/1.1 a browser has six connections to a host ----
  const refusals = {
    403: "you are not let in any more. Log in again; or, if the inspector was started anew, open the link that it printed",
    404: "this session is not there any more",
    429: "too many pages are followed at once; close some of them, it is tried again",
    503: "a store is away; it is tried again",
  };

  function followLive(live) {
    const status = document.getElementById("live-status");
    let asked = false, connected = false, pause = 2000, silence;

    function begin() {
      if (asked || document.hidden) return;
      asked = true;
      live.dispatchEvent(new Event("follow"));
      clearTimeout(silence);
      silence = setTimeout(() => { if (!connected) tellLoss(); }, 10000);
    }

    function tellLoss(code) {
      status.textContent = `Not followed just now: ${refusals[code] ?? "no answer; it is tried again"}.`;
    }

    // The extension connects again by itself, once it was connected.
    function retryFirst(code) {
      if (connected) return;
      clearTimeout(silence); // what was answered stands until the next try
      tellLoss(code);
      setTimeout(() => { asked = false; begin(); }, pause);
      pause = Math.min(2 * pause, 30000);
    }

    live.addEventListener("htmx:sse:after:connection", () => { connected = true; });
    live.addEventListener("htmx:sse:error", (event) => tellLoss(event.detail.status));
    live.addEventListener("htmx:response:error", (event) => retryFirst(event.detail.ctx.response.status));
    live.addEventListener("htmx:error", () => retryFirst());
    document.addEventListener("visibilitychange", begin);
    addEventListener("load", begin);
  }

  // ---- a decision is sent once: a second click would be told that somebody was faster ----
  const answerTime = 40000; // the server answers within 30 seconds
  let sentForm = null, patience;

  function sendOnce(event) {
    const form = event.target;
    if (form.method !== "post") return;
    if (sentForm) { event.preventDefault(); return; }
    sentForm = form;
    tellSent(form, "Sent. Waiting for the session’s answer…");
    patience = setTimeout(() => allowSending("No answer came. Load the page anew to see what became of it."), answerTime);
  }

  function tellSent(form, text) {
    const word = form.querySelector(".sent");
    if (word) word.textContent = text;
  }

  function allowSending(text) {
    clearTimeout(patience);
    if (sentForm) tellSent(sentForm, text);
    sentForm = null;
  }

  document.addEventListener("DOMContentLoaded", () => {
    document.getElementById("theme")?.addEventListener("click", switchTheme);
    document.addEventListener("click", (event) => {
      const data = event.target.closest("[data-copy], [data-copy-link]")?.dataset;
      if (data) copy(data.copyLink ? location.origin + data.copyLink : data.copy);
    });
    document.addEventListener("submit", sendOnce);
    addEventListener("pageshow", () => allowSending("")); // back in the history
    const write = () => document.querySelectorAll("time[data-ago]").forEach(writeAgo);
    setInterval(write, 15000);
    setInterval(() => document.querySelectorAll("[data-seconds]").forEach(countSeconds), 1000);
    openTarget();
    forgetSaid();
    addEventListener("hashchange", openTarget);
    const live = document.getElementById("live");
    if (live) {
      followLive(live);
      keepInSight(live);
      keepFolds(live);
    }
  });
})();
