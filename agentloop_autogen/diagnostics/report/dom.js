// Making elements. Text of a trace only ever becomes a text node: nothing here takes markup.

const payload = JSON.parse(document.getElementById("payload").textContent);
const byId = (id) => document.getElementById(id);

/** Make an element; `given` holds attributes, and functions for the events they are named after. */
function make(tag, given = {}, ...content) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, String(value));
  }
  element.append(...content.filter((part) => part !== null && part !== undefined && part !== ""));
  return element;
}

/** Text of a trace, kept apart from the direction of the text around it. */
const isolated = (text, given = {}) => make("bdi", given, text);

const fill = (element, ...content) => element.replaceChildren(...content);

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });

/** "1 round", "2 rounds". */
const counted = (number, one, many = `${one}s`) => `${whole.format(number)} ${number === 1 ? one : many}`;

/** The number and names of a group, as everywhere on the page. */
function groupTag(index) {
  const group = payload.groups[index];
  const names = make(
    "span",
    { class: "names" },
    isolated(group.model || "no model named", { class: "model" }),
    isolated(group.source, { class: "source" }),
  );
  return make("span", { class: "group" }, make("span", { class: "badge" }, String(index + 1)), names);
}

/** A table with headings for its columns, and one for each row in its first cell. */
function table(columns, rows, caption) {
  const isNumber = (place) => columns[place].startsWith("#");
  const heads = columns.map((name, place) =>
    make("th", { scope: "col", class: isNumber(place) ? "number" : null }, name.replace("#", "")),
  );
  const lines = rows.map((cells) =>
    make(
      "tr",
      {},
      ...cells.map((cell, place) =>
        place === 0
          ? make("th", { scope: "row" }, cell)
          : make("td", { class: isNumber(place) ? "number" : null }, ...[cell].flat()),
      ),
    ),
  );
  return make(
    "table",
    {},
    make("caption", { class: "sr" }, caption),
    make("thead", {}, make("tr", {}, ...heads)),
    make("tbody", {}, ...lines),
  );
}

/** The same function, called once things have been quiet for a while. */
function settled(action, milliseconds) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(action, milliseconds);
  };
}
