// The conversation and the parameters, as they are kept in the browser and exported. Keys are kept for the tab only.

const kConversation = "heddle.conversation";
const kParameters = "heddle.parameters";
const kKey = "heddle.key";
const kAdminKey = "heddle.admin_key";
const kVersion = 1;

function read(key, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(key)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

function write(store, key, text) {
  try {
    store.setItem(key, text);
  } catch {
    // private windows and full stores: the page works, and forgets
  }
}

export const loadMessages = () => checked(read(kConversation, []));
export const saveMessages = (messages) => write(localStorage, kConversation, JSON.stringify(messages));
export const loadParameters = () => ({
  ...read(kParameters, {}),
  key: sessionStorage.getItem(kKey) ?? "",
  admin_key: sessionStorage.getItem(kAdminKey) ?? "",
});

export function saveParameters({ key, admin_key, ...others }) {
  write(localStorage, kParameters, JSON.stringify(others));
  write(sessionStorage, kKey, key ?? "");
  write(sessionStorage, kAdminKey, admin_key ?? "");
}

const isCall = (call) => typeof call?.name === "string" && typeof call.arguments === "string";

function checked(messages) {
  if (!Array.isArray(messages)) throw new Error("it holds no list of messages");
  return messages.map((message) => {
    if (!["user", "assistant"].includes(message?.role) || typeof message.content !== "string")
      throw new Error("a message has no role and content");
    const { role, content } = message;
    const kept = { role, content };
    for (const name of ["note", "reasoning"]) if (typeof message[name] === "string") kept[name] = message[name];
    if (Array.isArray(message.calls) && message.calls.every(isCall))
      kept.calls = message.calls.map((call) => ({ name: call.name, arguments: call.arguments }));
    return kept;
  });
}

export function exported(messages, parameters) {
  const { key, admin_key, ...others } = parameters;
  return JSON.stringify({ heddle_conversation: kVersion, parameters: others, messages }, null, 2);
}

// Throws an Error that says what is wrong.
export function imported(text) {
  let file;
  try {
    file = JSON.parse(text);
  } catch {
    throw new Error("it is not JSON");
  }
  const parameters = file?.parameters && typeof file.parameters === "object" ? file.parameters : {};
  return { messages: checked(Array.isArray(file) ? file : file?.messages), parameters };
}

// The fields of a request's body that the user has set.
export function requestFields(parameters) {
  const fields = {};
  for (const name of ["max_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "presence_penalty", "frequency_penalty"])
    if (parameters[name] !== undefined && parameters[name] !== "") fields[name] = Number(parameters[name]);
  const stop = (parameters.stop ?? "").split("\n").filter((line) => line !== "");
  if (stop.length) fields.stop = stop;
  return fields;
}
