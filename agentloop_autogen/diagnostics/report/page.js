// Filters, colour scheme, and the order in which things come up.

const state = { quantity: payload.quantities[0] ?? null };

/** What the controls say: which groups are left, and what a request must be like. */
function filters() {
  const [source, model] = [byId("filter-source").value, byId("filter-model").value];
  const left = payload.groups.filter(
    (group) => (!source || group.source === source) && (!model || group.model === model),
  );
  const labels = left.map((group) => group.label);
  return {
    left: left.length,
    // What is about all groups together is about the page only while all of them are on it.
    groups: new Set(source || model ? labels : [...labels, payload.all_groups]),
    outcome: byId("filter-outcome").value,
    text: byId("filter-text").value.trim().toLowerCase(),
    cut: byId("filter-cut").checked,
    low: byId("filter-low").checked,
  };
}

function showGroups(chosen) {
  let shown = 0;
  for (const row of document.querySelectorAll("[data-group]")) {
    row.hidden = !chosen.groups.has(row.dataset.group);
    if (row.tagName === "TBODY" && !row.hidden) shown += 1;
  }
  if (byId("overview-empty")) byId("overview-empty").hidden = shown > 0;
}

function redraw() {
  const chosen = filters();
  if (state.quantity) drawDistributions(state.quantity, chosen);
  drawFrontier(chosen);
}

/** Bring the list up to the filters, and say how much is left. */
function listAgain() {
  const chosen = filters();
  const found = listRequests(chosen);
  const all = payload.timelines.length;
  byId("status").textContent =
    `${chosen.left} of ${counted(payload.groups.length, "group")}, ${found} of ${counted(all, "request")} shown one by one`;
}

function everythingAgain() {
  showGroups(filters());
  listAgain();
  redraw();
}

function options(select, values) {
  const known = [...new Set(values)].sort();
  fill(
    select,
    make("option", { value: "" }, "all"),
    ...known.map((value) => make("option", { value }, value || "not named")),
  );
}

function startFilters() {
  options(
    byId("filter-source"),
    payload.groups.map((group) => group.source),
  );
  options(
    byId("filter-model"),
    payload.groups.map((group) => group.model),
  );
  for (const id of ["filter-source", "filter-model", "filter-outcome"])
    byId(id).addEventListener("change", everythingAgain);
  for (const id of ["filter-cut", "filter-low"]) byId(id).addEventListener("change", listAgain);
  byId("filter-text").addEventListener("input", settled(listAgain, 120));
  byId("filter-reset").addEventListener("click", () => {
    for (const control of byId("filters").querySelectorAll("select, input")) {
      if (control.type === "checkbox") control.checked = false;
      else control.value = "";
    }
    everythingAgain();
  });
}

function startQuantities() {
  const buttons = payload.quantities.map((quantity) =>
    make(
      "button",
      {
        type: "button",
        "aria-pressed": String(quantity === state.quantity),
        click: (event) => {
          state.quantity = quantity;
          for (const button of buttons) button.setAttribute("aria-pressed", String(button === event.currentTarget));
          redraw();
        },
      },
      quantity.label,
    ),
  );
  fill(byId("quantities"), ...buttons);
  if (state.quantity) return;
  byId("distributions-body").hidden = true;
  byId("distributions-empty").hidden = false;
  byId("distributions-empty").textContent = "No distribution is known of these traces.";
}

/** Light or dark: as the system says until the button says otherwise. */
function startScheme() {
  const button = byId("scheme");
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (document.documentElement.dataset.scheme ?? (system.matches ? "dark" : "light")) === "dark";
  const show = () => {
    button.textContent = isDark() ? "☀ Light" : "☾ Dark";
    button.setAttribute("aria-pressed", String(isDark()));
  };
  button.addEventListener("click", () => {
    document.documentElement.dataset.scheme = isDark() ? "light" : "dark";
    show();
  });
  system.addEventListener("change", show);
  show();
}

/** Draw again when the page becomes wider or narrower, not when it becomes longer. */
function watchWidth() {
  let width = window.innerWidth;
  const again = settled(redraw, 150);
  window.addEventListener("resize", () => {
    if (window.innerWidth === width) return;
    width = window.innerWidth;
    again();
  });
}

document.documentElement.classList.add("scripted");
if (window.matchMedia("(max-width: 720px)").matches) byId("filters").querySelector("details").open = false;
startScheme();
startFilters();
startQuantities();
startRequests(listAgain);
startCompare();
drawLegends();
everythingAgain();
watchWidth();
