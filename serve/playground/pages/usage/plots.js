// Plots drawn by hand: bars over days, bars of names; the same numbers stand in a table behind each.
import { make, makeSvg } from "../parts/dom.js";
import { plainTable } from "../parts/table.js";

const [HEIGHT, LEFT, BOTTOM, TOP] = [220, 64, 26, 10];
// A drawing is scaled to its place: on a phone it is drawn narrower, so that its words stay large enough.
const WIDE = 560;
const NARROW = 320;
const widthNow = () => (matchMedia("(max-width: 600px)").matches ? NARROW : WIDE);
const ROW = 34;
const ROOM_FOR_VALUE = 72;
let plots = 0;

// `series`: one or two of {name, value(row)}; two are stacked.
export function dayPlot(title, rows, series, shown) {
  const most = Math.max(...rows.map((row) => sum(row, series)), 0);
  const scale = nice(most);
  const width = widthNow();
  const step = (width - LEFT) / rows.length;
  const height = HEIGHT - BOTTOM - TOP;
  const marks = rows.flatMap((row, at) => bars(row, series, { x: LEFT + at * step, step, height, scale, shown }));
  const values = dayValues(rows.map((row) => sum(row, series)), { step, height, scale, shown, width });
  const ticks = [0, 0.5, 1].map((part) => tick(part * scale, HEIGHT - BOTTOM - part * height, width, shown));
  return figure(title, [width, HEIGHT], [...ticks.flat(), ...marks, ...values, ...dayLabels(rows, step)], table("Day", (row) => row.day, title, rows, series, shown), series);
}

export function namePlot(title, name, rows, series, shown) {
  const most = Math.max(...rows.map((row) => sum(row, series)), 0) || 1;
  const width = widthNow();
  const marks = rows.flatMap((row, at) => nameBar(name(row), sum(row, series), { at, most, width, shown }));
  return figure(title, [width, rows.length * ROW + 8], marks, table("Name", name, title, rows, series, shown), series);
}

const sum = (row, series) => series.reduce((total, one) => total + Math.max(0, one.value(row)), 0);

// Of each day where there is room for them, else of the highest; every bar says its own when it is pointed at.
function dayValues(values, { step, height, scale, shown, width }) {
  const most = Math.max(...values);
  const first = values.indexOf(most);
  const told = (value, at) => value > 0 && (step >= ROOM_FOR_VALUE || at === first);
  return values.flatMap((value, at) => {
    if (!told(value, at)) return [];
    const x = Math.min(Math.max(LEFT + (at + 0.5) * step, LEFT + ROOM_FOR_VALUE / 2), width - ROOM_FOR_VALUE / 2);
    const y = HEIGHT - BOTTOM - (value / scale) * height - 4;
    return [makeSvg("text", { class: "axis", ...rounded({ x, y: Math.max(y, TOP) }), "text-anchor": "middle" }, shown(value))];
  });
}

function bars(row, series, { x, step, height, scale, shown }) {
  let bottom = HEIGHT - BOTTOM;
  return series.map((one, at) => {
    const size = scale ? (Math.max(0, one.value(row)) / scale) * height : 0;
    bottom -= size;
    const box = { x: x + step * 0.14, y: bottom, width: step * 0.72, height: size, rx: Math.min(2, size / 2) };
    const said = makeSvg("title", {}, `${dayName(row.day)}, ${one.name}: ${shown(one.value(row))}`);
    return makeSvg("rect", { class: at ? "mark second" : "mark", ...rounded(box) }, said);
  });
}

function nameBar(name, value, { at, most, width, shown }) {
  const y = at * ROW + 4;
  const [left, longest] = width === NARROW ? [112, 15] : [150, 20];
  const text = name.length > longest ? `${name.slice(0, longest - 1)}…` : name;
  const size = Math.max(2, (value / most) * (width - left - 76));
  return [
    makeSvg("text", { class: "axis", x: 0, y: y + 18 }, text),
    makeSvg("rect", { class: "mark", ...rounded({ x: left, y: y + 4, width: size, height: 18, rx: 3 }) }),
    makeSvg("text", { class: "axis", x: left + 8 + size, y: y + 18 }, shown(value)),
  ];
}

function tick(value, y, width, shown) {
  return [
    makeSvg("line", { class: "rule", x1: LEFT, x2: width, y1: y, y2: y }),
    makeSvg("text", { class: "axis", x: LEFT - 8, y: y + 4, "text-anchor": "end" }, shown(value)),
  ];
}

function dayLabels(rows, step) {
  const last = rows.length - 1;
  const at = [...new Set([0, Math.floor(last / 2), last])];
  const anchor = (place) => (place === last && last ? "end" : place ? "middle" : "start");
  const x = (place) => LEFT + place * step + (place === last && last ? step : place ? step / 2 : 0);
  return at.map((place) => makeSvg("text", { class: "axis", x: x(place), y: HEIGHT - 6, "text-anchor": anchor(place) }, dayName(rows[place].day)));
}

const dayName = (day) => new Date(`${day}T00:00:00Z`).toLocaleDateString("en-US", { month: "short", day: "numeric", timeZone: "UTC" });
const rounded = (box) => Object.fromEntries(Object.entries(box).map(([name, value]) => [name, Math.round(value * 100) / 100]));

function figure(title, [width, height], marks, behind, series) {
  const id = `plot-${++plots}`;
  const drawing = makeSvg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-labelledby": id }, ...marks);
  const keys = series.map((one, at) => make("span", { class: at ? "second" : null }, one.name));
  return make(
    "figure",
    { class: "card" },
    make("figcaption", { id }, title),
    series.length > 1 ? make("div", { class: "keys", "aria-hidden": "true" }, ...keys) : null,
    drawing,
    make("details", {}, make("summary", {}, "As a table"), make("div", { tabindex: "0", role: "region", "aria-label": `${title}, as a table` }, behind)),
  );
}

function table(first, name, title, rows, series, shown) {
  const columns = [
    { name: first, shown: name },
    ...series.map((one) => ({ name: one.name, number: true, shown: (row) => shown(one.value(row)) })),
  ];
  return plainTable(title, columns, rows);
}

// The next round number: a scale that can be read, half of it too.
function nice(most) {
  if (most <= 0) return 0;
  const size = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 3, 4, 5, 6, 8, 10].map((step) => step * size).find((step) => step >= most * 0.999999);
}
