// Other tabs and reviewers: ask the server what has changed, and follow.

import { getJson } from "./api.js";
import { debounce } from "./dom.js";
import { sendNow, setOnline } from "./outbox.js";
import { loadItems, loadQueue, resortAhead } from "./queue.js";
import { emit, on, state } from "./state.js";

const PAUSE_MS = 1500;
let seq = 0;

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const resort = debounce(() => resortAhead().catch(() => {}), 1200);

/** Ask again and again; the server answers when something has changed, or after a while. */
async function follow() {
  for (;;) {
    try {
      const answer = await getJson("/api/changes", { after: seq, score_version: state.session.score_version });
      noteOnline();
      await take(answer);
    } catch (error) {
      setOnline(false, error);
      await pause(PAUSE_MS);
    }
  }
}

/** After a time without the server: send what waits, and look at everything anew. */
function noteOnline() {
  if (state.online) return;
  setOnline(true);
  sendNow();
  emit("changes");
  if (state.ids.length === 0) loadQueue().catch(() => {});
}

async function take(answer) {
  const known = (answer.items ?? []).filter((id) => state.items.has(id) && !state.pending.has(id));
  const changed = answer.seq !== seq;
  seq = answer.seq;
  noteScores(answer.score_version);
  if (known.length) await loadItems(known, true);
  if (changed) emit("changes");
}

/** Look again at the scores of what is shown when the model has changed. */
function noteScores(version) {
  if (version === undefined || version === state.session.score_version) return;
  state.session.score_version = version;
  const shown = state.ids.slice(state.position, state.position + 50).filter((id) => state.items.has(id));
  loadItems(shown, true).catch(() => {});
  resort();
}

/** Start to follow. */
export function startChanges() {
  seq = state.session.seq;
  on("answer", (answer) => noteScores(answer.score_version));
  follow();
}
