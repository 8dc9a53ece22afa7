// One request, round by round: a strip of marks, and under it each round to open.

const MARKS = {
  cycle: ["↻", "in circles", "circle"],
  monologue: ["❝", "says the same again", "circle"],
  same_error: ["‼", "same error again", "error"],
  error: ["!", "error", "error"],
  repeat: ["=", "repeats a call", "repeat"],
  nothing_new: ["–", "nothing new", "repeat"],
  stable: ["≈", "stable", "stable"],
  news: ["+", "news", "news"],
};
const MARK_ORDER = Object.keys(MARKS);
const PLAIN = ["·", "no mark", "plain"];
const SLOT_SIGNS = { supported: "✓", unsynthesised: "◐", missing: "○", conflicting: "≠", exhausted: "✗" };
const ACTIONS = {
  continue_invocation: "continue",
  answer_synthesis: "write the answer",
  terminate_iteration: "stop",
};
const OUTCOME_SIGNS = { solved: "✓", "not solved": "✗", "not known": "?" };
const OUTCOME_CLASSES = { solved: "solved", "not solved": "unsolved", "not known": "unjudged" };
let drawnTimelines = 0;

const markOf = (name) => MARKS[name] ?? ["•", name, "plain"];

/** The mark that says most about a round. */
function mainMark(round) {
  const name = MARK_ORDER.find((known) => round.marks.includes(known)) ?? round.marks[0];
  return name === undefined ? PLAIN : markOf(name);
}

const isSaved = (timeline, place) => timeline.stopped_at !== null && place > timeline.stopped_at;

function outcomeTag(outcome) {
  return make("span", { class: `outcome ${OUTCOME_CLASSES[outcome]}` }, `${OUTCOME_SIGNS[outcome]} ${outcome}`);
}

function chip(name) {
  const [sign, label, kind] = markOf(name);
  return make("span", { class: `chip mark-${kind}` }, make("b", { "aria-hidden": "true" }, sign), isolated(label));
}

/** The rounds as small squares that nobody presses, for lists. */
function miniature(timeline) {
  const cells = timeline.rounds.map((round, place) => {
    const [sign, , kind] = mainMark(round);
    return make("i", { class: `mini mark-${kind}${isSaved(timeline, place) ? " saved" : ""}` }, sign);
  });
  return make("span", { class: "miniature", "aria-hidden": "true" }, ...cells);
}

/** A text that may be long: it scrolls inside its own box. */
function longText(text, given = {}) {
  return make("pre", { tabindex: text.length > 400 ? 0 : null, dir: "auto", ...given }, text);
}

function tool(cell) {
  const head = make(
    "p",
    { class: "tool-name" },
    isolated(cell.name || "unnamed tool"),
    cell.is_error ? make("span", { class: "chip mark-error" }, "! error") : null,
  );
  const result =
    cell.result === null
      ? make("p", { class: "none" }, "Nothing came back.")
      : longText(cell.result, { class: cell.is_error ? "result failed" : "result" });
  return make(
    "div",
    { class: "tool" },
    head,
    longText(cell.arguments, { class: "arguments" }),
    make("p", { class: "small-head" }, "Result"),
    result,
  );
}

function slots(round) {
  const rows = round.slots.map((slot) => [
    isolated(slot.name),
    make(
      "span",
      { class: "slot" },
      make("b", { "aria-hidden": "true" }, SLOT_SIGNS[slot.state] ?? "·"),
      " ",
      isolated(slot.state),
    ),
    slot.quote ? isolated(slot.quote, { class: "quote" }) : make("span", { class: "none" }, "no quote"),
  ]);
  const name = "Slots after the round";
  return make(
    "div",
    { class: "table-box", tabindex: 0, role: "region", "aria-label": name },
    table(["Slot", "State", "Quote"], rows, name),
  );
}

function decision(round) {
  const action = ACTIONS[round.action] ?? round.action;
  return make(
    "p",
    { class: "decision" },
    make("span", { class: "small-head" }, "Decision"),
    " ",
    make("strong", {}, isolated(action)),
    round.branch ? make("code", {}, round.branch) : null,
    round.reason ? isolated(round.reason) : null,
  );
}

function roundBody(round) {
  const parts = [];
  if (round.action) parts.push(decision(round));
  if (round.text)
    parts.push(make("p", { class: "small-head" }, round.tools.length ? "Thought" : "Text"), longText(round.text));
  if (round.tools.length) parts.push(make("p", { class: "small-head" }, "Calls"), ...round.tools.map(tool));
  if (round.slots.length) parts.push(make("p", { class: "small-head" }, "Slots after the round"), slots(round));
  if (!parts.length) parts.push(make("p", { class: "none" }, "Nothing was recorded of this round."));
  return parts;
}

/** One round to open; its content is made when it is first opened. */
function roundDetails(timeline, place, id) {
  const round = timeline.rounds[place];
  const names =
    round.tools
      .map((cell) => cell.name)
      .slice(0, 3)
      .join(", ") + (round.tools.length > 3 ? " …" : "");
  const summary = make(
    "summary",
    {},
    make("span", { class: "round-number" }, `Round ${place + 1}`),
    ...round.marks.map(chip),
    make("span", { class: "round-tools" }, isolated(names || (round.text ? "text only" : ""))),
    round.reward === null ? null : make("span", { class: "reward" }, `reward ${short.format(round.reward)}`),
    place === timeline.stopped_at ? make("span", { class: "stops" }, "■ loop stops") : null,
    isSaved(timeline, place) ? make("span", { class: "saved-word" }, "saved") : null,
  );
  const body = make("div", { class: "round-body" });
  const whenOpened = () => element.open && !body.hasChildNodes() && body.append(...roundBody(round));
  const element = make(
    "details",
    { class: `round${isSaved(timeline, place) ? " saved" : ""}`, id, toggle: whenOpened },
    summary,
    body,
  );
  return element;
}

