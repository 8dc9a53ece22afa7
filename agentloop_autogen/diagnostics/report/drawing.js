// Charts: which rows, how wide, and what they say in words.

const views = new Map();
const refused = () => Promise.reject(new Error("charts load nothing"));
const loader = { load: refused, sanitize: refused, http: refused, file: refused };

/** Show the rows of a tooltip as text. */
function tooltip(_handler, event, _item, value) {
  const tip = byId("tip");
  tip.hidden = !value || typeof value !== "object";
  if (tip.hidden) return;
  const shown = Object.entries(value).filter(([, text]) => text !== "" && text !== null && text !== undefined);
  fill(
    tip,
    make(
      "dl",
      {},
      ...shown.map(([name, text]) => make("div", {}, make("dt", {}, name), make("dd", {}, isolated(String(text))))),
    ),
  );
  const room = 12;
  const left = Math.min(event.clientX + room, window.innerWidth - tip.offsetWidth - room);
  const below = event.clientY + room;
  const top = below + tip.offsetHeight > window.innerHeight ? event.clientY - tip.offsetHeight - room : below;
  tip.style.left = `${Math.max(0, left)}px`;
  tip.style.top = `${Math.max(0, top)}px`;
}

/** Draw a chart into an element, in the place of what it showed before. */
async function draw(element, spec, rows, words) {
  const turn = (views.get(element)?.turn ?? 0) + 1;
  views.get(element)?.view?.finalize();
  views.set(element, { turn, view: null });
  const shown = { ...fitted(spec, element, rows), datasets: { rows } };
  const drawn = await window.vegaEmbed(element, shown, {
    mode: "vega-lite",
    // Expressions are interpreted: compiled ones need `eval`, which the policy of the page forbids.
    ast: true,
    actions: false,
    defaultStyle: false,
    renderer: "svg",
    hover: false,
    loader,
    tooltip,
  });
  if (views.get(element).turn === turn) views.get(element).view = drawn;
  else drawn.finalize();
  element.setAttribute("role", "img");
  element.setAttribute("aria-label", words);
}

/** Give a chart the width of its place: as many facets side by side as it has room for. */
function fitted(spec, element, rows) {
  const room = Math.max(220, element.clientWidth);
  const axis = 56;
  if (!spec.facet) return { ...spec, width: room - axis - 12 };
  const groups = new Set(rows.map((row) => row.group)).size;
  const columns = Math.max(1, Math.min(groups, Math.floor(room / 290)));
  const width = Math.floor((Math.min(room, columns * 620) - axis - 8 - (columns - 1) * spec.spacing) / columns);
  const header = { ...spec.facet.header, labelLimit: width };
  return { ...spec, columns, facet: { ...spec.facet, header }, spec: { ...spec.spec, width } };
}

/** One row for each bar of a histogram. */
function binRows(quantity, keep) {
  const { edges, labels, cells } = quantity.bins;
  return cells
    .map(([group, outcome, place, n]) => ({
      group: payload.groups[group].label,
      outcome,
      from: edges[place],
      to: edges[place + 1],
      bin: labels[place],
      n,
    }))
    .filter(keep);
}

/** One row for each value of a quantity. */
function stepRows(quantity, keep) {
  return quantity.values
    .filter(keep)
    .flatMap((item) => item.values.map((value, place) => ({ group: item.group, value, n: item.counts[place] })));
}

/** The same rows with both ends of the axis for each group, so that every line runs from end to end. */
function withEnds(groups) {
  const ends = [Math.min(...groups.map((group) => group.least)), Math.max(...groups.map((group) => group.most))];
  const added = groups.flatMap((group) => ends.map((value) => ({ group: group.label, value, n: 0 })));
  return [...groups.flatMap((group) => group.rows), ...added];
}

/** How the values of one group are spread: its size, quartiles and extremes. */
function spread(rows) {
  const sorted = rows.toSorted((a, b) => a.value - b.value);
  const of = sorted.reduce((sum, row) => sum + row.n, 0);
  const at = (part) => {
    let seen = 0;
    return sorted.find((row) => (seen += row.n) >= part * of).value;
  };
  return { of, median: at(0.5), high: at(0.9), least: sorted[0].value, most: sorted.at(-1).value };
}

/** The spread of every group that has any rows, in the order of the page. */
function spreads(rows) {
  const groups = Map.groupBy(rows, (row) => row.group);
  return payload.groups
    .map((group, index) => ({ index, label: group.label, rows: groups.get(group.label) }))
    .filter((group) => group.rows)
    .map((group) => ({ ...group, ...spread(group.rows) }));
}

