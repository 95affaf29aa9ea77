// What the page knows now, and who listens to changes.

export const PAGE = 48; // tiles of the grid

export const state = {
  session: null,
  mode: "card", // or "grid"
  order: "best",
  filters: {},
  ids: [], // the queue as far as it was loaded
  position: 0, // of the card in `ids`; ids.length after the last one
  total: 0, // items that match the filters
  items: new Map(), // id → item as the server knows it
  pending: new Map(), // id → decision that the server has not saved yet
  selected: new Set(), // ids chosen in the grid
  gridStart: 0,
  focus: 0, // tile of the grid that keys act on
  progress: null,
  online: true,
  unit: "decision", // what is saved
};

const listeners = new Map();

/** Call `action` after each change of a topic. */
export function on(topic, action) {
  listeners.set(topic, [...(listeners.get(topic) ?? []), action]);
}

/** Call the listeners of a topic. */
export function emit(topic, detail) {
  for (const action of listeners.get(topic) ?? []) action(detail);
}

/** Return the item on the card, or null after the last one. */
export function currentItem() {
  return state.items.get(state.ids[state.position]) ?? null;
}

/** Keep items that the server answered. */
export function keepItems(items) {
  for (const item of items) state.items.set(item.id, item);
  if (items.length) emit("items", items.map((item) => item.id));
}
