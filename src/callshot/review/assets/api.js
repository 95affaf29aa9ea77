// Requests to the server, which is the only place this page talks to.

/** Where this page is: a review of what was found by labels has an address of its own. */
export const BASE = location.pathname.match(/^\/review\/\d+/)?.[0] ?? "";
export const AFTER_FINDING = "Exports have all your calls, also those that you have marked. What you decide here counts when you find all calls again.";

/** An answer that says why the server refused; `status` is 0 when it did not answer. */
export class ApiError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/** Fetch an address; failures become an ApiError with a plain sentence. */
async function request(address, options = {}) {
  let response;
  try {
    response = await fetch(BASE + address, { credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The server does not answer.", 0);
  }
  if (!response.ok) throw new ApiError(await readError(response), response.status);
  return response;
}

/** Return the sentence of an error answer. */
async function readError(response) {
  try {
    return (await response.json()).error;
  } catch {
    return `The server answered with error ${response.status}.`;
  }
}

/** Add a query to a path; null, undefined and empty values are left out. */
export function withQuery(path, query) {
  const pairs = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return pairs.length ? `${path}?${new URLSearchParams(pairs)}` : path;
}

/** Get JSON. */
export async function getJson(path, query = {}, signal = undefined) {
  const response = await request(withQuery(path, query), { signal });
  return response.json();
}

/** Send JSON and return the answer. */
export async function postJson(path, body) {
  const headers = { "Content-Type": "application/json" };
  const response = await request(path, { method: "POST", headers, body: JSON.stringify(body) });
  return response.json();
}

/** Get a file as {url, header(name)}; the address is one of this page's own. */
export async function getFile(address) {
  const response = await request(address);
  const blob = await response.blob();
  const numbers = (name) => Number(response.headers.get(name));
  const name = response.headers.get("Content-Disposition")?.match(/filename="(.+)"/)?.[1];
  return { url: URL.createObjectURL(blob), number: numbers, name };
}

/** Get bytes. */
export async function getBytes(address) {
  const response = await request(address);
  return new Uint8Array(await response.arrayBuffer());
}
