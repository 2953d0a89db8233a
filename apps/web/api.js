// Requests to the server: JSON, and streams of server-sent events.

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

const headers = (key) => (key ? { Authorization: `Bearer ${key}` } : {});

async function failure(response) {
  let message = response.statusText || "the request failed";
  try {
    const body = await response.json();
    message = body.error?.message ?? message;
  } catch {
    // not JSON: the status says what there is to say
  }
  const after = response.headers.get("Retry-After");
  if (response.status === 429 && after) message += ` (try again in ${after} s)`;
  return new ApiError(response.status, `${response.status}: ${message}`);
}

export async function getJson(path, key, signal) {
  const response = await fetch(path, { headers: headers(key), signal });
  if (!response.ok) throw await failure(response);
  return response.json();
}

// The data of each event, until the stream ends or `signal` aborts it.
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    held += value;
    const parts = held.split(/\r?\n\r?\n/);
    held = parts.pop();
    for (const part of parts) {
      const data = part
        .split(/\r?\n/)
        .filter((line) => line.startsWith("data:"))
        .map((line) => line.slice(5).replace(/^ /, ""))
        .join("\n");
      if (data) yield data;
    }
  }
}

// Yields the parsed chunks of a streamed answer. Throws ApiError for an error before or within the stream, and when the
// stream ends without its last event.
export async function* stream(path, body, key, signal) {
  const response = await fetch(path, {
    method: "POST",
    headers: { ...headers(key), "Content-Type": "application/json" },
    body: JSON.stringify(body),
    signal,
  });
  if (!response.ok) throw await failure(response);
  for await (const data of events(response)) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new ApiError(response.status, chunk.error.message ?? "the answer failed");
    yield chunk;
  }
  throw new ApiError(response.status, "the connection ended before the answer did");
}

// The same of GET, without a last event.
export async function* watch(path, key, signal) {
  const response = await fetch(path, { headers: { ...headers(key), Accept: "text/event-stream" }, signal });
  if (!response.ok) throw await failure(response);
  for await (const data of events(response)) yield JSON.parse(data);
}
