// Two groups side by side.

const NO_FIGURE = { value: null, text: "not recorded", counts: "", interval: "" };

function figureCell(figure) {
  if (figure.value === null) return make("span", { class: "none" }, figure.text);
  return make(
    "span",
    {},
    make("span", { class: "value" }, figure.text),
    make("span", { class: "basis" }, [figure.counts, figure.interval].filter(Boolean).join(" · ")),
  );
}

const UNIT_WORDS = { share: " points", seconds: " s", number: "", tokens: "" };

function sizeOf(figure, delta) {
  if (figure.unit === "share") return (delta * 100).toFixed(1);
  return Number.isInteger(delta) || delta >= 100 ? whole.format(Math.round(delta)) : delta.toFixed(2);
}

/** Whether two intervals leave no room for both figures to be the same; null where one of them has none. */
function areApart(a, b) {
  if ([a.low, a.high, b.low, b.high].some((end) => end === null || end === undefined)) return null;
  return a.high < b.low || b.high < a.low;
}

/** The difference between two figures; a word for which way it goes only where chance hardly explains it. */
function difference(a, b) {
  if (a.value === null || b.value === null) return make("span", { class: "none" }, "–");
  const delta = b.value - a.value;
  if (delta === 0) return "the same";
  const text = `${delta < 0 ? "−" : "+"}${sizeOf(a, Math.abs(delta))}${UNIT_WORDS[a.unit]}`;
  const clear = areApart(a, b) && a.better !== "neither";
  const good = !clear ? "" : delta > 0 === (a.better === "higher") ? "better" : "worse";
  return make(
    "span",
    { class: `difference ${good}` },
    make("span", { class: "value" }, text),
    good ? make("span", { class: "basis" }, `B is ${good}`) : null,
  );
}

function intervals(a, b) {
  const apart = areApart(a, b);
  return apart === null ? make("span", { class: "none" }, "–") : apart ? "apart" : "overlap";
}

function compareFigures(a, b) {
  const [ofA, ofB] = [a, b].map(
    (index) => new Map((payload.figures[index] ?? []).map((figure) => [figure.key, figure])),
  );
  const keys = [...new Set([...ofA.keys(), ...ofB.keys()])];
  const rows = keys.map((key) => {
    const [one, other] = [ofA.get(key), ofB.get(key)];
    const known = one ?? other;
    const [left, right] = [one, other].map((figure) => ({ ...known, ...(figure ?? NO_FIGURE) }));
    return [
      isolated(known.label, { title: known.meaning }),
      figureCell(left),
      figureCell(right),
      difference(left, right),
      intervals(left, right),
    ];
  });
  fill(byId("compare-table"), table(["Figure", "#A", "#B", "#B − A", "95 % intervals"], rows, "Figures of A and B"));
}

/** Requests of the same text in both groups, the first with the first where one came up several times. */
function pairs(a, b) {
  const others = Map.groupBy(
    payload.timelines.filter((timeline) => timeline.group === b),
    (timeline) => timeline.request,
  );
  const used = new Map();
  return payload.timelines
    .filter((timeline) => timeline.group === a)
    .flatMap((left) => {
      const place = used.get(left.request) ?? 0;
      const right = others.get(left.request)?.[place];
      used.set(left.request, place + 1);
      return right ? [[left, right]] : [];
    });
}

function side(letter, timeline) {
  return make(
    "article",
    { class: "card side", "aria-label": `Run ${letter}` },
    make("h4", {}, make("span", { class: "letter" }, letter), groupTag(timeline.group)),
    make("p", { class: "request-head" }, outcomeTag(timeline.outcome), isolated(timeline.id, { class: "id" })),
    make("p", { class: "verdict" }, verdict(timeline)),
    roundsView(timeline),
  );
}

function startCompare() {
  if (!byId("compare-a")) return;
  const [selectA, selectB, select] = ["compare-a", "compare-b", "pair"].map(byId);
  for (const box of [selectA, selectB])
    fill(box, ...payload.groups.map((group, index) => make("option", { value: index }, group.label)));
  let found = [];
  const showPair = () => {
    const [left, right] = found[select.selectedIndex];
    fill(
      byId("pair-body"),
      make("p", { class: "pair-request" }, isolated(left.request)),
      side("A", left),
      side("B", right),
    );
    byId("pair-back").disabled = select.selectedIndex === 0;
    byId("pair-next").disabled = select.selectedIndex === found.length - 1;
  };
  const showSides = () => {
    const [a, b] = [Number(selectA.value), Number(selectB.value)];
    compareFigures(a, b);
    found = pairs(a, b);
    for (const id of ["pair-choice", "pair-body"]) byId(id).hidden = !found.length;
    byId("pair-empty").hidden = found.length > 0;
    fill(
      select,
      ...found.map(([left], place) => make("option", { value: place }, `${left.id} · ${left.request.slice(0, 90)}`)),
    );
    if (found.length) showPair();
  };
  const step = (by) => {
    select.selectedIndex += by;
    showPair();
  };
  const best = bestPair();
  [selectA.selectedIndex, selectB.selectedIndex] = [best.a, best.b];
  selectA.addEventListener("change", showSides);
  selectB.addEventListener("change", showSides);
  select.addEventListener("change", showPair);
  byId("pair-back").addEventListener("click", () => step(-1));
  byId("pair-next").addEventListener("click", () => step(1));
  byId("compare-swap").addEventListener("click", () => {
    [selectA.value, selectB.value] = [selectB.value, selectA.value];
    showSides();
  });
  showSides();
}

/** The two groups that share most requests; the first two where none do. */
function bestPair() {
  const asked = payload.groups.map(() => new Set());
  for (const timeline of payload.timelines) asked[timeline.group].add(timeline.request);
  let best = { a: 0, b: 1, shared: 0 };
  for (let a = 0; a < asked.length; a += 1)
    for (let b = a + 1; b < asked.length; b += 1) {
      const shared = [...asked[a]].filter((request) => asked[b].has(request)).length;
      if (shared > best.shared) best = { a, b, shared };
    }
  return best;
}