function drawDistributions(quantity, filters) {
  const keep = (row) => filters.groups.has(row.group) && (!filters.outcome || row.outcome === filters.outcome);
  const steps = stepRows(quantity, keep);
  const groups = spreads(steps);
  byId("distributions-body").hidden = !groups.length;
  byId("distributions-empty").hidden = groups.length > 0;
  byId("distributions-empty").textContent = `${quantity.label}: nothing recorded for what the filters leave.`;
  if (!groups.length) return;
  byId("histogram-title").textContent = `${quantity.label}, group by group`;
  byId("ecdf-title").textContent = `${quantity.label}: share of requests at or below`;
  const told = groups
    .slice(0, 6)
    .map(
      (group) =>
        `${group.label}: median ${short.format(group.median)}, nine in ten at or below ${short.format(group.high)}`,
    );
  const words = `${quantity.axis}. ${told.join("; ")}${groups.length > 6 ? "; and more groups" : ""}.`;
  draw(byId("histogram"), quantity.histogram, binRows(quantity, keep), `Histograms of ${words}`);
  draw(byId("ecdf"), quantity.ecdf, withEnds(groups), `Cumulative shares of ${words}`);
  fill(byId("group-legend"), ...groups.map((group) => lineKey(group.index, group.label)));
  const columns = ["Group", "#Requests", "#Least", "#Median", "#90th percentile", "#Most"];
  const figures = groups.map((group) => [
    isolated(group.label),
    whole.format(group.of),
    ...[group.least, group.median, group.high, group.most].map((value) => short.format(value)),
  ]);
  fill(byId("quantiles"), table(columns, figures, `${quantity.label} in numbers`));
}

function drawFrontier(filters) {
  const element = byId("frontier-chart");
  if (!element) return;
  const rows = payload.frontier.rows.filter((row) => filters.groups.has(row.group));
  element.hidden = !rows.length;
  byId("frontier-empty").hidden = rows.length > 0;
  byId("frontier-empty").textContent = payload.frontier.rows.length
    ? "No setting of the groups that the filters leave can be placed."
    : "No setting can be placed: none of these requests is known to be solved.";
  if (!rows.length) return;
  const told = rows
    .filter((row) => row.kind === "default")
    .slice(0, 6)
    .map(
      (row) =>
        `${row.group}: the default ${row.name} saves ${row.saved_counts} calls and loses ${row.lost_counts} solved requests`,
    );
  const words = told.length ? told.join("; ") : counted(rows.length, "setting");
  draw(element, payload.frontier.spec, rows, `Calls saved against solved requests lost. ${words}.`);
}

const SVG = "http://www.w3.org/2000/svg";

/** A small drawing for a legend. */
function sketch(shape, attributes) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 28 12");
  svg.setAttribute("aria-hidden", "true");
  const drawn = document.createElementNS(SVG, shape);
  for (const [name, value] of Object.entries(attributes)) drawn.setAttribute(name, value);
  svg.append(drawn);
  return svg;
}

function lineKey(index, label) {
  const [colour, dash] = ["color", "strokeDash"].map(
    (channel) => payload.quantities[0].ecdf.layer[0].encoding[channel].scale.range[index],
  );
  const line = { x1: 0, x2: 28, y1: 6, y2: 6, stroke: colour, "stroke-width": 2.5, "stroke-dasharray": dash.join(" ") };
  return make("span", { class: "key" }, sketch("line", line), isolated(label));
}

function drawLegends() {
  const outcomes = [
    ["solved", "solved"],
    ["not solved", "unsolved"],
    ["not known", "unjudged"],
  ];
  const box = (name) => sketch("rect", { x: 8, y: 0, width: 12, height: 12, rx: 2, fill: `var(--${name})` });
  fill(byId("outcome-legend"), ...outcomes.map(([label, name]) => make("span", { class: "key" }, box(name), label)));
  if (!byId("kind-legend")) return;
  const kinds = [
    ["default", sketch("path", { d: "M14 0 L20 6 L14 12 L8 6 Z", fill: "var(--series-2)" })],
    ["on the frontier", sketch("circle", { cx: 14, cy: 6, r: 5, fill: "var(--series-1)" })],
    ["behind it", sketch("path", { d: "M12 1h4v3h3v4h-3v3h-4v-3h-3v-4h3z", fill: "var(--muted)" })],
  ];
  fill(byId("kind-legend"), ...kinds.map(([label, mark]) => make("span", { class: "key" }, mark, label)));
}
