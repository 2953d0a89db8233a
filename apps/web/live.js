// The live view: what the engine does now, from the stream of /live (docs/serve.md).
import { watch } from "./api.js";
import { histogram, quantile, sparkline } from "./charts.js";
import { byId, count, element, percent, seconds, short } from "./dom.js";

const kHistory = 120; // of tokens/s: 30 s at four a second
const kColors = 8;
const kRows = 40; // of the table

let history = [];
let running = null;

function card(title, classes, children) {
  return element(`section.card${classes}`, "", [element("h3", title), ...children]);
}

function value(text, unit = "") {
  return element("div.value", text, unit ? [element("small", unit)] : []);
}

const sub = (text) => element("div.sub", text);

function meter(parts, classes = "") {
  const bar = element(`div.meter${classes}`);
  for (const part of parts) {
    const piece = element(`span${part.class ? "." + part.class : ""}`);
    piece.style.width = `${Math.min(100, 100 * part.share)}%`;
    if (part.title) piece.title = part.title;
    bar.append(piece);
  }
  return bar;
}

function key(parts) {
  return element("div.key", "", parts.map(([name, text]) => element("span", "", [element(`i.${name}`), text])));
}

function throughput(live) {
  return card("Throughput", ".half", [
    value(short(live.rates.output_tokens_per_s), "output tokens/s"),
    sparkline(history, kHistory, "Output tokens per second, the last 30 seconds"),
    sub(`${short(live.rates.prompt_tokens_per_s)} prompt tokens/s \u00b7 ${short(live.rates.steps_per_s)} steps/s \u00b7 the last 30 s above`),
  ]);
}

function memory(live) {
  const { gbps, roofline_gbps: roof, share } = live.memory;
  const parts = [value(short(gbps), "GB/s read by steps")];
  if (roof !== null && roof !== undefined) {
    parts.push(meter([{ share: share ?? 0, class: "c0" }]));
    parts.push(sub(`${percent(share ?? 0)} of the roofline, ${short(roof)} GB/s`));
  } else {
    parts.push(sub("the device's roofline is not known"));
  }
  const most = Math.max(1e-9, roof ?? 0, ...live.ranks.map((rank) => rank.gbps));
  if (live.ranks.length > 1)
    for (const rank of live.ranks) {
      parts.push(sub(`rank ${rank.rank}: ${short(rank.gbps)} GB/s`));
      parts.push(meter([{ share: rank.gbps / most, class: `c${rank.rank % kColors}` }]));
    }
  else parts.push(sub("one rank"));
  return card("Memory traffic", ".half", parts);
}

function queue(live) {
  const { waiting, max, outstanding } = live.queue;
  return card("Queue", ".third", [
    value(count(waiting), "waiting"),
    meter([{ share: max ? waiting / max : 0, class: "c1" }]),
    sub(`of at most ${count(max)} \u00b7 ${count(outstanding)} accepted`),
  ]);
}

function batch(live) {
  const slots = element(`div.slots${live.batch.slots > 64 ? ".many" : ""}`);
  const states = live.requests.filter((one) => one.state !== "waiting").map((one) => one.state);
  for (let i = 0; i < Math.min(live.batch.slots, 256); ++i) slots.append(element(`i${i < states.length ? "." + states[i] : ""}`));
  return card("Batch", ".third", [value(count(live.batch.running), `of ${count(live.batch.slots)} slots`), slots, key([["c0", "decode"], ["c1", "prefill"]])]);
}

function prefix(live) {
  const { queried_tokens: queried, hit_tokens: hit } = live.prefix;
  return card("Prefix cache", ".third", [
    value(queried ? percent(hit / queried) : "\u2013", "of prompt tokens"),
    meter([{ share: queried ? hit / queried : 0, class: "c3" }]),
    sub(`${count(hit)} of ${count(queried)} tokens were there`),
  ]);
}

