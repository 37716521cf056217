// What is asked of the server. One request at a time, each with an end.

const PATIENCE_MS = 10000;

async function ask(path, options) {
  const response = await fetch(path, { ...options, cache: "no-store", credentials: "same-origin", signal: AbortSignal.timeout(PATIENCE_MS) });
  if (response.status === 401) throw new Error("the password is not right any more: load this page anew");
  let answer;
  try {
    answer = await response.json();
  } catch {
    throw new Error(`the server answered ${response.status}`);
  }
  if (!response.ok) throw new Error(answer.error || `the server answered ${response.status}`);
  return answer;
}

export const cluster = () => ask("api/cluster");
// Not as a part of the path: browsers would take the names "." and ".." out of it, also percent-encoded.
export const lock = (id) => ask(`api/lock?name=${id}`);

export function locks(after, pattern, limit) {
  return ask(`api/locks?after=${after}&limit=${limit}${pattern ? `&pattern=${encodeURIComponent(pattern)}` : ""}`);
}

// The header is what no other site can send: see docs/admin.md.
export function breakLock(id, now) {
  return ask(`api/break?name=${id}${now ? "&now=1" : ""}`, { method: "POST", headers: { "X-Holdfast": "1" } });
}
