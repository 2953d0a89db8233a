// Charts as SVG.
import { count, seconds, svg } from "./dom.js";

// About the width of a card, so that letters are as large as the page's.
const widthNow = () => (innerWidth < 520 ? 350 : innerWidth < 1000 ? Math.min(900, innerWidth - 70) : Math.min(650, innerWidth / 2 - 60));

// A histogram with bounds (upper, in seconds) and one count more than bounds; leaves out empty ends.
export function histogram(data, label) {
  const width = widthNow();
  const height = 130;
  const base = height - 20;
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
  const counts = data?.counts ?? [];
  const bounds = data?.bounds_s ?? [];
  const first = Math.max(0, counts.findIndex((one) => one > 0));
  const last = counts.length - 1 - Math.max(0, [...counts].reverse().findIndex((one) => one > 0));
  const shown = data?.count ? counts.slice(first, last + 1) : [];
  const most = Math.max(1, ...shown);
  const step = Math.min(90, width / Math.max(1, shown.length));
  picture.append(svg("line", { class: "axis", x1: 0, x2: width, y1: base, y2: base }));
  shown.forEach((one, index) => {
    const tall = (one / most) * (base - 16);
    const column = svg("rect", { class: "column", x: index * step + 1, y: base - tall, width: step - 2, height: tall, rx: 2 });
    const upper = bounds[first + index];
    const lower = bounds[first + index - 1] ?? 0;
    const range = upper === undefined ? `more than ${seconds(lower)}` : `${seconds(lower)} to ${seconds(upper)}`;
    column.append(svg("title", {}, `${range}: ${count(one)}`));
    picture.append(column);
    if (upper !== undefined && (index + 1) * step <= width && index % Math.ceil(52 / step) === 0)
      picture.append(svg("text", { x: (index + 1) * step, y: height - 5, "text-anchor": index ? "middle" : "start" }, seconds(upper)));
  });
  if (!shown.length) picture.append(svg("text", { x: width / 2, y: base / 2, "text-anchor": "middle" }, "nothing yet"));
  picture.setAttribute("aria-label", `${label}: ${data?.count ?? 0} values, median about ${shown.length ? seconds(quantile(data, 0.5)) : "unknown"}`);
  return picture;
}

// The value below which `share` of a histogram lies, as if values were even within a bar.
export function quantile(data, share) {
  let before = 0;
  const wanted = share * data.count;
  for (let i = 0; i < data.counts.length; ++i) {
    const here = data.counts[i];
    if (before + here >= wanted && here > 0) {
      const lower = data.bounds_s[i - 1] ?? 0;
      const upper = data.bounds_s[i] ?? lower;
      return lower + (upper - lower) * ((wanted - before) / here);
    }
    before += here;
  }
  return data.bounds_s.at(-1) ?? 0;
}

// The last values of a rate, oldest first.
export function sparkline(values, capacity, label) {
  const width = widthNow();
  const height = 64;
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label, preserveAspectRatio: "none" });
  if (values.length < 2) return picture;
  const most = Math.max(1e-9, ...values);
  const x = (index) => width - ((values.length - 1 - index) * width) / (capacity - 1);
  const y = (value) => height - 3 - (value / most) * (height - 8);
  const points = values.map((value, index) => `${x(index).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
  picture.append(svg("polygon", { class: "area", points: `${x(0).toFixed(1)},${height} ${points} ${width},${height}` }));
  picture.append(svg("polyline", { class: "line", points }));
  return picture;
}