function totals(live) {
  const { totals } = live;
  const finished = Object.values(totals.finished ?? {}).reduce((sum, one) => sum + one, 0);
  return card("Since the start", ".third", [
    value(count(finished), "answers"),
    sub(`${count(totals.prompt_tokens)} prompt, ${count(totals.output_tokens)} output tokens`),
    sub(`${count(totals.rejected)} rejected \u00b7 ${count(totals.cancelled)} cancelled \u00b7 ${count(live.preemptions)} preempted`),
  ]);
}

function pages(live) {
  const { total, free, cached, tokens_per_page: size } = live.pages;
  const owners = live.requests.filter((one) => one.kv_pages > 0).sort((a, b) => b.kv_pages - a.kv_pages);
  const parts = owners.map((one, index) => ({
    share: one.kv_pages / total,
    class: `c${index % kColors}`,
    title: `${one.id}: ${count(one.kv_pages)} pages`,
  }));
  parts.push({ share: cached / total, class: "cached", title: `${count(cached)} cached` });
  const used = total - free - cached;
  return card("KV-cache pages, by request", ".full", [
    value(count(used), `of ${count(total)} pages in use, ${count(size)} tokens each`),
    meter(parts, ".tall"),
    key([["c0", `requests: ${count(used)}`], ["cached", `cached prefixes: ${count(cached)}`], ["free", `free: ${count(free)}`]]),
  ]);
}

function times(title, data) {
  const known = data.count > 0;
  return card(title, ".half", [
    value(known ? seconds(quantile(data, 0.5)) : "\u2013", "median"),
    histogram(data, title),
    sub(known ? `mean ${seconds(data.sum_s / data.count)} \u00b7 p99 about ${seconds(quantile(data, 0.99))} \u00b7 ${count(data.count)} values` : "no values yet"),
  ]);
}

function requests(live) {
  const head = element("tr", "", ["Request", "State", "Prompt", "Computed", "Output", "KV pages"].map((name) => {
    const cell = element("th", name);
    cell.scope = "col";
    return cell;
  }));
  const rows = live.requests.slice(0, kRows).map((one) =>
    element("tr", "", [one.id, one.state, count(one.prompt_tokens), count(one.computed_tokens), count(one.output_tokens), count(one.kv_pages)].map((text) => element("td", text))),
  );
  const table = element("table", "", [element("thead", "", [head]), element("tbody", "", rows)]);
  const parts = [element("div.scroll", "", [table])];
  if (!rows.length) parts.push(sub("no requests"));
  if (live.requests.length > kRows) parts.push(sub(`and ${count(live.requests.length - kRows)} more`));
  return card(`Requests: ${count(live.requests.length)}`, ".full", parts);
}

function draw(live) {
  history.push(live.rates.output_tokens_per_s);
  history = history.slice(-kHistory);
  if (byId("view-live").hidden) return;
  const scrolled = document.querySelector("#live .scroll")?.scrollLeft ?? 0;
  byId("live").replaceChildren(throughput(live), memory(live), queue(live), batch(live), prefix(live), totals(live), pages(live),
    times("Time to first token", live.ttft), times("Inter-token latency", live.itl), requests(live));
  document.querySelector("#live .scroll").scrollLeft = scrolled;
}

export function showState(text, bad) {
  byId("state").textContent = text;
  byId("state").classList.toggle("bad", bad);
}

const pause = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

// Watches while the live view is shown; connects again after an error.
export async function watchLive(keyOf) {
  running?.abort();
  const own = (running = new AbortController());
  while (!own.signal.aborted) {
    try {
      for await (const live of watch("/live?stream=1", keyOf(), own.signal)) {
        byId("live-error").hidden = true;
        showState(live.state === "running" ? "" : live.state, live.state === "failed");
        draw(live);
      }
    } catch (error) {
      if (own.signal.aborted) return;
      byId("live-error").hidden = false;
      byId("live-error").textContent =
        error.status === 401 || error.status === 403 ? `${error.message}: set the key in the chat's parameters` : error.message;
    }
    await pause(2000);
  }
}

export function stopLive() {
  running?.abort();
  running = null;
}
