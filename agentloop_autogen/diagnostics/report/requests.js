// The list of requests, a page at a time, and the one that is chosen.

const PAGE_SIZE = 20;
const listing = { found: [], page: 0, chosen: null };

/** Whether a request fits the filters. */
function fits(timeline, filters) {
  const group = payload.groups[timeline.group];
  return (
    filters.groups.has(group.label) &&
    (!filters.outcome || timeline.outcome === filters.outcome) &&
    (!filters.cut || timeline.stopped_at !== null) &&
    (!filters.low || timeline.low_value) &&
    (!filters.text ||
      timeline.request.toLowerCase().includes(filters.text) ||
      timeline.id.toLowerCase().includes(filters.text))
  );
}

const ORDERS = {
  saved: (a, b) => b.calls_saved - a.calls_saved,
  rounds: (a, b) => b.rounds.length + b.rounds_left_out - a.rounds.length - a.rounds_left_out,
};

function listRequests(filters) {
  if (!byId("request-list")) return 0;
  const order = ORDERS[byId("list-order").value];
  listing.found = payload.timelines.filter((timeline) => fits(timeline, filters));
  if (order) listing.found.sort(order);
  listing.page = 0;
  if (!listing.found.includes(listing.chosen)) choose(listing.found[0] ?? null);
  showPage();
  return listing.found.length;
}

function showPage() {
  const { found, page } = listing;
  const pages = Math.max(1, Math.ceil(found.length / PAGE_SIZE));
  const shown = found.slice(page * PAGE_SIZE, (page + 1) * PAGE_SIZE);
  fill(byId("request-list"), ...shown.map(listItem));
  byId("list-count").textContent = counted(found.length, "request");
  byId("list-empty").hidden = found.length > 0;
  byId("page-number").textContent = `Page ${page + 1} of ${pages}`;
  byId("page-back").disabled = page === 0;
  byId("page-next").disabled = page + 1 >= pages;
}

function turnPage(step) {
  listing.page += step;
  showPage();
  byId("request-list").scrollTop = 0;
}

function listItem(timeline) {
  const rounds = timeline.rounds.length + timeline.rounds_left_out;
  const saved =
    timeline.stopped_at === null
      ? null
      : make("span", { class: "saves" }, `■ saves ${timeline.calls_saved} of ${counted(timeline.calls, "call")}`);
  const button = make(
    "button",
    {
      type: "button",
      class: "request",
      "aria-current": timeline === listing.chosen ? "true" : null,
      click: () => {
        choose(timeline);
        for (const other of byId("request-list").querySelectorAll("[aria-current]"))
          other.removeAttribute("aria-current");
        button.setAttribute("aria-current", "true");
        byId("detail").focus({ preventScroll: true });
        showDetail();
      },
    },
    make(
      "span",
      { class: "request-head" },
      outcomeTag(timeline.outcome),
      make("span", { class: "badge" }, String(timeline.group + 1)),
      isolated(timeline.id, { class: "id" }),
      timeline.low_value ? make("span", { class: "chip" }, "low value") : null,
    ),
    isolated(timeline.request.slice(0, 300) || "no request text", { class: "request-text" }),
    make("span", { class: "request-facts" }, miniature(timeline), make("span", {}, counted(rounds, "round")), saved),
  );
  return make("li", {}, button);
}

function choose(timeline) {
  listing.chosen = timeline;
  const detail = byId("detail");
  if (!timeline) return fill(detail, make("p", { class: "empty" }, "No request is chosen."));
  const answer = timeline.answer ? longText(timeline.answer) : make("p", { class: "none" }, "No answer was recorded.");
  fill(
    detail,
    make(
      "p",
      { class: "request-head" },
      outcomeTag(timeline.outcome),
      timeline.low_value ? make("span", { class: "chip" }, "low value") : null,
      isolated(timeline.id, { class: "id" }),
    ),
    make("h3", {}, isolated(timeline.request || "no request text", { class: "request-full" })),
    groupTag(timeline.group),
    make("p", { class: "verdict" }, verdict(timeline)),
    roundsView(timeline),
    make("h4", {}, "Answer"),
    answer,
  );
}

/** Scroll to the chosen request where its head is out of sight. */
function showDetail() {
  const { top } = byId("detail").getBoundingClientRect();
  const hidden = byId("filters").getBoundingClientRect().bottom;
  if (top < hidden || top > window.innerHeight - 120) byId("detail").scrollIntoView({ block: "start" });
}

function startRequests(changed) {
  if (!byId("request-list")) return;
  byId("page-back").addEventListener("click", () => turnPage(-1));
  byId("page-next").addEventListener("click", () => turnPage(1));
  byId("list-order").addEventListener("change", changed);
}