function stripButton(timeline, place, details) {
  const round = timeline.rounds[place];
  const [sign, label, kind] = mainMark(round);
  const words = round.marks.length ? round.marks.map((name) => markOf(name)[1]).join(", ") : label;
  const ends = place === timeline.stopped_at ? ", the loop stops here" : isSaved(timeline, place) ? ", saved" : "";
  const reward =
    round.reward === null
      ? null
      : make("span", { class: "level", style: `--level: ${Math.max(0, Math.min(1, round.reward))}` });
  const button = make(
    "button",
    {
      type: "button",
      class: `cell mark-${kind}${isSaved(timeline, place) ? " saved" : ""}`,
      tabindex: -1,
      "aria-label": `Round ${place + 1}: ${words}${ends}`,
      "aria-expanded": "false",
      "aria-controls": details.id,
      title: words,
      click: () => {
        details.open = !details.open;
        if (details.open) details.scrollIntoView({ block: "nearest" });
      },
    },
    make("span", { class: "cell-number" }, String(place + 1)),
    make("span", { class: "cell-sign" }, sign),
    reward,
  );
  details.addEventListener("toggle", () => button.setAttribute("aria-expanded", String(details.open)));
  return button;
}

/** Let the arrow keys move along the buttons, of which the Tab key reaches one. */
function rove(strip, buttons) {
  const moves = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1, Home: -Infinity, End: Infinity };
  const reach = (button) => buttons.forEach((other) => other.setAttribute("tabindex", other === button ? "0" : "-1"));
  strip.addEventListener("focusin", (event) => buttons.includes(event.target) && reach(event.target));
  strip.addEventListener("keydown", (event) => {
    const at = buttons.indexOf(document.activeElement);
    if (!(event.key in moves) || at < 0) return;
    event.preventDefault();
    buttons[Math.max(0, Math.min(buttons.length - 1, at + moves[event.key]))].focus();
  });
}

function savedWords(timeline) {
  const rounds = timeline.rounds.length + timeline.rounds_left_out - timeline.stopped_at - 1;
  return `${counted(rounds, "round")}, ${counted(timeline.calls_saved, "call")} saved`;
}

/** The strip: one button a round, a new line of words where a turn begins or the loop stops. */
function strip(timeline, details) {
  const buttons = timeline.rounds.map((_, place) => stripButton(timeline, place, details[place]));
  const turns = new Set(timeline.rounds.map((round) => round.turn)).size > 1;
  const content = buttons.flatMap((button, place) => {
    const before = timeline.rounds[place - 1];
    const turn =
      turns && before?.turn !== timeline.rounds[place].turn
        ? make("span", { class: "turn" }, `turn ${timeline.rounds[place].turn + 1}`)
        : null;
    const stop =
      place === timeline.stopped_at
        ? make("span", { class: "stop" }, make("b", {}, "■ loop stops"), make("span", {}, savedWords(timeline)))
        : null;
    return [turn, button, stop].filter(Boolean);
  });
  const element = make(
    "div",
    { class: "strip", role: "toolbar", "aria-label": "Rounds, left and right arrow keys move" },
    ...content,
  );
  (buttons[timeline.stopped_at] ?? buttons[0]).setAttribute("tabindex", "0");
  rove(element, buttons);
  return element;
}

function stripLegend(timeline) {
  const seen = new Set(timeline.rounds.map((round) => mainMark(round)[1]));
  const shown = [...MARK_ORDER.map(markOf), PLAIN].filter(([, label]) => seen.has(label));
  const keys = shown.map(([sign, label, kind]) =>
    make("span", { class: "key" }, make("i", { class: `mini mark-${kind}`, "aria-hidden": "true" }, sign), label),
  );
  const rewarded = timeline.rounds.some((round) => round.reward !== null);
  const reward = rewarded
    ? make("span", { class: "key" }, make("i", { class: "level", "aria-hidden": "true" }), "reward, 0 to 1")
    : null;
  return make("p", { class: "legend" }, ...keys, reward);
}

/** The rounds of a request: strip, legend, and each round to open. */
function roundsView(timeline) {
  if (!timeline.rounds.length) return make("p", { class: "empty" }, "No rounds were recorded.");
  drawnTimelines += 1;
  const details = timeline.rounds.map((_, place) => roundDetails(timeline, place, `round-${drawnTimelines}-${place}`));
  (details[timeline.stopped_at] ?? details.at(-1)).open = true;
  const all = make("button", { type: "button", class: "quiet" }, "Open all rounds");
  all.addEventListener("click", () => {
    const opens = details.some((element) => !element.open);
    for (const element of details) element.open = opens;
    all.textContent = opens ? "Close all rounds" : "Open all rounds";
  });
  const left = timeline.rounds_left_out
    ? make("p", { class: "none" }, `${counted(timeline.rounds_left_out, "more round")} not shown.`)
    : null;
  return make(
    "div",
    { class: "rounds" },
    strip(timeline, details),
    make("div", { class: "rounds-bar" }, stripLegend(timeline), all),
    ...details,
    left,
  );
}

/** What the replayed loop would have done to a request, in a sentence. */
function verdict(timeline) {
  if (timeline.stopped_at === null) return "The replayed loop would not have ended it earlier.";
  const after = {
    true: "It is still solved there.",
    false: "It is not solved there.",
    null: "Whether it is solved there, the trace cannot say.",
  };
  return `The replayed loop ends it after round ${timeline.stopped_at + 1}: ${savedWords(timeline)}. ${after[timeline.solved_after]}`;
}
