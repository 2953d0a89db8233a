// The chat: sends, streams, stops, regenerates, and keeps the conversation over a reload.
import { stream } from "./api.js";
import { exported, imported, loadMessages, loadParameters, requestFields, saveMessages, saveParameters } from "./conversation.js";
import { byId, count, element, seconds, short } from "./dom.js";

const messagesList = byId("messages");
const input = byId("input");
const form = byId("parameters-form");

let messages = [];
let running = null; // the AbortController of the answer that is being streamed
let partial = null; // that answer's message
let leaving = false; // the page goes away, and with it the connection
let model = "";

export const parameters = () => Object.fromEntries(new FormData(form));
export const busy = () => running !== null;
export const setModel = (name) => (model = name);

function showError(text) {
  byId("error").textContent = text;
  byId("error").hidden = text === "";
}

// Code between ``` lines is set apart.
function fill(target, text) {
  target.replaceChildren();
  text.split(/^```.*\n?/m).forEach((part, index) => {
    if (part !== "") target.append(index % 2 === 1 ? element("pre", "", [element("code", part)]) : part);
  });
}

function row(message) {
  const thoughts = element("div.thoughts");
  const reasoning = element("details.reasoning", "", [element("summary", "Reasoning"), thoughts]);
  const text = element("div.text");
  const calls = element("div.calls");
  const note = element("div.note", message.note ?? "");
  const item = element(`li.message.${message.role}`, "", [
    element("div.who", message.role === "user" ? "You" : model || "Model"),
    reasoning,
    text,
    calls,
    note,
  ]);
  const view = { item, reasoning, thoughts, text, calls, note };
  refresh(view, message);
  return view;
}

// A call of a tool is shown as the model wrote it.
function callRow({ name, arguments: written }) {
  return element("div.call", "", [element("div.call-name", `Call of ${name}`), element("pre", "", [element("code", written)])]);
}

function refresh(view, message) {
  const { content, reasoning = "", calls = [] } = message;
  view.reasoning.hidden = reasoning === "";
  view.thoughts.textContent = reasoning;
  fill(view.text, content);
  view.text.hidden = content === "" && calls.length > 0;
  view.calls.replaceChildren(...calls.map(callRow));
}

// Adds what a chunk of the stream brings to the message. False: nothing to show.
function extend(message, choice) {
  const delta = choice?.delta ?? {};
  const text = delta.content ?? choice?.text ?? "";
  const thought = delta.reasoning_content ?? "";
  message.content += text;
  if (thought) message.reasoning = (message.reasoning ?? "") + thought;
  for (const { index = 0, function: part = {} } of delta.tool_calls ?? []) {
    message.calls ??= [];
    const call = (message.calls[index] ??= { name: "", arguments: "" });
    call.name += part.name ?? "";
    call.arguments += part.arguments ?? "";
  }
  return text !== "" || thought !== "" || (delta.tool_calls ?? []).length > 0;
}

const isEmpty = (message) => message.content === "" && !message.reasoning && !message.calls;

const nearEnd = () => messagesList.scrollHeight - messagesList.scrollTop - messagesList.clientHeight < 60;
const toEnd = () => (messagesList.scrollTop = messagesList.scrollHeight);

function show() {
  messagesList.replaceChildren(...messages.map((message) => row(message).item));
  toEnd();
  buttons();
}

function buttons() {
  byId("send").hidden = busy();
  byId("stop").hidden = !busy();
  byId("regenerate").disabled = busy() || !messages.some((message) => message.role === "user");
  for (const id of ["new", "import"]) byId(id).disabled = busy();
}

function request() {
  const set = parameters();
  const fields = { model, stream: true, stream_options: { include_usage: true }, max_tokens: 256, ...requestFields(set) };
  if (set.mode === "text") return ["/v1/completions", { ...fields, prompt: messages.map((one) => one.content).join("") }];
  const system = set.system.trim() === "" ? [] : [{ role: "system", content: set.system }];
  const said = messages.map(({ role, content }) => ({ role, content }));
  return ["/v1/chat/completions", { ...fields, messages: [...system, ...said] }];
}

function noteOf(start, first, usage, finish) {
  const parts = [];
  const tokens = usage?.completion_tokens;
  if (tokens !== undefined) parts.push(`${count(tokens)} tokens`);
  if (first) parts.push(`first after ${seconds((first - start) / 1000)}`);
  const rest = (performance.now() - first) / 1000;
  if (first && tokens > 1 && rest > 0) parts.push(`${short((tokens - 1) / rest)} tokens/s`);
  if (finish === "length") parts.push("cut at the limit of tokens");
  if (finish === "stopped") parts.push("stopped");
  return parts.join(" \u00b7 ");
}

// Streams the answer to the conversation so far.
async function answer() {
  showError("");
  running = new AbortController();
  buttons();
  const [path, body] = request();
  const message = { role: "assistant", content: "" };
  partial = message;
  const view = row(message);
  view.item.classList.add("busy");
  messagesList.append(view.item);
  toEnd();
  let first = 0;
  let usage;
  let finish;
  const start = performance.now();
  try {
    for await (const chunk of stream(path, body, parameters().key, running.signal)) {
      usage = chunk.usage ?? usage;
      const choice = chunk.choices?.[0];
      finish = choice?.finish_reason ?? finish;
      if (!extend(message, choice)) continue;
      first ||= performance.now();
      const follow = nearEnd();
      refresh(view, message);
      if (follow) toEnd();
    }
  } catch (error) {
    finish = "stopped";
    if (error.name !== "AbortError") {
      finish = "failed";
      const hint = /template/i.test(error.message) ? " The mode \u201cContinue a text\u201d needs no template." : "";
      showError(error.message + hint);
    }
  }
  if (leaving) return; // what has come is kept already
  running = null;
  partial = null;
  view.item.classList.remove("busy");
  message.note = noteOf(start, first, usage, finish);
  view.note.textContent = message.note;
  if (isEmpty(message) && finish === "failed") view.item.remove();
  else messages.push(message);
  saveMessages(messages);
  byId("announce").textContent = finish === "failed" ? "" : `Answer ended: ${message.content.slice(0, 300)}`;
  buttons();
}

function send() {
  const text = parameters().mode === "text" ? input.value : input.value.trim();
  if (busy() || (text === "" && messages.length === 0)) return;
  if (text !== "") messages.push({ role: "user", content: text });
  input.value = "";
  saveMessages(messages);
  show();
  answer();
}

export function stop() {
  running?.abort();
}

export function regenerate() {
  if (byId("regenerate").disabled) return;
  while (messages.length && messages.at(-1).role === "assistant") messages.pop();
  show();
  answer();
}

export function startAnew() {
  if (busy()) return;
  messages = [];
  saveMessages(messages);
  showError("");
  show();
  input.focus();
}

function exportFile() {
  const url = URL.createObjectURL(new Blob([exported(messages, parameters())], { type: "application/json" }));
  const link = element("a");
  link.href = url;
  link.download = "heddle-conversation.json";
  link.click();
  URL.revokeObjectURL(url);
}

async function importFile(file) {
  try {
    const read = imported(await file.text());
    messages = read.messages;
    setParameters(read.parameters);
    saveMessages(messages);
    saveParameters(parameters());
    showError("");
    show();
  } catch (error) {
    showError(`${file.name}: ${error.message}`);
  }
}

function setParameters(values) {
  for (const [name, value] of Object.entries(values)) {
    const field = form.elements[name];
    if (field && typeof value !== "object") field.value = value;
  }
  byMode();
}

function byMode() {
  const chat = form.elements.mode.value === "chat";
  for (const one of document.querySelectorAll(".of-chat")) one.hidden = !chat;
  input.placeholder = chat ? "Say something" : "A text to continue";
}

export function toggleParameters(open) {
  const panel = byId("parameters");
  const now = open ?? !panel.classList.contains("open");
  panel.classList.toggle("open", now);
  byId("open-parameters").setAttribute("aria-expanded", String(now));
  if (now) form.elements.mode.focus();
  else input.focus();
}

export function startChat() {
  setParameters(loadParameters());
  try {
    messages = loadMessages();
  } catch {
    messages = [];
  }
  show();
  byId("compose").addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  for (const event of ["input", "change"])
    form.addEventListener(event, () => {
      saveParameters(parameters());
      byMode();
    });
  byId("stop").addEventListener("click", stop);
  // What has come of an answer is there after a reload, too.
  addEventListener("pagehide", () => {
    leaving = true;
    if (partial && !isEmpty(partial)) saveMessages([...messages, { ...partial, note: "stopped" }]);
  });
  addEventListener("pageshow", (event) => {
    if (event.persisted) location.reload();
  });
  byId("regenerate").addEventListener("click", regenerate);
  byId("new").addEventListener("click", startAnew);
  byId("export").addEventListener("click", exportFile);
  byId("import").addEventListener("click", () => byId("import-file").click());
  byId("import-file").addEventListener("change", (event) => {
    if (event.target.files[0]) importFile(event.target.files[0]);
    event.target.value = "";
  });
  byId("open-parameters").addEventListener("click", () => toggleParameters(true));
  byId("close-parameters").addEventListener("click", () => toggleParameters(false));
  input.focus();
}
